#include "docs/exercises/02/exercise.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

namespace exercise {

namespace {

// The piece decides the order of additions, so its size must not depend on the number of threads.
constexpr int64_t piece = 4096;

}  // namespace

float parallel_sum(const float* values, int64_t size, int threads) {
  const int64_t pieces = (size + piece - 1) / piece;
  std::vector<float> sums(static_cast<size_t>(pieces));
  {
    std::vector<std::jthread> team;
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([=, &sums] {
        for (int64_t p = t; p < pieces; p += threads) {  // any division of the pieces will do
          const float* begin = values + p * piece;
          sums[static_cast<size_t>(p)] = std::accumulate(begin, begin + std::min(piece, size - p * piece), 0.0f);
        }
      });
    }
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0f);
}

}  // namespace exercise
