#include "docs/exercises/04/exercise.h"

#include <algorithm>
#include <numeric>

namespace exercise {

std::vector<size_t> place(const std::vector<Lifetime>& tensors) {
  std::vector<size_t> order(tensors.size()), offsets(tensors.size()), placed;
  std::iota(order.begin(), order.end(), size_t{0});
  // Large ones first: they are the hardest to fit in, and small ones fill the gaps that they leave.
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return tensors[i].bytes; });
  for (const size_t i : order) {
    const auto meets = [&](size_t j) { return tensors[i].begin < tensors[j].end && tensors[j].begin < tensors[i].end; };
    // The lowest gap between those that are alive at the same time.
    size_t offset = 0;
    for (const size_t j : placed) {  // by offset
      if (!meets(j)) continue;
      if (offset + tensors[i].bytes <= offsets[j]) break;
      offset = std::max(offset, offsets[j] + tensors[j].bytes);
    }
    offsets[i] = offset;
    const auto behind = std::ranges::upper_bound(placed, offset, {}, [&](size_t j) { return offsets[j]; });
    placed.insert(behind, i);
  }
  return offsets;
}

}  // namespace exercise
