// The starter: everyone sends everything to everyone, and each adds what it gets to its own. Change it until
// tests/exercise 13 is content.
#include "docs/exercises/13/exercise.h"

#include <cstddef>

namespace exercise {

void ring(const Rank& rank, std::vector<float>& values) {
  for (int to = 0; to < rank.size; ++to) {
    if (to != rank.rank) rank.send(to, values);
  }
  for (int from = 0; from < rank.size; ++from) {
    if (from == rank.rank) continue;
    const Message message = rank.receive(from);
    for (size_t i = 0; i < values.size(); ++i) values[i] += message[i];
  }
}

void doubling(const Rank& rank, std::vector<float>& values) { ring(rank, values); }

}  // namespace exercise
