// causal_attention on the device: no output depends on a later token, not even in its last bit, nor on a NaN there;
// what gradients must be whatever the numbers are.
#include "tests/support/attention_checks.h"

namespace hs::test {
namespace {

constexpr AttentionCase cases[] = {{1, 67, 2, 20}, {1, 67, 2, 32}};  // the second for "mma", too

}  // namespace

TEST_CASE("causal_attention: what comes later changes no bit of an output") {
  for (const AttentionCase& size : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      check_causality(Device::cuda, size, dtype, {1, 7, 8, 9, 16, 31, 32, 33, 40, 63, 64, 65, 66});
    }
  }
}

TEST_CASE("causal_attention: rows of dS add up to zero, and equal values give dq = dk = 0") {
  for (const AttentionCase& size : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) check_invariants(Device::cuda, size, dtype);
  }
}

}  // namespace hs::test
