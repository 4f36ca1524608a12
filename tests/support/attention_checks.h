// What must hold of causal_attention without a reference, for the tests on both devices.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/autograd.h"
#include "engine/error.h"
#include "kernels/cast/cast.h"
#include "kernels/causal_attention/causal_attention.h"
#include "kernels/examples/op_table.h"
#include "tests/support/random_tensor.h"

namespace hs::test {
using namespace examples;

struct AttentionCase {
  int64_t B, T, heads, D;
  Shape in() const { return {B, T, 3 * heads * D}; }
  Shape out() const { return {B, T, heads * D}; }
};

// Calls body() with each variant of both slots on the device that supports tensors of this type forced in turn.
template <class Body>
void for_attention_variants(Device device, const AttentionCase& size, DType dtype, const Body& body) {
  for (const VariantBase* v = causal_attention_forward.variants(); v; v = v->next) {
    if (v->device != device) continue;
    causal_attention_forward.force(v->name);
    causal_attention_backward.force(v->name);
    const Tensor qkv = Tensor::empty(size.in(), dtype, device);
    Tensor log_sums = Tensor::empty({size.B, size.heads, size.T}, DType::f32, device);
    Tensor y = Tensor::empty(size.out(), dtype, device);
    if (causal_attention_forward.variant_for({qkv, size.heads, log_sums, y})) {
      INFO(std::string(v->name), " ", std::string(name(dtype)));
      body();
    }
    causal_attention_forward.force(nullptr);
    causal_attention_backward.force(nullptr);
  }
}

inline std::vector<float> attention_numbers(const Shape& shape, uint32_t which) {
  return random_tensor(shape, which).to_vector<float>();
}

inline Tensor attention_tensor(const std::vector<float>& values, const Shape& shape, DType dtype, Device device) {
  return cast(Tensor::from(values, shape), dtype).to(device);
}

// Output before token t keeps its bits if qkv changes from t on; output at t does not.
inline void check_causality(Device device, const AttentionCase& size, DType dtype, const std::vector<int64_t>& tokens) {
  const std::vector<float> before = attention_numbers(size.in(), 1);
  const int64_t row = 3 * size.heads * size.D, out_row = size.heads * size.D;
  for_attention_variants(device, size, dtype, [&] {
    const auto run = [&](const std::vector<float>& qkv) {
      return to_numbers(causal_attention(attention_tensor(qkv, size.in(), dtype, device), size.heads).to(Device::cpu));
    };
    const Numbers expected = run(before);
    for (const int64_t t : tokens) {
      CAPTURE(t);
      std::vector<float> changed = before;
      for (int64_t i = t * row; i < size.T * row; ++i) changed[i] = 30 - 7 * changed[i];
      const Numbers got = run(changed);
      bool same = true, differs = false;
      for (int64_t i = 0; i < t * out_row; ++i) same = same && got[i] == expected[i];
      for (int64_t i = t * out_row; i < (t + 1) * out_row; ++i) differs = differs || got[i] != expected[i];
      CHECK(same);
      CHECK(differs);
    }
  });
}

// The largest magnitude in dq and in dk, where all keys (part 1) or all values (part 2) of a sequence are equal.
inline std::vector<double> gradients_with_equal(int64_t part, Device device, const AttentionCase& size, DType dtype) {
  const int64_t C = size.heads * size.D;
  std::vector<float> values = attention_numbers(size.in(), 2);
  for (int64_t n = 0; n < size.B * size.T; ++n) {
    const int64_t first = n / size.T * size.T;  // of the sequence
    for (int64_t c = 0; c < C; ++c) values[(n * 3 + part) * C + c] = values[(first * 3 + part) * C + c];
  }
  Tensor qkv = attention_tensor(values, size.in(), DType::f32, device);
  qkv.set_requires_grad(true);
  backward(causal_attention(cast(qkv, dtype), size.heads),
           attention_tensor(attention_numbers(size.out(), 3), size.out(), dtype, device));
  const Numbers d = to_numbers(qkv.grad().to(Device::cpu));
  std::vector<double> largest(3);
  for (size_t i = 0; i < d.size(); ++i) {
    double& now = largest[i / static_cast<size_t>(C) % 3];
    now = std::fabs(d[i]) > now || std::isnan(d[i]) ? std::fabs(d[i]) : now;
  }
  return largest;
}

// With equal keys dq is dS's row sums times the key: they are 0. With equal values dP is the same for all keys of a
// query, so dS is 0, and with it dq and dk. Up to rounding: a row's terms are of size one.
inline void check_invariants(Device device, const AttentionCase& size, DType dtype) {
  for_attention_variants(device, size, dtype, [&] {
    const auto equal_keys = gradients_with_equal(1, device, size, dtype);
    const auto equal_values = gradients_with_equal(2, device, size, dtype);
    CHECK(equal_keys[0] < 2e-6);
    CHECK(equal_keys[1] > 0.01);
    CHECK(equal_keys[2] > 0.01);
    CHECK(equal_values[0] < 2e-6);
    CHECK(equal_values[1] < 2e-6);
    CHECK(equal_values[2] > 0.01);
  });
}

}  // namespace hs::test
