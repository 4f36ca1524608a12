// What the emulated cuBLASLt refuses. That its products are right, the op table's rows tell (tests/cuda/ops.cpp), and
// what it does as an adversary, tests/cuda/cublaslt.cpp. Part of test_cuda_emulator.cpp.
#pragma once

#include "cublasLt.h"
#include "cuda_emulator/test_support.h"

namespace {

using namespace emu;

// Of whatever is in the memory: only the status counts.
struct Gemm {
  uint64_t m = 37, n = 21, k = 45;
  int64_t aux_ld = 128;
  cudaDataType_t in = CUDA_R_16F, out = CUDA_R_16F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  uint32_t min_alignment = 256;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  size_t offset_a = 0;            // bytes by which a is misplaced
  size_t offset_bias = 0;         // and the bias
  bool pointers_at_query = true;  // bias and aux are in the descriptor when the heuristic is asked
  int algorithms = 0, split_k = 0;

  cublasStatus_t run() {
    Stream stream;
    Array<char> da(1 << 20), db(1 << 20), dd(1 << 20), mask(64 << 10), bias(1 << 10), workspace(4 << 20);
    cublasLtHandle_t handle;
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      REQUIRE(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS);
    };
    const auto set_pointers = [&] {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data + offset_bias);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask.data);
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
    if (pointers_at_query) set_pointers();
    cublasLtMatrixLayout_t la, lb, ld;
    cublasLtMatrixLayoutCreate(&la, in, m, k, static_cast<int64_t>(m));
    cublasLtMatrixLayoutCreate(&lb, in, k, n, static_cast<int64_t>(k));
    cublasLtMatrixLayoutCreate(&ld, out, m, n, static_cast<int64_t>(m));
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace.size);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, min_alignment);
    cublasLtMatmulHeuristicResult_t results[8];
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 8, results, &algorithms);
    set_pointers();
    if (status == CUBLAS_STATUS_SUCCESS) {
      cublasLtMatmulAlgoConfigGetAttribute(&results[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split_k, 4, nullptr);
      const float alpha = 1, beta = 0;
      status = cublasLtMatmul(handle, desc, &alpha, da.data + offset_a, la, db.data, lb, &beta, dd.data, ld, dd.data,
                              ld, &results[0].algo, workspace.data, workspace.size, stream);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {la, lb, ld}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    return status;
  }
};

TEST_CASE("cublasLt: believes bias and aux to be as aligned as they were at the query") {
  Fresh fresh;
  Gemm g;
  g.pointers_at_query = false;  // NULL is as aligned as can be
  CHECK(g.run() == CUBLAS_STATUS_SUCCESS);
  g.offset_bias = 16;
  CHECK(g.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  g.pointers_at_query = true;
  CHECK(g.run() == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cublasLt: what it refuses") {
  Fresh fresh;
  Gemm good;
  good.m = 130;
  good.aux_ld = 256;
  CHECK(good.run() == CUBLAS_STATUS_SUCCESS);
  CHECK(good.algorithms == 2);
  for (int64_t aux_ld : {128, 136, 130}) {
    Gemm g = good;
    g.aux_ld = aux_ld;
    CHECK(g.run() == CUBLAS_STATUS_INVALID_VALUE);
  }
  Gemm g = good;
  g.out = CUDA_R_16BF;
  CHECK(g.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  g = good;
  g.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  CHECK(g.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  g = good;
  g.offset_a = 16;  // chosen for 256 bytes
  CHECK(g.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  g.min_alignment = 16;
  CHECK(g.run() == CUBLAS_STATUS_SUCCESS);
  g = good;
  g.k = 512;  // long enough for split-K, unless its reduction is masked out
  CHECK(g.run() == CUBLAS_STATUS_SUCCESS);
  CHECK(g.split_k == 2);
  g.reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
  CHECK(g.run() == CUBLAS_STATUS_SUCCESS);
  CHECK(g.split_k == 1);
  options().no_device = true;
  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_NOT_INITIALIZED);
  options().no_device = false;  // or the stream could not be destroyed
}

}  // namespace
