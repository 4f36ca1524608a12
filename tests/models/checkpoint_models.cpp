// Models with checkpointed segments on the CPU: the same bits, the plan's peak, nothing computed more often than
// needed.
#include "tests/support/checkpoint_models.h"

namespace hs::test {

TEST_CASE("losses, gradients and weights are the same bits for every kind of segments, in f32, f16 and bf16") {
  check_checkpointed_training(Device::cpu);
}

TEST_CASE("a stage in a segment runs once more, and no other stage does") {
  const auto calls = [](const CheckpointOutcome& outcome, const std::string& slot) {
    const auto found = outcome.kernels.find(slot);
    return found == outcome.kernels.end() ? 0 : found->second;
  };
  const CheckpointOutcome off = train_checkpointed(Device::cpu, Precision::f32, fixed_plan({}));
  CHECK(calls(off, "conv2d_forward") == 2);
  CHECK(calls(off, "max_pool2d_forward") == 1);
  const std::vector<std::vector<Segment>> plans = {
      {{0, 1}}, {{1, 2}}, {{2, 3}}, {{0, 5}}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}, {{0, 2}, {2, 4}}};
  for (const auto& segments : plans) {
    const CheckpointPlanCase plan = fixed_plan(segments);
    CAPTURE(plan.name);
    const CheckpointOutcome on = train_checkpointed(Device::cpu, Precision::f32, plan);
    const auto again = [&](size_t stage) {
      int count = 0;
      for (const Segment& s : segments) count += s.begin <= stage && stage < s.end;
      return count;
    };
    CHECK(calls(on, "conv2d_forward") == 2 + again(0) + again(1));
    CHECK(calls(on, "max_pool2d_forward") == 1 + again(2));
    CHECK(calls(on, "dropout_mask") == calls(off, "dropout_mask") + again(0) + again(2) + again(3));
    CHECK(calls(on, "conv2d_backward") == 2);
  }
}

}  // namespace hs::test
