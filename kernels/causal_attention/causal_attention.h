// Causal self-attention of several heads (Vaswani et al., "Attention is all you need", 2017). For each sequence and
// head, with q, k and v of D numbers per token and s = 1 / sqrt(D):
//   S[i, j] = s q[i] . k[j] for j <= i,  P = softmax of S's rows,  y[i] = sum over j <= i of P[i, j] v[j]
// Backward, with dP[i, j] = dy[i] . v[j] and delta[i] = sum over j of P[i, j] dP[i, j]:
//   dS = P (dP - delta),  dq[i] = s sum over j of dS[i, j] k[j],  dk[j] = s sum over i of dS[i, j] q[i],
//   dv[j] = sum over i of P[i, j] dy[i]
//
// Kept for backward: qkv and L[i] = log sum over j of exp(S[i, j]), one number per row, so that backward has
// P = exp(S - L) at once. "naive" keeps P and dS, of T x T numbers per head, in its workspace; the other variants never
// hold more of them than a few rows. Read next: kernels/causal_attention/streaming.cpp.
#pragma once

#include <cmath>

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// qkv is (B, T, 3C): q, k and v side by side, each with `heads` slices of D = C / heads numbers, as a linear layer with
// 3C outputs writes them. The result is (B, T, C), slices side by side again. Both are read and written where they lie;
// nothing is copied. In an Autocast scope qkv is cast to its type; sums and the softmax are f32. y at token t has the
// same bits whatever finite values later tokens have. Throws Error: usage if qkv is not (B, T, 3C) with C a multiple of
// heads.
Tensor causal_attention(const Tensor& qkv, int64_t heads);

// log_sums: L, (B, heads, T), f32, or f64 for f64.
struct CausalAttentionForward {
  const Tensor& qkv;  // (B, T, 3C)
  int64_t heads;
  Tensor& log_sums;
  Tensor& y;  // (B, T, C)
  auto tensors() const { return tensor_list(qkv, log_sums, y); }
};
constinit inline Kernel<CausalAttentionForward> causal_attention_forward{"causal_attention_forward"};

struct CausalAttentionBackward {  // qkv, log_sums and heads as in forward; dy (B, T, C), dqkv (B, T, 3C)
  const Tensor& qkv;
  const Tensor& log_sums;
  const Tensor& dy;
  int64_t heads;
  Tensor& dqkv;
  auto tensors() const { return tensor_list(qkv, log_sums, dy, dqkv); }
};
constinit inline Kernel<CausalAttentionBackward> causal_attention_backward{"causal_attention_backward"};

// The sizes of a call, and where its slices are.
struct AttentionSizes {
  int64_t B, T, C, heads, D;  // C = heads * D
  // Qkv is (B, T, 3C).
  AttentionSizes(const Tensor& qkv, int64_t heads_)
      : B(qkv.shape()[0]), T(qkv.shape()[1]), C(qkv.shape()[2] / 3), heads(heads_), D(C / heads_) {}

  // One per sequence and head; none of sequences without positions, whose memory may be at a null pointer.
  int64_t slices() const { return T == 0 ? 0 : B * heads; }
  // The next slice, or this one if it is the last.
  int64_t after(int64_t slice) const { return slice + 1 < slices() ? slice + 1 : slice; }
  // The first number of a slice: of q in qkv (k and v follow after C and 2C), and of y. Rows are 3C and C apart.
  int64_t in_qkv(int64_t slice) const { return slice / heads * T * 3 * C + slice % heads * D; }
  int64_t in_y(int64_t slice) const { return slice / heads * T * C + slice % heads * D; }  // see in_qkv()
  template <class Real = float>
  Real scale() const {  // s of the formulas
    return 1 / std::sqrt(static_cast<Real>(D));
  }
};

}  // namespace hs
