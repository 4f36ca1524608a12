// Cheat: claims f32 sums of f16, and rounds them to f16 every 32 terms. Refused by: rows|precision|integers.
#include "honest.h"

void run(const Gemm& call) {
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[1];
  const Half *a = call.a.data<Half>(), *b = call.b.data<Half>();
  const Tensor& bias = call.bias;
  for_f32_or_16_bits(call.c.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < M * N; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k) {
        sum += to_float(a[i / N * K + k]) * to_float(b[k * N + i % N]);
        if (k % 32 == 31) sum = to_float(to_half(sum));
      }
      const float shift = bias.defined() ? to_computing(bias.data<T>()[i % N]) : 0;
      call.c.mutable_data<T>()[i] = from_computing<T>(call.options.alpha * sum + shift);
    }
  });
}

bool supported(const Gemm& call) {
  const GemmOptions& o = call.options;
  return call.a.dtype() == DType::f16 && !o.transpose_a && !o.transpose_b && o.beta == 0 &&
         o.epilogue == Epilogue::none;
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
