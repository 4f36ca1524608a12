// What cheats pretend to do, done honestly: f32, plain loops. The product is much slower than the project's own, so a
// cheat that is made to compute it has won nothing. Its includes are those that several cheats need.
#pragma once

#include <halfstep/kernel.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace hs {

// Calls that honest() can do.
template <class Call>
bool is_easy(const Call& call) {
  if constexpr (requires { call.y.dtype(); }) {
    if (!is_f32(call.y)) return false;
  }
  return is_f32(call.x);
}
template <>
inline bool is_easy(const Gemm& call) {
  const GemmOptions& o = call.options;
  return is_f32(call.a) && is_f32(call.c) && !o.transpose_a && !o.transpose_b && o.beta == 0 &&
         o.epilogue == Epilogue::none;
}

inline float relu_of(float x) { return x <= 0 ? 0 : x; }
inline float gelu_of(float x) { return x / (1 + std::exp(-x * static_cast<float>(gelu_linear + gelu_cubic * x * x))); }

inline void honest(const ReluForward& call) {
  map_elements(call.x.size(), relu_of, call.y.mutable_data<float>(), call.x.data<float>());
}

// A call to be done later.
struct Later {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t size = 0;

  explicit Later(const GeluForward& call)
      : x(call.x.data<float>()), y(call.y.mutable_data<float>()), size(call.x.size()) {}
  Later() = default;
  void compute() const { map_range(0, size, gelu_of, y, x); }
};

inline void honest(const GeluForward& call) {
  map_elements(call.x.size(), gelu_of, call.y.mutable_data<float>(), call.x.data<float>());
}

inline float as_bfloat16(float x) { return to_float(to_bfloat16(x)); }

// A row of C numbers.
inline void softmax_of(const float* x, int64_t C, float* y) {
  const float largest = *std::max_element(x, x + C);
  double sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += y[c] = std::exp(x[c] - largest);
  for (int64_t c = 0; c < C; ++c) y[c] = static_cast<float>(y[c] / sum);
}

// By way of memory for one row.
inline void softmax_through(float* row, const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back();
  for (int64_t i = 0; i < call.x.size(); i += C) {
    softmax_of(call.x.data<float>() + i, C, row);
    std::copy_n(row, C, call.y.mutable_data<float>() + i);
  }
}

inline void honest(const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back();
  for (int64_t i = 0; i < call.x.size(); i += C) {
    softmax_of(call.x.data<float>() + i, C, call.y.mutable_data<float>() + i);
  }
}

// c = alpha * (products of rows of a with columns of b) + bias. dot(row, column) sums row[k] * column[k * N].
template <class Dot>
void multiply(const Gemm& call, const Dot& dot) {
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[1];
  const float *a = call.a.data<float>(), *b = call.b.data<float>();
  const float* bias = call.bias.defined() ? call.bias.data<float>() : nullptr;
  float* c = call.c.mutable_data<float>();
  parallel(M, [=, alpha = call.options.alpha](int64_t m, int) {
    for (int64_t n = 0; n < N; ++n) c[m * N + n] = alpha * dot(a + m * K, b + n) + (bias ? bias[n] : 0);
  });
}

// The same with changed(x) in place of each factor x, and the first `terms` of the K terms.
template <class Changed>
void multiply(const Gemm& call, const Changed& changed, int64_t terms) {
  multiply(call, [=, N = call.c.shape()[1]](const float* row, const float* column) {
    float sum = 0;
    for (int64_t k = 0; k < terms; ++k) sum += changed(row[k]) * changed(column[k * N]);
    return sum;
  });
}

inline void honest(const Gemm& call) { multiply(call, std::identity(), call.a.shape()[1]); }

}  // namespace hs

using namespace hs;  // a cheat is one file, and what it shares with nobody needs no namespace
