// The order in which the gradients of a step's micro-batches are added. Micro-batches are the leaves of a balanced
// binary tree: node i of level k is the sum of leaves i * 2^k .. (i + 1) * 2^k - 1, its left child plus its right one.
//
//   level 3            a + b + ... + g
//   level 2      a + b + c + d       e + f + g       a node without a right child is its left child: a missing leaf is
//   level 1     a + b     c + d     e + f     g      passed over, not added as zero
//   level 0     a   b     c   d     e   f     g      leaves 0 .. 6
//
// The tree depends on the number of leaves alone. Who computes a leaf, and which processes exchange which sums, changes
// the time and not the bits, because a + b is b + a. (The same idea for likelihoods: Stelz, Huebner, Stamatakis,
// "Bit-reproducible phylogenetic tree inference under varying core-counts via reproducible parallel reduction",
// Bioinformatics, 2026.) Read next: engine/ranks/exchange.h, which carries out the plans of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace hs {

struct LeafRange {  // leaves begin .. end - 1
  int64_t begin, end;
  int64_t size() const { return end - begin; }  // number of leaves
};

// The leaves of a rank: neighbours, as many as of any other rank or one more or less. With fewer leaves than ranks the
// last ranks have none. Batches of an evaluation are divided so, too. REQUIRES: 0 <= rank < ranks
LeafRange leaves_of(int64_t leaves, int ranks, int rank);

struct TreeNode {  // leaves index * 2^level .. (index + 1) * 2^level - 1
  int level;
  int64_t index;
  bool operator==(const TreeNode&) const = default;
};

// A binary counter: the sums that a rank keeps while it computes its leaves one after another. There are at most as
// many as twice the levels of the tree.
class LeafCounter {
 public:
  explicit LeafCounter(int64_t first) : next_(first) {}  // first: the rank's first leaf
  // Takes the next leaf's gradient. Returns how many of the sums kept last to add to it, the last one first; the result
  // is then kept after the remaining ones.
  int add();
  const std::vector<TreeNode>& kept() const { return kept_; }  // the sums, those of the first leaves first

 private:
  int64_t next_;
  std::vector<TreeNode> kept_;
};

// What one rank does to turn its leaves into the sum of all: rounds, one after another. arrays[0] is the gradient of
// its last leaf, and the result; then the sums that LeafCounter has kept of the leaves before; then received ones.
struct ReducePlan {
  struct Part {  // of an array: from its element count * begin / of up to count * end / of
    int begin = 0, end = 1, of = 1;

    // The first element, and the one after the last, of an array of `count`.
    std::pair<size_t, size_t> elements(size_t count) const {
      const auto at = [&](int place) { return count * static_cast<size_t>(place) / static_cast<size_t>(of); };
      return {at(begin), at(end)};
    }
  };
  // One array, or a part of it, sent or received.
  struct Message {
    int rank;                // the other one
    int array;               // what is sent, or received into
    bool is_result = false;  // the sum of all
    Part part = {};          // which part of the array
  };
  // One addition.
  struct Add {
    int to, from;    // arrays[to] += arrays[from]
    bool crosses;    // the node's leaves are on several ranks
    Part part = {};  // which part of both arrays
  };
  struct Round {                           // the messages, at the same time, then the additions
    std::vector<Message> sends, receives;  // all at the same time
    std::vector<Add> adds;                 // after the messages, in this order
  };
  std::vector<Round> rounds;
  // The same sums with fewer bytes in more messages, for large arrays; empty if no such plan exists.
  std::vector<Round> halving;
  // How arrays of `count` floats are summed. Those of at least halving_bytes are split in half; -1 never splits.
  const std::vector<Round>& rounds_for(size_t count, int64_t halving_bytes) const {
    const bool halves = halving_bytes >= 0 && static_cast<int64_t>(count * sizeof(float)) >= halving_bytes;
    return halves && !halving.empty() ? halving : rounds;
  }
  int kept = 0;    // sums kept by the counter
  int arrays = 1;  // in all
};

// Two ranks exchange at most one message in each direction for each level. With a power of two of ranks and of leaves
// on each, this is recursive doubling: one message each way for each doubling of the ranks. From four such ranks on
// there is halving too (Rabenseifner, 2004): each partner adds one half of what both have left, so that in the end each
// rank has one part of the sum, and the parts are then collected in the reverse order. The partners are those of
// doubling, nearest first, hence the same tree. (Two ranks would send as many bytes, in two messages instead of one.)
ReducePlan reduce_plan(int64_t leaves, int ranks, int rank);

}  // namespace hs
