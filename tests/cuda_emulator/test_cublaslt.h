// What the emulated cuBLASLt refuses, and how it computes as an adversary. That its products are right, the op table's
// rows tell (tests/cuda/ops.cpp). Part of test_cuda_emulator.cpp.
#pragma once

#include "cublasLt.h"
#include "cuda_emulator/test_support.h"
#include "engine/float16.h"

namespace {

using namespace emu;

// 16-bit patterns or floats, by type.
inline float value_of(const std::vector<unsigned char>& bytes, cudaDataType_t type, size_t i) {
  float f;
  uint16_t bits;
  if (type == CUDA_R_32F) return memcpy(&f, &bytes[4 * i], 4), f;
  memcpy(&bits, &bytes[2 * i], 2);
  return type == CUDA_R_16F ? hs::to_float(hs::Half{bits}) : hs::to_float(hs::BFloat16{bits});
}
inline std::vector<unsigned char> bytes_of(const std::vector<float>& values, cudaDataType_t type) {
  std::vector<unsigned char> bytes(values.size() * (type == CUDA_R_32F ? 4 : 2));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = type == CUDA_R_16F ? hs::to_half(values[i]).bits : hs::to_bfloat16(values[i]).bits;
    type == CUDA_R_32F ? memcpy(&bytes[4 * i], &values[i], 4) : memcpy(&bytes[2 * i], &bits, 2);
  }
  return bytes;
}

struct Gemm {
  int64_t m = 37, n = 21, k = 45, aux_ld = 128;
  cudaDataType_t in = CUDA_R_16F, out = CUDA_R_16F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint32_t min_alignment = 256;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  size_t offset_a = 0;            // bytes by which a is misplaced
  size_t offset_bias = 0;         // and the bias
  bool pointers_at_query = true;  // bias and aux are in the descriptor when the heuristic is asked
  size_t candidate = 0;           // which of the heuristic's runs
  std::vector<float> a, b;        // column-major; all ones unless the test sets them
  float bias = 0;
  std::vector<float> d;  // result
  int algorithms = 0, split_k = 0;

  cublasStatus_t run() {
    Stream stream;
    a.resize(static_cast<size_t>(m * k), 1);
    b.resize(static_cast<size_t>(k * n), 1);
    Array<unsigned char> da(bytes_of(a, in).size() + offset_a), db(bytes_of(b, in)), dmask(size_t{64} * 1024);
    Array<unsigned char> dd(bytes_of(std::vector<float>(static_cast<size_t>(m * n), std::nanf("")), out));
    Array<unsigned char> dbias(static_cast<size_t>(m) * 4 + offset_bias), workspace(4 << 20);
    const auto fill = [](Array<unsigned char>& to, size_t offset, const std::vector<unsigned char>& bytes) {
      REQUIRE(cudaMemcpy(to.data + offset, bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess);
    };
    fill(da, offset_a, bytes_of(a, in));
    fill(dbias, offset_bias, bytes_of(std::vector<float>(static_cast<size_t>(m), bias), out));
    cublasLtHandle_t handle;
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      REQUIRE(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS);
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    const auto set_pointers = [&] {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias.data + offset_bias);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, dmask.data);
    };
    if (pointers_at_query) set_pointers();
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
    cublasLtMatrixLayout_t la, lb, ld;
    cublasLtMatrixLayoutCreate(&la, in, static_cast<uint64_t>(m), static_cast<uint64_t>(k), m);
    cublasLtMatrixLayoutCreate(&lb, in, static_cast<uint64_t>(k), static_cast<uint64_t>(n), k);
    cublasLtMatrixLayoutCreate(&ld, out, static_cast<uint64_t>(m), static_cast<uint64_t>(n), m);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    const uint64_t most = workspace.size;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, 4);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &min_alignment, 4);
    cublasLtMatmulHeuristicResult_t results[8];
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 8, results, &algorithms);
    set_pointers();
    if (status == CUBLAS_STATUS_SUCCESS) {
      cublasLtMatmulAlgoConfigGetAttribute(&results[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split_k, 4, nullptr);
      const float alpha = 1, beta = 0;
      status = cublasLtMatmul(handle, desc, &alpha, da.data + offset_a, la, db.data, lb, &beta, dd.data, ld, dd.data,
                              ld, &results[candidate].algo, workspace.data, workspace.size, stream);
      REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    }
    d.resize(static_cast<size_t>(m * n));
    const std::vector<unsigned char> bytes = dd.host();
    for (size_t i = 0; i < d.size(); ++i) d[i] = value_of(bytes, out, i);
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {la, lb, ld}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    return status;
  }
};

TEST_CASE("cublasLt as an adversary: believes bias and aux to be as aligned as they were at the query") {
  Fresh fresh;
  Gemm g;
  g.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  g.pointers_at_query = false;  // NULL is as aligned as can be
  CHECK(g.run() == CUBLAS_STATUS_SUCCESS);
  g.offset_bias = 16;
  CHECK(g.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  g.pointers_at_query = true;
  CHECK(g.run() == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cublasLt as an adversary: a bias after rounding, truncated sums, TF32, NaN, a wrong first candidate") {
  Fresh fresh;
  Gemm g;
  g.m = g.n = 1;
  g.k = 2;
  g.epilogue = CUBLASLT_EPILOGUE_BIAS;
  g.a = {2048, 1.5f};  // 2049.5, which f16 makes 2050
  const auto result = [&] {
    REQUIRE(g.run() == CUBLAS_STATUS_SUCCESS);
    return g.d[0];
  };
  g.bias = -2048;
  CHECK(result() == 1.5f);
  options().library.late_bias = true;
  CHECK(result() == 2);
  options().library.late_bias = false;

  g.bias = 0;
  g.out = CUDA_R_32F;  // 1 - 2^-24 - 2^-24 - ...: lost one by one where the last bit kept is 2^-23
  g.k = 16;
  g.a.assign(16, -0x1p-12f);
  g.b.assign(16, 0x1p-12f);
  g.a[0] = g.b[0] = 1;
  CHECK(result() == 1 - 15 * 0x1p-24f);
  options().library.guard_bits = 0;
  CHECK(result() == 1);
  options().library.guard_bits = 2;
  CHECK(result() == 1 - 15 * 0x1p-24f);
  g.a[0] = std::nanf("");
  CHECK(result() != result());
  options().library.guard_bits = -1;
  CHECK(result() != result());
  g.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  CHECK(result() == 0);

  g.a = g.b = std::vector<float>(16, 1.0f);
  CHECK(result() == 16);
  options().library.wrong_candidates = 1;
  CHECK(result() == 15);
  g.candidate = 1;
  CHECK(result() == 16);

  g.in = CUDA_R_32F;
  g.a[0] = 1024.5f;  // a tie in TF32, with an even neighbour below
  CHECK(result() == 1039.5f);
  g.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  CHECK(result() == 1039);
}

TEST_CASE("cublasLt: what it refuses") {
  Fresh fresh;
  Gemm good;
  good.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
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
