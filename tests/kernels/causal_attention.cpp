// causal_attention beyond the op table: no output depends on a later token, not even in its last bit; what gradients
// must be whatever the numbers are; what it refuses.
#include <fmt/format.h>

#include "tests/support/attention_checks.h"
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

constexpr AttentionCase cases[] = {{1, 130, 2, 32}, {2, 67, 1, 20}};

}  // namespace

TEST_CASE("causal_attention: what comes later changes no bit of an output") {
  for (const AttentionCase& size : cases) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      std::vector<int64_t> tokens;
      for (const int64_t t : {1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 66, 127, 128, 129}) {
        if (t < size.T) tokens.push_back(t);
      }
      check_causality(Device::cpu, {1, size.T, size.heads, size.D}, dtype, tokens);
    }
  }
}

TEST_CASE("causal_attention: rows of dS add up to zero, and equal values give dq = dk = 0") {
  for (const AttentionCase& size : cases) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) check_invariants(Device::cpu, size, dtype);
  }
}

// Their differences are exact, and sums of rounded products of them would not be.
TEST_CASE("causal_attention: scores of any finite size: the largest one has all of P, and its value is y") {
  const int64_t T = 70, D = 32;
  std::vector<float> values(static_cast<size_t>(T * 3 * D));  // the first key has the largest score, by far
  for (int64_t t = 0; t < T; ++t) {
    float* row = values.data() + t * 3 * D;
    for (int64_t d = 0; d < D; ++d) row[d] = 65504, row[D + d] = 65504.0f - 32 * static_cast<float>(t + d % 3);
    for (int64_t d = 0; d < D; ++d) row[2 * D + d] = static_cast<float>(t + 1);
  }
  Tensor qkv = Tensor::from(values, {1, T, 3 * D});
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const double y : to_numbers(causal_attention(cast(qkv, dtype), 1))) CHECK(y == 1);
  }
  qkv.set_requires_grad(true);
  const Tensor y = causal_attention(qkv, 1);
  backward(y, Tensor::from(std::vector<float>(static_cast<size_t>(T * D), 1), y.shape()));
  CHECK(to_numbers(qkv.grad())[static_cast<size_t>(2 * D)] == T);
}

TEST_CASE("causal_attention: shapes that do not fit are refused with both numbers") {
  for (const int64_t heads : {0, -1, 4}) {
    const std::string message = error_of([&] { causal_attention(Tensor::zeros({2, 5, 18}, DType::f32), heads); });
    CHECK_MESSAGE(message.find(fmt::format("qkv is f32(2, 5, 18) and there are {} heads", heads)) != std::string::npos,
                  message);
  }
  CHECK_THROWS_AS(causal_attention(Tensor::zeros({5, 18}, DType::f32), 3), Error);
}

}  // namespace hs::test
