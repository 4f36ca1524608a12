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

// Where the part begins that rank r gets in this step: the one that its left neighbour has just finished.
size_t first_received(size_t r, size_t step, size_t p, size_t part) { return (r + 2 * p - 1 - step) % p * part; }

// REQUIRES: the size of an array is a multiple of the number of ranks
void ring_step(Ranks& ranks, size_t step) {
  const size_t p = ranks.size(), part = ranks[0].size() / p;
  const Ranks sent = ranks;
  for (size_t r = 0; r < p; ++r) {
    const size_t left = (r + p - 1) % p, first = first_received(r, step, p, part);
    for (size_t e = first; e < first + part; ++e) {
      ranks[r][e] = step < p - 1 ? sent[left][e] + ranks[r][e] : sent[left][e];
    }
  }
}

void ring(Ranks& ranks, Cost& cost) {
  for (size_t step = 0; step < 2 * (ranks.size() - 1); ++step) {
    cost.send(ranks[0].size() / ranks.size());
    ring_step(ranks, step);
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

// Four parts of one number. Rank r brings 10^r, so the digits of a sum say whose shares are in it.
void show_ring() {
  Ranks ranks = {Array(4, 1), Array(4, 10), Array(4, 100), Array(4, 1000)};
  std::printf("ranks 0, 1, 2 and 3; < has just come from the left, to rank 0 from rank 3\n");
  for (size_t step = 0; step < 6; ++step) {
    ring_step(ranks, step);
    std::printf("step %zu", step);
    for (size_t i = 0; i < 16; ++i) {
      const size_t r = i / 4, e = i % 4;
      std::printf("%s%04.0f%c", e == 0 ? "    " : "", ranks[r][e], e == first_received(r, step, 4, 1) ? '<' : ' ');
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) show_ring();  // --show
  Ranks a = some_arrays(8, 64), b = a, c = a;
  Cost of_a, of_b, of_c;
  doubling(a, of_a), halving(b, of_b), ring(c, of_c);
  std::printf("8 ranks, 64 numbers:  doubling %d messages of %zu numbers together, halving %d of %zu, ring %d of %zu\n",
              of_a.messages, of_a.numbers, of_b.messages, of_b.numbers, of_c.messages, of_c.numbers);
  const bool agree = a == Ranks(8, a[0]) && b == Ranks(8, b[0]) && c == Ranks(8, c[0]);
  std::printf("all ranks agree: %d; halving has the bits of doubling: %d; a ring has: %d\n", agree, a == b, a == c);
  return agree && a == b && a != c && of_b.numbers == of_c.numbers && of_b.messages < of_c.messages ? 0 : 1;
}
