// Random costs of a model's stages, for tests of plans: the same in every run.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/random.h"
#include "models/training/checkpoint_plan.h"

namespace hs::test {

// Draws whole numbers. `seed`: of the test, `which`: of its case.
struct Dice {
  uint64_t seed;
  uint32_t which;
  uint64_t count = 0;

  int64_t operator()(int64_t low, int64_t high) {
    const uint32_t bits = random_bits({seed, RandomPurpose::init, which, 0, 0}, count++);
    return low + static_cast<int64_t>(bits % static_cast<uint64_t>(high - low + 1));
  }
  template <class T>
  T of(const std::vector<T>& all) {
    return all[static_cast<size_t>((*this)(0, std::ssize(all) - 1))];
  }
};

// Stages in which nothing is like anything else; the first has an input of `input` bytes. The last one is the loss.
inline std::vector<StageCost> random_stages(Dice& dice, int64_t count, int64_t input) {
  std::vector<StageCost> stages;
  for (int64_t i = 0; i < count; ++i) {
    StageCost& stage = stages.emplace_back();
    stage.input = input;
    stage.output = input = dice(1, 60);
    stage.saved = dice(0, 90);
    stage.saves_input = dice(0, 1) == 1;
    stage.saves_output = dice(0, 1) == 1;
    stage.forward_peak = stage.saved + stage.output + dice(0, 30);
    stage.unrecorded_peak = stage.output + dice(0, 30);
    stage.backward_peak = dice(0, 80);
    stage.forward_ms = static_cast<double>(dice(1, 50));
    stage.backward_ms = static_cast<double>(dice(1, 100));
  }
  return stages;
}

}  // namespace hs::test
