#include "kernels/causal_attention/causal_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/check.h"
#include "kernels/cpu/elements.h"
#include "kernels/gemm/gemm.h"

namespace hs {

Tensor causal_attention(const Tensor& qkv, int64_t heads) {
  const Op op("causal_attention");
  check(qkv.shape().rank() == 3 && heads > 0 && qkv.shape()[2] > 0 && qkv.shape()[2] % (3 * heads) == 0,
        "causal_attention: qkv is {} and there are {} heads, expected (B, T, 3C) with C a multiple of the heads", qkv,
        heads);
  const Tensor input = autocast(qkv);
  const AttentionSizes size(input, heads);
  const DType of_sums = input.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor y = Tensor::empty({size.B, size.T, size.C}, input.dtype(), input.device());
  Tensor log_sums = Tensor::empty({size.B, heads, size.T}, of_sums, input.device());
  causal_attention_forward({input, heads, log_sums, y});
  return record("causal_attention", y, {input},
                [qkv = input.saved(), log_sums = log_sums.saved(), heads](const Tensor& dy) -> Gradients {
                  Tensor dqkv = qkv.empty_like();
                  causal_attention_backward({qkv, log_sums, dy, heads, dqkv});
                  return {dqkv};
                });
}

namespace {

// The definition, with P and dS as matrices: variant "naive".

// sum over d of a[d] b[d].
template <class T>
Computing<T> dot(const T* a, const T* b, int64_t D) {
  Computing<T> sum = 0;
  for (int64_t d = 0; d < D; ++d) sum += to_computing(a[d]) * to_computing(b[d]);
  return sum;
}

// to[d] = factor * sum over n from begin to end - 1 of weight(n) rows[n * stride + d].
template <class T, class Weight>
void weighted_sum(int64_t begin, int64_t end, const Weight& weight, const T* rows, int64_t stride, int64_t D,
                  Computing<T> factor, T* to) {
  for (int64_t d = 0; d < D; ++d) {
    Computing<T> sum = 0;
    for (int64_t n = begin; n < end; ++n) sum += weight(n) * to_computing(rows[n * stride + d]);
    to[d] = from_computing<T>(factor * sum);
  }
}

// Bytes of `matrices` matrices (T, T) per slice.
int64_t matrices(const AttentionSizes& size, DType of_sums, int64_t matrices) {
  return size.slices() * matrices * size.T * size.T * static_cast<int64_t>(size_of(of_sums));
}

void forward_naive(const CausalAttentionForward& call, Tensor& workspace) {
  const AttentionSizes size(call.qkv, call.heads);
  const int64_t T = size.T, C = size.C, D = size.D;
  for_float_type(call.qkv.dtype(), [&]<class Element>() {
    using Real = Computing<Element>;
    const Element* qkv = call.qkv.data<Element>();
    Element* y = call.y.mutable_data<Element>();
    Real *log_sums = call.log_sums.mutable_data<Real>(),
         *memory = reinterpret_cast<Real*>(workspace.mutable_raw_data());
    parallel(size.slices(), [=](int64_t slice, int) {
      const Element *q = qkv + size.in_qkv(slice), *k = q + C, *v = k + C;
      Real* all_p = memory + slice * T * T;
      for (int64_t i = 0; i < T; ++i) {
        Real* p = all_p + i * T;
        for (int64_t j = 0; j <= i; ++j) p[j] = size.scale<Real>() * dot(q + i * 3 * C, k + j * 3 * C, D);
        const Real largest = *std::max_element(p, p + i + 1);
        Real sum = 0;
        for (int64_t j = 0; j <= i; ++j) sum += p[j] = std::exp(p[j] - largest);
        for (int64_t j = 0; j <= i; ++j) p[j] /= sum;
        log_sums[slice * T + i] = largest + std::log(sum);
      }
      for (int64_t i = 0; i < T; ++i) {
        const auto weight = [=](int64_t j) { return all_p[i * T + j]; };
        weighted_sum(0, i + 1, weight, v, 3 * C, D, Real{1}, y + size.in_y(slice) + i * C);
      }
    });
  });
}

void backward_naive(const CausalAttentionBackward& call, Tensor& workspace) {
  const AttentionSizes size(call.qkv, call.heads);
  const int64_t T = size.T, C = size.C, D = size.D;
  for_float_type(call.qkv.dtype(), [&]<class Element>() {
    using Real = Computing<Element>;
    const Element *qkv = call.qkv.data<Element>(), *all_dy = call.dy.data<Element>();
    Element* dqkv = call.dqkv.mutable_data<Element>();
    const Real* log_sums = call.log_sums.data<Real>();
    Real* memory = reinterpret_cast<Real*>(workspace.mutable_raw_data());
    parallel(size.slices(), [=](int64_t slice, int) {
      const Element *q = qkv + size.in_qkv(slice), *k = q + C, *v = k + C, *dy = all_dy + size.in_y(slice);
      Element *dq = dqkv + size.in_qkv(slice), *dk = dq + C, *dv = dk + C;
      const Real s = size.scale<Real>();
      Real *all_p = memory + slice * 2 * T * T, *all_ds = all_p + T * T;
      for (int64_t i = 0; i < T; ++i) {
        Real *p = all_p + i * T, *ds = all_ds + i * T, delta = 0;
        for (int64_t j = 0; j <= i; ++j) {
          p[j] = std::exp(s * dot(q + i * 3 * C, k + j * 3 * C, D) - log_sums[slice * T + i]);
          ds[j] = dot(dy + i * C, v + j * 3 * C, D);  // dP so far
          delta += p[j] * ds[j];
        }
        for (int64_t j = 0; j <= i; ++j) ds[j] = p[j] * (ds[j] - delta);
      }
      for (int64_t n = 0; n < T; ++n) {  // a query, then a key
        const auto of_query = [=](int64_t j) { return all_ds[n * T + j]; };
        const auto of_key = [=](int64_t i) { return all_ds[i * T + n]; };
        const auto p_of_key = [=](int64_t i) { return all_p[i * T + n]; };
        weighted_sum(0, n + 1, of_query, k, 3 * C, D, s, dq + n * 3 * C);
        weighted_sum(n, T, of_key, q, 3 * C, D, s, dk + n * 3 * C);
        weighted_sum(n, T, p_of_key, dy, C, D, Real{1}, dv + n * 3 * C);
      }
    });
  });
}

REGISTER_KERNEL(causal_attention_forward, cpu, "naive",
                {.run = forward_naive,
                 .supported = takes_floats,
                 .workspace =
                     [](const CausalAttentionForward& call) {
                       return matrices(AttentionSizes(call.qkv, call.heads), call.log_sums.dtype(), 1);
                     },
                 .rank = -10});
REGISTER_KERNEL(causal_attention_backward, cpu, "naive",
                {.run = backward_naive,
                 .supported = takes_floats,
                 .workspace =
                     [](const CausalAttentionBackward& call) {
                       return matrices(AttentionSizes(call.qkv, call.heads), call.log_sums.dtype(), 2);
                     },
                 .rank = -10});

}  // namespace
}  // namespace hs
