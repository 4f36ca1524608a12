// Models with checkpointed segments on the CUDA device: the same bits, and the plan's peak.
#include "tests/support/checkpoint_models.h"

namespace hs::test {

TEST_CASE("losses, gradients and weights are the same bits for every kind of segments, in f32, f16 and bf16") {
  check_checkpointed_training(Device::cuda);
}

}  // namespace hs::test
