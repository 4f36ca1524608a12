// The emulated cuBLASLt against a plain loop on small integers, where every sum is exact, and what it refuses. Part of
// test_cuda_emulator.cpp.
#pragma once

#include <functional>
#include <random>

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
inline float rounded(float f, cudaDataType_t type) {
  return type == CUDA_R_32F ? f : type == CUDA_R_16F ? hs::to_float(hs::to_half(f)) : hs::to_float(hs::to_bfloat16(f));
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
  bool trans_a = false, trans_b = false, c_is_d = true;
  cudaDataType_t in = CUDA_R_16F, out = CUDA_R_16F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float alpha = 1, beta = 0;
  uint32_t min_alignment = 256;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  size_t offset_a = 0;               // bytes by which a is misplaced
  size_t offset_bias = 0;            // and the bias
  bool pointers_at_query = true;     // bias and aux are in the descriptor when the heuristic is asked
  size_t candidate = 0;              // which of the heuristic's runs
  std::vector<float> a, b, c, bias;  // column-major, bias also takes the bias gradient
  std::vector<unsigned char> mask;   // aux
  std::vector<float> d;              // result
  int algorithms = 0, split_k = 0;

  void draw(unsigned seed) {
    std::mt19937 random(seed);
    const auto fill = [&](std::vector<float>& v, int64_t size) {
      v.resize(static_cast<size_t>(size));
      for (float& x : v) x = static_cast<float>(static_cast<int>(random() % 7) - 3);
    };
    fill(a, m * k);
    fill(b, k * n);
    fill(c, m * n);
    fill(bias, epilogue == CUBLASLT_EPILOGUE_BGRADB ? n : m);
    mask.assign(static_cast<size_t>(aux_ld / 8 * n), 0);
    if (epilogue & 8) {
      for (unsigned char& byte : mask) byte = static_cast<unsigned char>(random());
    }
  }

  cublasStatus_t run(cudaStream_t stream, const std::function<void()>& between = {}) {
    Array<unsigned char> da(bytes_of(a, in).size() + offset_a), db(bytes_of(b, in)), dc(bytes_of(c, out)), dd(dc.size);
    Array<unsigned char> dbias(bytes_of(bias, out).size() + offset_bias), dmask(mask), workspace(4 << 20);
    REQUIRE(cudaMemcpy(dbias.data + offset_bias, bytes_of(bias, out).data(), dbias.size - offset_bias,
                       cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(cudaMemcpy(da.data + offset_a, bytes_of(a, in).data(), da.size - offset_a, cudaMemcpyHostToDevice) ==
            cudaSuccess);
    void* result = c_is_d ? dc.data : dd.data;
    cublasLtHandle_t handle;
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F);
    const cublasOperation_t ta = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      REQUIRE(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
    set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    const auto set_pointers = [&] {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias.data + offset_bias);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, dmask.data);
    };
    if (pointers_at_query) set_pointers();
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
    cublasLtMatrixLayout_t la, lb, lc;
    const auto layout = [](cublasLtMatrixLayout_t& l, cudaDataType_t type, int64_t rows, int64_t columns,
                           bool transposed) {
      if (transposed) std::swap(rows, columns);
      cublasLtMatrixLayoutCreate(&l, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows);
    };
    layout(la, in, m, k, trans_a);
    layout(lb, in, k, n, trans_b);
    layout(lc, out, m, n, false);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    const uint64_t most = workspace.size;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, 4);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &min_alignment, 4);
    cublasLtMatmulHeuristicResult_t results[8];
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, lc, lc, preference, 8, results, &algorithms);
    set_pointers();
    if (status == CUBLAS_STATUS_SUCCESS) {
      cublasLtMatmulAlgoConfigGetAttribute(&results[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split_k, 4, nullptr);
      status = cublasLtMatmul(handle, desc, &alpha, da.data + offset_a, la, db.data, lb, &beta, dc.data, lc, result, lc,
                              &results[candidate].algo, workspace.data, workspace.size, stream);
      if (between) between();
      REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    }
    d.resize(c.size());
    const std::vector<unsigned char> bytes = c_is_d ? dc.host() : dd.host(), bias_bytes = dbias.host();
    const std::vector<unsigned char> own_bias(bias_bytes.begin() + static_cast<ptrdiff_t>(offset_bias),
                                              bias_bytes.end());
    for (size_t i = 0; i < d.size(); ++i) d[i] = value_of(bytes, out, i);
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = value_of(own_bias, out, i);
    mask = dmask.host();
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t l : {la, lb, lc}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    return status;
  }

  float at_a(int64_t i, int64_t l) const { return a[static_cast<size_t>(trans_a ? l + i * k : i + l * m)]; }
  float at_b(int64_t l, int64_t j) const { return b[static_cast<size_t>(trans_b ? j + l * n : l + j * k)]; }
};

void check_against_loop(Gemm g) {
  Stream stream;
  Gemm before = g;
  REQUIRE(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  std::vector<float> row_sums(static_cast<size_t>(g.m));
  for (int64_t j = 0; j < g.n; ++j) {
    for (int64_t i = 0; i < g.m; ++i) {
      const size_t at = static_cast<size_t>(i + j * g.m), row = static_cast<size_t>(i);
      float sum = 0;
      for (int64_t l = 0; l < g.k; ++l) sum += g.at_a(i, l) * g.at_b(l, j);
      float want = g.alpha * sum + g.beta * before.c[at];
      const size_t bit = static_cast<size_t>((options().library.permute_mask ? i ^ 85 : i) + j * g.aux_ld);
      const auto bit_of = [&](const std::vector<unsigned char>& mask) { return (mask[bit / 8] >> bit % 8 & 1) != 0; };
      if (g.epilogue & 4) want += before.bias[row];
      if ((g.epilogue & 2) && (g.epilogue & 128)) REQUIRE(bit_of(g.mask) == (want > 0));
      if (g.epilogue & 2) want = std::max(want, 0.0f);
      if (g.epilogue & 8) want = bit_of(before.mask) ? want : 0;
      row_sums[row] += want;
      REQUIRE(g.d[at] == rounded(want, g.out));
    }
  }
  for (size_t i = 0; i < g.bias.size(); ++i) {
    float want = before.bias[i];
    if (g.epilogue & 16) want = row_sums[i];
    if (g.epilogue & (256 | 512)) want = 0;
    for (int64_t l = 0; l < g.k; ++l) {
      if (g.epilogue & 256) want += g.at_a(static_cast<int64_t>(i), l);
      if (g.epilogue & 512) want += g.at_b(l, static_cast<int64_t>(i));
    }
    REQUIRE(g.bias[i] == rounded(want, g.out));
  }
}

TEST_CASE("cublasLt: types, transpositions, alpha and beta, every epilogue") {
  Fresh fresh;
  for (cublasLtEpilogue_t epilogue :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,
        CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
    unsigned seed = 0;
    for (auto [in, out] : {std::pair{CUDA_R_16F, CUDA_R_16F},
                           {CUDA_R_16F, CUDA_R_32F},
                           {CUDA_R_16BF, CUDA_R_16BF},
                           {CUDA_R_16BF, CUDA_R_32F},
                           {CUDA_R_32F, CUDA_R_32F}}) {
      for (int form = 0; form < 4; ++form) {
        Gemm g;
        g.in = in;
        g.out = out;
        g.epilogue = epilogue;
        g.trans_a = form & 1;
        g.trans_b = form & 2;
        g.beta = static_cast<float>(form / 2);
        g.alpha = form == 3 ? 2.0f : 1.0f;
        g.c_is_d = form != 2;
        g.draw(++seed);
        check_against_loop(g);
      }
    }
  }
}

TEST_CASE("cublasLt: NaN in c with beta 0, NaN through ReLU, rounding once, TF32, the K tail") {
  Fresh fresh;
  Stream stream;
  Gemm g;
  g.draw(1);
  g.c.assign(g.c.size(), std::nanf(""));
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(g.d[5] == g.d[5]);
  g.a[0] = std::nanf("");
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(g.d[0] != g.d[0]);
  g.epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(g.d[0] == 0);

  Gemm one;  // 1 + 1.0009765625 in f32, as true f32 and as TF32, where it is a tie with an even neighbour below
  one.m = one.n = one.k = 1;
  one.in = one.out = CUDA_R_32F;
  one.draw(1);
  one.a = {1024.5f};
  one.b = {1.0f};
  CHECK(one.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(one.d[0] == 1024.5f);
  one.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  CHECK(one.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(one.d[0] == 1024.0f);

  Gemm ones;
  ones.k = 100;
  ones.draw(1);
  ones.a.assign(ones.a.size(), 1.0f);
  ones.b.assign(ones.b.size(), 1.0f);
  CHECK(ones.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(ones.d[3] == 100);
  options().drop_k_tail = 64;
  CHECK(ones.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(ones.d[3] == 64);
}

TEST_CASE("cublasLt as an adversary: masks in a plain order, when asked for") {
  Fresh fresh;
  for (const bool permuted : {true, false}) {
    options().library.permute_mask = permuted;
    Gemm g;
    g.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    g.draw(7);
    check_against_loop(g);
  }
}

TEST_CASE("cublasLt as an adversary: refuses an epilogue at the query or at the run, after some calls") {
  Fresh fresh;
  Stream stream;
  Gemm g, other;
  g.epilogue = CUBLASLT_EPILOGUE_BIAS;
  g.draw(1);
  other.draw(1);
  for (const bool at_run : {false, true}) {
    options().library.refusals = {{CUBLASLT_EPILOGUE_BIAS, at_run, CUBLAS_STATUS_INTERNAL_ERROR, 2}};
    for (const bool refused : {false, false, true, true}) {
      g.algorithms = 0;
      CHECK(g.run(stream) == (refused ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS));
      CHECK((g.algorithms > 0) == (at_run || !refused));
      CHECK(other.run(stream) == CUBLAS_STATUS_SUCCESS);
    }
  }
  options().library.refusals = {{-1, true, CUBLAS_STATUS_EXECUTION_FAILED}};
  CHECK(other.run(stream) == CUBLAS_STATUS_EXECUTION_FAILED);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);  // the device lives on
}

TEST_CASE("cublasLt as an adversary: believes bias and aux to be as aligned as they were at the query") {
  Fresh fresh;
  Stream stream;
  Gemm g;
  g.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  g.draw(1);
  g.pointers_at_query = false;  // NULL is as aligned as can be
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  g.offset_bias = 16;
  CHECK(g.run(stream) == CUBLAS_STATUS_NOT_SUPPORTED);
  g.pointers_at_query = true;
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cublasLt as an adversary: a bias after rounding, truncated sums, a wrong first candidate") {
  Fresh fresh;
  Stream stream;
  Gemm g;
  g.m = g.n = 1;
  g.k = 2;
  g.epilogue = CUBLASLT_EPILOGUE_BIAS;
  g.draw(1);
  g.a = {2048, 1.5f};  // 2049.5, which f16 makes 2050
  g.b = {1, 1};
  const auto result = [&](float bias) {
    g.bias = {bias};
    REQUIRE(g.run(stream) == CUBLAS_STATUS_SUCCESS);
    return g.d[0];
  };
  CHECK(result(-2048) == 1.5f);
  options().library.late_bias = true;
  CHECK(result(-2048) == 2);
  options().library.late_bias = false;

  g.out = CUDA_R_32F;  // 1 - 2^-24 - 2^-24 - ...: lost one by one where the last bit kept is 2^-23
  g.k = 16;
  g.a.assign(16, -0x1p-12f);
  g.b.assign(16, 0x1p-12f);
  g.a[0] = g.b[0] = 1;
  CHECK(result(0) == 1 - 15 * 0x1p-24f);
  options().library.guard_bits = 0;
  CHECK(result(0) == 1);
  options().library.guard_bits = 2;
  CHECK(result(0) == 1 - 15 * 0x1p-24f);
  g.a[0] = std::nanf("");
  CHECK(result(0) != result(0));
  options().library.guard_bits = -1;

  g.a = g.b = std::vector<float>(16, 1.0f);
  CHECK(result(0) == 16);
  options().library.wrong_candidates = 1;
  CHECK(result(0) == 15);
  g.candidate = 1;
  CHECK(result(0) == 16);
}

TEST_CASE("cublasLt: what it refuses") {
  Fresh fresh;
  Stream stream;
  Gemm good;
  good.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  good.m = 130;
  good.aux_ld = 256;
  good.draw(1);
  CHECK(good.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(good.algorithms == 2);
  for (int64_t aux_ld : {128, 136, 130}) {
    Gemm g = good;
    g.aux_ld = aux_ld;
    g.mask.resize(static_cast<size_t>(g.n * 32));
    CHECK(g.run(stream) == CUBLAS_STATUS_INVALID_VALUE);
  }
  Gemm g = good;
  g.out = CUDA_R_16BF;
  CHECK(g.run(stream) == CUBLAS_STATUS_NOT_SUPPORTED);
  g = good;
  g.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  CHECK(g.run(stream) == CUBLAS_STATUS_NOT_SUPPORTED);
  g = good;
  g.offset_a = 16;  // chosen for 256 bytes
  CHECK(g.run(stream) == CUBLAS_STATUS_NOT_SUPPORTED);
  g.min_alignment = 16;
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  g = good;
  g.k = 512;  // long enough for split-K, unless its reduction is masked out
  g.draw(1);
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(g.split_k == 2);
  g.reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
  CHECK(g.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(g.split_k == 1);
  options().no_device = true;
  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_NOT_INITIALIZED);
  options().no_device = false;  // or the stream could not be destroyed
}

TEST_CASE("cublasLt: is captured and runs late like any other work") {
  Fresh fresh;
  options().delay_streams = true;
  Stream stream;
  Gemm g;
  g.draw(3);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  // The operands are freed after run(), so the whole life of the graph lies inside.
  g.beta = 1;
  Gemm once = g;
  CHECK(once.run(stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(g.run(stream, [&] {
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
  }) == CUBLAS_STATUS_SUCCESS);
  for (size_t i = 0; i < g.d.size(); ++i) REQUIRE(g.d[i] == g.c[i] + 3 * (once.d[i] - g.c[i]));
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
}

}  // namespace
