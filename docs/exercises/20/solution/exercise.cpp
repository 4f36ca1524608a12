#include "docs/exercises/20/exercise.h"

#include <algorithm>
#include <limits>

namespace exercise {
namespace {

constexpr int64_t impossible = std::numeric_limits<int64_t>::max();

// The cheapest way to have kept output `i` - 1 with `bytes` kept in all: entry [i][bytes]. Row 0: nothing is kept yet.
struct Entry {
  int64_t cost = impossible;
  size_t previous = 0;  // the row from which it came
};

}  // namespace

std::optional<Plan> best_plan(std::span<const Output> outputs, int64_t budget) {
  const size_t count = outputs.size();
  std::vector<std::vector<Entry>> best(count + 1, std::vector<Entry>(static_cast<size_t>(budget) + 1));
  best[0][0].cost = 0;
  Plan plan{std::vector<bool>(count), 0, impossible};
  size_t last = 0;
  int64_t last_bytes = 0;
  for (size_t row = 0; row <= count; ++row) {
    for (int64_t kept = 0; kept <= budget; ++kept) {
      const int64_t cost = best[row][static_cast<size_t>(kept)].cost;
      if (cost == impossible) continue;
      // The run that begins with output `row`, longer and longer, and the kept output that ends it.
      int64_t run = 0, run_cost = 0;
      for (size_t next = row; kept + run <= budget; ++next) {
        if (next == count) {
          if (cost + run_cost < plan.cost) plan.cost = cost + run_cost, last = row, last_bytes = kept;
          break;
        }
        if (const int64_t bytes = kept + outputs[next].bytes; bytes <= budget) {
          Entry& entry = best[next + 1][static_cast<size_t>(bytes)];
          if (cost + run_cost < entry.cost) entry = {cost + run_cost, row};
        }
        run += outputs[next].bytes;
        run_cost += outputs[next].cost;
      }
    }
  }
  if (plan.cost == impossible) return std::nullopt;
  while (last > 0) {
    plan.keep[last - 1] = true;
    const size_t previous = best[last][static_cast<size_t>(last_bytes)].previous;
    last_bytes -= outputs[last - 1].bytes;
    last = previous;
  }
  int64_t kept = 0, run = 0;
  for (size_t i = 0; i < count; ++i) {
    run = plan.keep[i] ? 0 : run + outputs[i].bytes;
    kept += plan.keep[i] ? outputs[i].bytes : 0;
    plan.peak = std::max(plan.peak, kept + run);
  }
  return plan;
}

}  // namespace exercise
