// The starter: waits for all gradients, and then sends each as a bucket of its own. Change it until tests/exercise 14
// is content.
#include "docs/exercises/14/exercise.h"

namespace exercise {

struct Buckets::State {
  std::vector<size_t> sizes;
  AllReduce all_reduce;
  std::vector<std::vector<float>> gradients;
};

Buckets::Buckets(std::vector<size_t> sizes, size_t /*capacity*/, AllReduce all_reduce)
    : state_(new State{std::move(sizes), std::move(all_reduce), {}}) {
  for (const size_t size : state_->sizes) state_->gradients.emplace_back(size);
}

Buckets::~Buckets() = default;

void Buckets::ready(size_t parameter, std::span<const float> gradient) {
  state_->gradients[parameter].assign(gradient.begin(), gradient.end());
}

std::vector<std::vector<float>> Buckets::wait() {
  for (size_t i = 0; i < state_->gradients.size(); ++i) state_->all_reduce(i, state_->gradients[i]);
  return state_->gradients;
}

}  // namespace exercise
