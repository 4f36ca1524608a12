#include "docs/exercises/13/exercise.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace exercise {
namespace {

void add(std::vector<float>& values, size_t begin, const Message& message) {
  for (size_t i = 0; i < message.size(); ++i) values[begin + i] += message[i];
}

}  // namespace

void ring(const Rank& rank, std::vector<float>& values) {
  const int size = rank.size, next = (rank.rank + 1) % size, previous = (rank.rank + size - 1) % size;
  const auto begin = [&](int piece) { return static_cast<size_t>(piece) * values.size() / static_cast<size_t>(size); };
  // In round i a rank sends piece rank - i and receives the piece before it, so what it receives now it sends next.
  const auto send = [&](int round) {
    const int piece = (rank.rank + 2 * size - round) % size;
    rank.send(next, {values.begin() + static_cast<std::ptrdiff_t>(begin(piece)),
                     values.begin() + static_cast<std::ptrdiff_t>(begin(piece + 1))});
  };
  for (int round = 0; round < size - 1; ++round) {
    send(round);
    add(values, begin((rank.rank + 2 * size - round - 1) % size), rank.receive(previous));
  }
  // Complete now: piece rank + 1. The sums are copied, not added again, so all ranks have the bits of one addition.
  for (int round = -1; round < size - 2; ++round) {
    send(round);
    const Message message = rank.receive(previous);
    std::ranges::copy(message,
                      values.begin() + static_cast<std::ptrdiff_t>(begin((rank.rank + 2 * size - round - 1) % size)));
  }
}

void doubling(const Rank& rank, std::vector<float>& values) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(rank.size)));
  if (rank.rank >= power) {
    rank.send(rank.rank - power, values);
    values = rank.receive(rank.rank - power);
    return;
  }
  const int left_over = rank.rank + power;
  if (left_over < rank.size) add(values, 0, rank.receive(left_over));
  for (int bit = 1; bit < power; bit *= 2) {
    rank.send(rank.rank ^ bit, values);
    add(values, 0, rank.receive(rank.rank ^ bit));  // a + b here, b + a there: the same bits
  }
  if (left_over < rank.size) rank.send(left_over, values);
}

}  // namespace exercise
