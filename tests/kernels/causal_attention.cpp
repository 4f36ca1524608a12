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

TEST_CASE("causal_attention: shapes that do not fit are refused with both numbers") {
  for (const int64_t heads : {0, -1, 4}) {
    const std::string message = error_of([&] { causal_attention(Tensor::zeros({2, 5, 18}, DType::f32), heads); });
    CHECK_MESSAGE(message.find(fmt::format("qkv is f32(2, 5, 18) and there are {} heads", heads)) != std::string::npos,
                  message);
  }
  CHECK_THROWS_AS(causal_attention(Tensor::zeros({5, 18}, DType::f32), 3), Error);
}

}  // namespace hs::test
