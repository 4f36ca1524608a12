// The starter: each thread adds up its own share of the values. Change it until tests/exercise 02 is content.
#include "docs/exercises/02/exercise.h"

#include <numeric>
#include <thread>
#include <vector>

namespace exercise {

float parallel_sum(const float* values, int64_t size, int threads) {
  std::vector<float> shares(static_cast<size_t>(threads));
  {
    std::vector<std::jthread> team;
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([=, &shares] {
        const int64_t begin = size * t / threads, end = size * (t + 1) / threads;
        shares[static_cast<size_t>(t)] = std::accumulate(values + begin, values + end, 0.0f);
      });
    }
  }  // joins them
  return std::accumulate(shares.begin(), shares.end(), 0.0f);
}

}  // namespace exercise
