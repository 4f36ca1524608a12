// Exercise 4, of docs/chapters/01_tensors_and_memory.md: where tensors of a step go, if all of them share one block.
// Edit exercise.cpp beside this file, then run tests/exercise 04.
#pragma once

#include <cstddef>
#include <vector>

namespace exercise {

struct Lifetime {
  size_t bytes;
  int begin, end;  // alive from the moment `begin` to before `end`; begin < end
};

// An offset for each tensor, in the order given. Tensors that are alive at the same moment share no byte. The end of
// the last one is at most 30 % above the largest number of bytes that are alive at one moment, for steps like those of
// check.cpp.
std::vector<size_t> place(const std::vector<Lifetime>& tensors);

}  // namespace exercise
