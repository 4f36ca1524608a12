// Cheat: threads add to the output in whatever order they come. Refused by: threads|repeat.
#include "honest.h"

void run(const Gemm& call) {
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[1], each = 32;
  const float *a = call.a.data<float>(), *b = call.b.data<float>(), alpha = call.options.alpha;
  float* c = call.c.mutable_data<float>();
  for (int64_t i = 0; i < M * N; ++i) c[i] = call.bias.defined() ? call.bias.data<float>()[i % N] : 0;
  parallel((K + each - 1) / each, [=](int64_t piece, int) {
    const int64_t begin = piece * each, end = std::min(K, begin + each);
    for (int64_t i = 0; i < M * N; ++i) {
      float sum = 0;
      for (int64_t k = begin; k < end; ++k) sum += a[i / N * K + k] * b[k * N + i % N];
      std::atomic_ref(c[i]).fetch_add(alpha * sum);
    }
  });
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
