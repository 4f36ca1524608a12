// Three all-reduces over p ranks: each has an array of n numbers, and all need the sum. Ranks are simulated.
//
//   doubling  rank r exchanges the whole array with r xor 1, r xor 2, r xor 4, ...: log2(p) messages of n
//   halving   the same partners, but each adds one half of what both have left and gives the other away; the parts are
//             then collected in the reverse order: 2 log2(p) messages, 2 n (p - 1) / p numbers
//   ring      part i travels around the ring and takes on every rank's share, then travels again: 2 (p - 1) messages,
//             2 n (p - 1) / p numbers
//
// Doubling and halving add every element by the tree (a + b) + (c + d): the same bits. The ring begins each part at
// another rank, from the left: other bits, which change with p.
#include <cstdio>
#include <vector>

namespace {

using Array = std::vector<float>;
using Ranks = std::vector<Array>;  // the arrays of all ranks

struct Cost {
  int messages = 0;  // that rank 0 sends
  size_t numbers = 0;
  void send(size_t count) { ++messages, numbers += count; }
};

// Element e of both partners becomes their sum. a + b is b + a, so both compute the same bits.
void doubling(Ranks& ranks, Cost& cost) {
  for (size_t distance = 1; distance < ranks.size(); distance *= 2) {
    const Ranks sent = ranks;
    cost.send(ranks[0].size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      for (size_t e = 0; e < ranks[r].size(); ++e) ranks[r][e] += sent[r ^ distance][e];
    }
  }
}

// REQUIRES: the size of an array is a multiple of the number of ranks, a power of two
void halving(Ranks& ranks, Cost& cost) {
  const size_t p = ranks.size(), n = ranks[0].size();
  std::vector<size_t> begin(p, 0);  // of what a rank continues to add: `left` numbers
  size_t left = n;
  for (size_t distance = 1; distance < p; distance *= 2) {
    const Ranks sent = ranks;
    left /= 2;
    cost.send(left);
    for (size_t r = 0; r < p; ++r) {
      if (r & distance) begin[r] += left;  // the upper of the partners keeps the upper half
      for (size_t e = begin[r]; e < begin[r] + left; ++e) ranks[r][e] += sent[r ^ distance][e];
    }
  }
  for (size_t distance = p / 2; distance > 0; distance /= 2) {  // collect
    const Ranks sent = ranks;
    cost.send(left);
    for (size_t r = 0; r < p; ++r) {
      const size_t from = r & distance ? begin[r] - left : begin[r] + left;  // the partner's part
      for (size_t e = from; e < from + left; ++e) ranks[r][e] = sent[r ^ distance][e];
    }
    for (size_t r = 0; r < p; ++r) begin[r] -= r & distance ? left : 0;
    left *= 2;
  }
}

// REQUIRES: the size of an array is a multiple of the number of ranks
void ring(Ranks& ranks, Cost& cost) {
  const size_t p = ranks.size(), part = ranks[0].size() / p;
  for (size_t step = 0; step < 2 * (p - 1); ++step) {
    const Ranks sent = ranks;
    cost.send(part);
    for (size_t r = 0; r < p; ++r) {  // from the left neighbour comes the part it has just finished
      const size_t left = (r + p - 1) % p, first = (left + 2 * p - step) % p * part;
      for (size_t e = first; e < first + part; ++e) {
        ranks[r][e] = step < p - 1 ? sent[left][e] + ranks[r][e] : sent[left][e];
      }
    }
  }
}

Ranks some_arrays(size_t p, size_t n) {
  Ranks ranks(p, Array(n));
  unsigned state = 1;
  for (Array& array : ranks) {
    for (float& x : array) x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  }
  return ranks;
}

}  // namespace

int main() {
  Ranks a = some_arrays(8, 64), b = a, c = a;
  Cost of_a, of_b, of_c;
  doubling(a, of_a), halving(b, of_b), ring(c, of_c);
  std::printf("8 ranks, 64 numbers:  doubling %d messages of %zu numbers together, halving %d of %zu, ring %d of %zu\n",
              of_a.messages, of_a.numbers, of_b.messages, of_b.numbers, of_c.messages, of_c.numbers);
  const bool agree = a == Ranks(8, a[0]) && b == Ranks(8, b[0]) && c == Ranks(8, c[0]);
  std::printf("all ranks agree: %d; halving has the bits of doubling: %d; a ring has: %d\n", agree, a == b, a == c);
  return agree && a == b && a != c && of_b.numbers == of_c.numbers && of_b.messages < of_c.messages ? 0 : 1;
}
