// Models with checkpointed segments on the CPU: the same bits, the plan's peak, nothing computed more often than
// needed.
#include "tests/support/checkpoint_models.h"

namespace hs::test {

TEST_CASE("losses, gradients and weights are the same bits for every kind of segments, in f32, f16 and bf16") {
  check_checkpointed_training(Device::cpu);
}

TEST_CASE("a stage in a segment runs once more, and not more often") { check_kernel_counts(Device::cpu); }

}  // namespace hs::test
