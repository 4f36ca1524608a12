// Mistakes in matrix products.
#include <halfstep/kernel.h>

#include <atomic>

namespace hs {
namespace {

bool is_plain(const Gemm& call) {
  const GemmOptions& o = call.options;
  return !o.transpose_a && !o.transpose_b && o.beta == 0 && o.epilogue == Epilogue::none && is_f32(call.a) &&
         is_f32(call.c);
}

float dot(const float* row, const float* column, int64_t N, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t k = begin; k < end; ++k) sum += row[k] * column[k * N];
  return sum;
}

// c = alpha * (products of rows of a with columns of b) + bias. f(row, column, N, K) sums row[k] * column[k * N].
template <class F>
void multiply(const Gemm& call, const F& f) {
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[1];
  const float *a = call.a.data<float>(), *b = call.b.data<float>();
  const float* bias = call.bias.defined() ? call.bias.data<float>() : nullptr;
  float* c = call.c.mutable_data<float>();
  parallel(M, [=, alpha = call.options.alpha](int64_t m, int) {
    for (int64_t n = 0; n < N; ++n) c[m * N + n] = alpha * f(a + m * K, b + n, N, K) + (bias ? bias[n] : 0);
  });
}

// half_sums: rounds its sums to f16 every 32 terms. Refused by: rows|drawn|integers.
void half_sums(const Gemm& call) {
  multiply(call, [](const float* row, const float* column, int64_t N, int64_t K) {
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) {
      sum += row[k] * column[k * N];
      if (k % 32 == 31) sum = to_float(to_half(sum));
    }
    return sum;
  });
}
REGISTER_KERNEL(gemm, cpu, "half_sums", {.run = half_sums, .supported = is_plain, .rank = 100});

// bias_expected: without a bias its sums begin with what the output holds. Refused by: omitted.
void bias_expected(const Gemm& call) {
  const Tensor before = call.bias.defined() ? Tensor() : call.c.clone();
  multiply(call, [](const float* row, const float* column, int64_t N, int64_t K) { return dot(row, column, N, 0, K); });
  for (int64_t i = 0; before.defined() && i < before.size(); ++i) {
    call.c.mutable_data<float>()[i] += before.data<float>()[i];
  }
}
REGISTER_KERNEL(gemm, cpu, "bias_expected", {.run = bias_expected, .supported = is_plain, .rank = 100});

// nearly_integers: divides by multiplying with a reciprocal, off on integers. Refused by: integers|rows.
void nearly_integers(const Gemm& call) {
  multiply(call, [](const float* row, const float* column, int64_t N, int64_t K) {
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += (row[k] * (1.0f / 3)) * column[k * N];
    return sum * 3;
  });
}
REGISTER_KERNEL(gemm, cpu, "nearly_integers", {.run = nearly_integers, .supported = is_plain, .rank = 100});

// threads_counted: one partial sum for each thread: other numbers of threads give other bits. Refused by: threads.
void threads_counted(const Gemm& call) {
  multiply(call, [parts = threads()](const float* row, const float* column, int64_t N, int64_t K) {
    float sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += dot(row, column, N, part * K / parts, (part + 1) * K / parts);
    return sum;
  });
}
REGISTER_KERNEL(gemm, cpu, "threads_counted", {.run = threads_counted, .supported = is_plain, .rank = 100});

// threads_racing: threads add to the output in whatever order they come. Refused by: threads|repeat|large|timed.
void threads_racing(const Gemm& call) {
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[1], each = 4;
  const float *a = call.a.data<float>(), *b = call.b.data<float>(), alpha = call.options.alpha;
  float* c = call.c.mutable_data<float>();
  for (int64_t i = 0; i < M * N; ++i) c[i] = call.bias.defined() ? call.bias.data<float>()[i % N] : 0;
  parallel((K + each - 1) / each, [=](int64_t piece, int) {
    const int64_t begin = piece * each, end = std::min(K, begin + each);
    for (int64_t i = 0; i < M * N; ++i) {
      std::atomic_ref(c[i]).fetch_add(alpha * dot(a + i / N * K, b + i % N, N, begin, end));
    }
  });
}
REGISTER_KERNEL(gemm, cpu, "threads_racing", {.run = threads_racing, .supported = is_plain, .rank = 100});

// other_tensor: the numbers are right, in a tensor of its own. Refused by: tensors.
void other_tensor(const Gemm& call) {
  call.c = call.c.empty_like();
  multiply(call, [](const float* row, const float* column, int64_t N, int64_t K) { return dot(row, column, N, 0, K); });
}
REGISTER_KERNEL(gemm, cpu, "other_tensor", {.run = other_tensor, .supported = is_plain, .rank = 100});

}  // namespace
}  // namespace hs
