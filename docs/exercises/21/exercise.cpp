// The starter: writes over the old file, as text, what came to mind. Change it until tests/exercise 21 is content.
#include "docs/exercises/21/exercise.h"

#include <fstream>
#include <stdexcept>

namespace exercise {

void save(const Training& training, const std::filesystem::path& path) {
  std::ofstream file(path);
  file << training.random << ' ' << training.weights.size() << ' ' << training.order.size();
  for (const float value : training.weights) file << ' ' << value;
  for (const int32_t sample : training.order) file << ' ' << sample;
}

Training load(const std::filesystem::path& path) {
  std::ifstream file(path);
  Training training;
  size_t weights = 0, samples = 0;
  file >> training.random >> weights >> samples;
  if (!file || weights > 1000 || samples > 1000) throw std::runtime_error(path.string() + ": no saved training");
  training.weights.resize(weights);
  training.momentum.resize(weights);
  training.order.resize(samples);
  for (float& value : training.weights) file >> value;
  for (int32_t& sample : training.order) file >> sample;
  return training;
}

}  // namespace exercise
