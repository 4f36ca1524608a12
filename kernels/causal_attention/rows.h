// What causal_attention's kernel on tiles does with rows of S and dP between its products, on the vectors of this CPU:
// implemented in kernels/causal_attention/streaming.cpp. And how both give the slices to threads. Internal to
// kernels/causal_attention/streaming.cpp, amx.* and its test.
#pragma once

#include <cstdint>

#include "kernels/causal_attention/causal_attention.h"
#include "kernels/cpu/parts.h"

namespace hs {

// `keys` and counts are multiples of 16. A split writes f32 values as the sum of two bf16 numbers, 16 bits of mantissa
// together, so that products of them are nearly as exact as those of f32.
struct AttentionRows {
  // S becomes exp(factor S - largest), where `largest` is the maximum of factor S, and 0 from key `visible` on; `sum`
  // is theirs.
  void (*exponentials)(float* S, int64_t visible, int64_t keys, float factor, float& largest, float& sum);
  // S becomes P = exp(factor S - log_sum), 0 from key `visible` on, and dP becomes dS = P (dP - sum of P dP).
  void (*differentiate)(float* S, float* dP, int64_t visible, int64_t keys, float factor, float log_sum);
  void (*split_row)(const float* values, int64_t count, uint16_t* high, uint16_t* low);
  // Of two rows, in pairs: first[j] in the lower half of cell j.
  void (*split_pair)(const float* first, const float* second, int64_t count, Cell* high, Cell* low);
};

const AttentionRows& attention_rows();

// Calls attend() for each slice with its part of the tensors, a Memory of its thread (the Parts for AttentionSizes),
// and where the slice begins in qkv and dy that this thread likely takes next.
template <class Memory, class T, class Attend>
void attend_slices(const CausalAttentionForward& call, Tensor& workspace, const Attend& attend) {
  const AttentionSizes size(call.qkv, call.heads);
  const int64_t bytes = Memory{Parts(), size}.bytes();
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  const T* qkv = call.qkv.data<T>();
  float* log_sums = call.log_sums.mutable_data<float>();
  T* y = call.y.mutable_data<T>();
  parallel(size.slices(), [=](int64_t slice, int thread) {
    attend(size, Memory{Parts(memory + thread * bytes), size}, qkv + size.in_qkv(slice), log_sums + slice * size.T,
           y + size.in_y(slice), qkv + size.in_qkv(size.after(slice)));
  });
}
template <class Memory, class T, class Attend>
void attend_slices(const CausalAttentionBackward& call, Tensor& workspace, const Attend& attend) {
  const AttentionSizes size(call.qkv, call.heads);
  const int64_t bytes = Memory{Parts(), size}.bytes();
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  const T *qkv = call.qkv.data<T>(), *dy = call.dy.data<T>();
  const float* log_sums = call.log_sums.data<float>();
  T* dqkv = call.dqkv.mutable_data<T>();
  parallel(size.slices(), [=](int64_t slice, int thread) {
    attend(size, Memory{Parts(memory + thread * bytes), size}, qkv + size.in_qkv(slice), log_sums + slice * size.T,
           dy + size.in_y(slice), dqkv + size.in_qkv(slice), qkv + size.in_qkv(size.after(slice)),
           dy + size.in_y(size.after(slice)));
  });
}
template <class Memory, class Call>
int64_t slices_workspace(const Call& call) {
  return threads() * Memory{Parts(), AttentionSizes(call.qkv, call.heads)}.bytes();
}

}  // namespace hs
