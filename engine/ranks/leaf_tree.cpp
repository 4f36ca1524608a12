#include "engine/ranks/leaf_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace hs {

LeafRange leaves_of(int64_t leaves, int ranks, int rank) {
  const int64_t working = std::min<int64_t>(leaves, ranks);
  if (rank >= working) return {leaves, leaves};
  return {leaves * rank / working, leaves * (rank + 1) / working};
}

int LeafCounter::add() {
  TreeNode sum = {0, next_++};
  int added = 0;
  // A right child follows its left sibling.
  while (!kept_.empty() && sum.index % 2 == 1 && kept_.back() == TreeNode{sum.level, sum.index - 1}) {
    kept_.pop_back();
    sum = {sum.level + 1, sum.index / 2};
    ++added;
  }
  kept_.push_back(sum);
  return added;
}

namespace {

// Builds the plan of one rank, level by level.
class Planner {
 public:
  Planner(int64_t leaves, int ranks, int rank)
      : leaves_(leaves), working_(static_cast<int>(std::min<int64_t>(leaves, ranks))), ranks_(ranks), rank_(rank) {}

  ReducePlan plan() {
    if (rank_ >= working_) {  // has no leaves: gets the result
      plan_.rounds.push_back({.sends = {}, .receives = {{(rank_ - working_) % working_, 0, true}}, .adds = {}});
      return plan_;
    }
    const LeafRange own = leaves_of(leaves_, ranks_, rank_);
    LeafCounter counter(own.begin);
    for (int64_t leaf = own.begin; leaf + 1 < own.end; ++leaf) counter.add();
    pending_.push_back({{0, own.end - 1}, 0});
    for (const TreeNode& node : counter.kept()) pending_.push_back({node, plan_.arrays++});
    plan_.kept = plan_.arrays - 1;
    for (int level = 1; int64_t{1} << (level - 1) < leaves_; ++level) add_level(level);
    ReducePlan::Round last;
    for (int other = working_ + rank_; other < ranks_; other += working_) last.sends.push_back({other, 0, true});
    add(last);
    const int64_t each = leaves_ / ranks_;
    if (ranks_ >= 4 && leaves_ % ranks_ == 0 && is_power_of_two(ranks_) && is_power_of_two(each)) add_halving();
    return plan_;
  }

 private:
  static bool is_power_of_two(int64_t number) { return std::has_single_bit(static_cast<uint64_t>(number)); }

  // REQUIRES: this rank's leaves are a subtree, whose sum the rounds without messages leave in arrays[0]
  void add_halving() {
    const auto is_own = [](const ReducePlan::Round& round) { return round.receives.empty(); };
    const auto crossing = std::ranges::find_if_not(plan_.rounds, is_own);
    plan_.halving.assign(plan_.rounds.begin(), crossing);
    const int received = plan_.rounds.back().receives[0].array;
    ReducePlan::Part own = {0, ranks_, ranks_};  // what this rank continues to add
    std::vector<ReducePlan::Round> collecting;
    for (int distance = 1; distance < ranks_; distance *= 2) {
      const int partner = rank_ ^ distance, middle = (own.begin + own.end) / 2;
      ReducePlan::Part kept = {own.begin, middle, ranks_}, given = {middle, own.end, ranks_};
      if (rank_ > partner) std::swap(kept, given);
      plan_.halving.push_back({.sends = {{partner, 0, false, given}},
                               .receives = {{partner, received, false, kept}},
                               .adds = {{0, received, true, kept}}});
      collecting.push_back({.sends = {{partner, 0, true, kept}}, .receives = {{partner, 0, true, given}}, .adds = {}});
      own = kept;
    }
    plan_.halving.insert(plan_.halving.end(), collecting.rbegin(), collecting.rend());
  }

  struct Pending {
    TreeNode node;
    int array;
  };

  void add_level(int level) {
    std::vector<int64_t> parents;
    for (const Pending& pending : pending_) {
      if (pending.node.level == level - 1) parents.push_back(pending.node.index / 2);
    }
    std::ranges::sort(parents);
    parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
    ReducePlan::Round round;
    for (const int64_t index : parents) add_node({level, index}, round);
    add(round);
  }

  void add_node(const TreeNode& node, ReducePlan::Round& round) {
    const TreeNode left = {node.level - 1, 2 * node.index}, right = {node.level - 1, 2 * node.index + 1};
    const int64_t half = int64_t{1} << left.level, middle = right.index * half;
    if (middle >= leaves_) {
      find(left)->node = node;
      return;
    }
    // The ranks with leaves of the left child, and of the right one. One rank may be in both.
    const int left_first = rank_of(left.index * half), left_last = rank_of(middle - 1);
    const int right_first = rank_of(middle), right_last = rank_of(std::min(middle + half, leaves_) - 1);
    exchange(right, {right_first, right_last}, left_first, right_first, round);
    exchange(left, {left_first, left_last}, left_last + 1, right_last + 1, round);
    const int a = find(left)->array, b = find(right)->array;
    round.adds.push_back({std::min(a, b), std::max(a, b), left_first != right_last});
    std::erase_if(pending_, [&](const Pending& pending) { return pending.node == left || pending.node == right; });
    pending_.push_back({node, std::min(a, b)});
  }

  // Ranks begin .. end-1 need the node; the ranks that have it, first .. last, take turns in sending it.
  void exchange(const TreeNode& node, std::pair<int, int> having, int begin, int end, ReducePlan::Round& round) {
    const auto [first, last] = having;
    const int count = last - first + 1;
    if (begin <= rank_ && rank_ < end) {
      if (free_.empty()) free_.push_back(plan_.arrays++);
      pending_.push_back({node, free_.back()});
      round.receives.push_back({first + (rank_ - begin) % count, free_.back()});
      free_.pop_back();
    }
    if (rank_ < first || rank_ > last) return;
    for (int other = begin + rank_ - first; other < end; other += count) {
      round.sends.push_back({other, find(node)->array});
    }
  }

  void add(const ReducePlan::Round& round) {
    for (const ReducePlan::Add& sum : round.adds) {
      if (sum.from > plan_.kept) free_.push_back(sum.from);  // not sooner: the round's messages come before its sums
    }
    if (!round.sends.empty() || !round.receives.empty() || !round.adds.empty()) plan_.rounds.push_back(round);
  }

  std::vector<Pending>::iterator find(const TreeNode& node) {
    return std::ranges::find(pending_, node, &Pending::node);
  }

  // The inverse of leaves_of().
  int rank_of(int64_t leaf) const { return static_cast<int>(((leaf + 1) * working_ - 1) / leaves_); }

  const int64_t leaves_;
  const int working_, ranks_, rank_;  // ranks with leaves, all of them, this one
  ReducePlan plan_;
  std::vector<Pending> pending_;
  std::vector<int> free_;  // arrays for received sums that are not in use
};

}  // namespace

ReducePlan reduce_plan(int64_t leaves, int ranks, int rank) { return Planner(leaves, ranks, rank).plan(); }

}  // namespace hs
