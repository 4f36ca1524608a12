// The starter: one after another, as if no tensor were ever freed. Change it until tests/exercise 04 is content.
#include "docs/exercises/04/exercise.h"

namespace exercise {

std::vector<size_t> place(const std::vector<Lifetime>& tensors) {
  std::vector<size_t> offsets;
  size_t end = 0;
  for (const Lifetime& tensor : tensors) {
    offsets.push_back(end);
    end += tensor.bytes;
  }
  return offsets;
}

}  // namespace exercise
