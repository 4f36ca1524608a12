// Exercise 21, of docs/chapters/13_checkpoint_and_resume.md: a run that was interrupted and resumed has the same bits
// as one that was not. Edit exercise.cpp beside this file, then run tests/exercise 21.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

namespace exercise {

// A training: all that the next steps depend on.
struct Training {
  std::vector<float> weights, momentum;
  std::vector<int32_t> order;  // the samples of this epoch, shuffled
  int64_t position = 0;        // in `order`, of the next sample
  uint64_t random = 1;         // the state of the generator
  double best_loss = std::numeric_limits<double>::infinity();

  uint64_t draw() { return random = random * 6364136223846793005u + 1442695040888963407u; }

  void step() {
    if (position == std::ssize(order)) {
      for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[draw() % (i + 1)]);
      position = 0;
    }
    const auto sample = static_cast<float>(order[static_cast<size_t>(position++)]);
    double loss = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const float noise = static_cast<float>(draw() >> 40) * 0x1p-24f, error = weights[i] - sample * noise;
      momentum[i] = 0.9f * momentum[i] + error;
      weights[i] -= 0.01f * momentum[i];
      loss += static_cast<double>(error) * error;
    }
    if (loss < best_loss) best_loss = loss;
  }
};

// Writes path + ".new", and then gives it the name `path`, so that `path` is at every moment the whole old state or the
// whole new one. Throws std::runtime_error if anything fails; `path` is then the old state. A ".new" that an earlier
// process has left behind does no harm.
void save(const Training& training, const std::filesystem::path& path);

// The state that was saved, with every bit: NaN, -0 and infinity as well. Throws std::runtime_error if there is no
// file, or if it is not exactly one that save() has written: cut off, longer, or with any bit changed.
Training load(const std::filesystem::path& path);

}  // namespace exercise
