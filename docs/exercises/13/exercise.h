// Exercise 13, of docs/chapters/14_data_parallel.md: two all-reduces after which all ranks have the same bits. Edit
// exercise.cpp beside this file, then run tests/exercise 13.
#pragma once

#include <functional>
#include <vector>

namespace exercise {

using Message = std::vector<float>;

// What a rank has to talk to the others; each rank runs on a thread of its own. Messages from one rank to another
// arrive in the order in which they were sent. send() never waits; receive() waits, and throws if nothing comes.
struct Rank {
  int rank, size;
  std::function<void(int to, Message)> send;
  std::function<Message(int from)> receive;
};

// Both replace `values` by the sum over all ranks, in f32, with the same bits on every rank. All ranks pass equally
// many values, also fewer than there are ranks, or none. No rank sends to itself; a rank that is alone sends nothing.

// For large messages. values is cut into `size` pieces as equal as possible: piece i begins at i * n / size. A rank
// sends only to the next one, 2 (size - 1) messages of one piece each. In the first size - 1, the sum of each piece
// goes around once and grows; in the others, the complete sums go around.
void ring(const Rank& rank, std::vector<float>& values);

// For small messages. With 2^k ranks, k rounds: in round i a rank exchanges everything it has with the rank whose
// number differs in bit i. Any other number of ranks: those from 2^k on, 2^k being the largest power of two in size,
// first send their values to rank - 2^k and at the end receive the result from it.
void doubling(const Rank& rank, std::vector<float>& values);

}  // namespace exercise
