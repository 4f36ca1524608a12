// Trainings in turns, A B C A B C: what disturbs the machine for a while disturbs all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hs::bench::measure {

// Calls run(row, turn) of each row in each turn, from 0; a row of which it returns false has no more turns.
// after(turn) ends a turn.
template <class Run, class After>
void in_turns(size_t rows, int64_t turns, const Run& run, const After& after) {
  std::vector<bool> ended(rows, false);
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (size_t row = 0; row < rows; ++row) {
      if (!ended[row]) ended[row] = !run(row, turn);
    }
    after(turn);
  }
}

}  // namespace hs::bench::measure
