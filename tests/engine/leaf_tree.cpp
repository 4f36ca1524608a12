// The order of sums over leaves: every rank's plan, carried out on text, gives the one tree.
#include "engine/ranks/leaf_tree.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hs::test {
namespace {

// The sum of leaves begin .. end-1 as the head of engine/ranks/leaf_tree.h defines it.
std::string tree(int64_t begin, int64_t end, int64_t leaves) {
  if (end - begin == 1) return std::to_string(begin);
  const int64_t middle = (begin + end) / 2;
  if (middle >= leaves) return tree(begin, middle, leaves);
  return fmt::format("({}+{})", tree(begin, middle, leaves), tree(middle, end, leaves));
}

std::string whole_tree(int64_t leaves) {
  int64_t end = 1;
  while (end < leaves) end *= 2;
  return tree(0, end, leaves);
}

int64_t first_leaf(const std::string& sum) { return std::stoll(sum.substr(sum.find_first_not_of('('))); }

// Addition, which commutes: the operand with the smaller leaves is written first.
std::string plus(const std::string& a, const std::string& b) {
  return first_leaf(a) < first_leaf(b) ? fmt::format("({}+{})", a, b) : fmt::format("({}+{})", b, a);
}

// Elements of an array, as many as there are ranks.
using Array = std::vector<std::string>;

// One rank: its arrays, and how far it is in its plan.
struct Rank {
  ReducePlan plan;
  std::vector<ReducePlan::Round> rounds;
  std::vector<Array> arrays;
  size_t round = 0;
  bool sent = false;

  std::span<std::string> elements(int array, const ReducePlan::Part& part) {
    Array& all = arrays[static_cast<size_t>(array)];
    const auto at = [&](int place) { return all.size() * static_cast<size_t>(place) / static_cast<size_t>(part.of); };
    return std::span(all).subspan(at(part.begin), at(part.end) - at(part.begin));
  }
};

Rank start(int64_t leaves, int ranks, int rank, bool halves) {
  Rank r{reduce_plan(leaves, ranks, rank), {}, {}};
  r.rounds = halves ? r.plan.halving : r.plan.rounds;
  const auto elements = static_cast<size_t>(ranks);
  r.arrays.resize(static_cast<size_t>(r.plan.arrays), Array(elements));
  const LeafRange own = leaves_of(leaves, ranks, rank);
  if (own.size() == 0) return r;
  LeafCounter counter(own.begin);
  std::vector<std::string> kept;
  for (int64_t leaf = own.begin; leaf + 1 < own.end; ++leaf) {
    std::string sum = std::to_string(leaf);
    for (int left = counter.add(); left > 0; --left) {
      sum = plus(sum, kept.back());
      kept.pop_back();
    }
    kept.push_back(sum);
    REQUIRE(kept.size() == counter.kept().size());
  }
  REQUIRE(static_cast<int>(kept.size()) == r.plan.kept);
  r.arrays[0] = Array(elements, std::to_string(own.end - 1));
  for (size_t i = 0; i < kept.size(); ++i) r.arrays[i + 1] = Array(elements, kept[i]);
  return r;
}

struct Outcome {
  std::vector<Array> results;
  size_t max_messages = 0, max_elements = 0;  // that one rank receives
};

// Ranks take turns until none can go on. Messages of a pair arrive in order.
Outcome run(int64_t leaves, int ranks, bool halves = false) {
  std::vector<Rank> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(start(leaves, ranks, rank, halves));
  std::map<std::pair<int, int>, std::deque<Array>> wire;
  std::vector<size_t> received(static_cast<size_t>(ranks)), elements(received);
  for (bool any = true; any;) {
    any = false;
    for (int rank = 0; rank < ranks; ++rank) {
      Rank& r = all[static_cast<size_t>(rank)];
      if (r.round == r.rounds.size()) continue;
      const ReducePlan::Round& round = r.rounds[r.round];
      if (!std::exchange(r.sent, true)) {
        for (const auto& message : round.sends) {
          const auto sent = r.elements(message.array, message.part);
          wire[{rank, message.rank}].push_back({sent.begin(), sent.end()});
        }
        any = true;
      }
      bool complete = true;
      for (const auto& message : round.receives) complete = complete && !wire[{message.rank, rank}].empty();
      if (!complete) continue;
      for (const auto& message : round.receives) {
        auto& queue = wire[{message.rank, rank}];
        const auto to = r.elements(message.array, message.part);
        REQUIRE(queue.front().size() == to.size());
        std::ranges::copy(queue.front(), to.begin());
        queue.pop_front();
        ++received[static_cast<size_t>(rank)];
        elements[static_cast<size_t>(rank)] += to.size();
      }
      for (const auto& add : round.adds) {
        const auto to = r.elements(add.to, add.part), from = r.elements(add.from, add.part);
        for (size_t i = 0; i < to.size(); ++i) {
          to[i] = plus(to[i], from[i]);
          from[i].clear();  // which no plan may use again
        }
      }
      ++r.round;
      r.sent = false;
      any = true;
    }
  }
  Outcome outcome;
  for (const Rank& r : all) {
    REQUIRE(r.round == r.rounds.size());
    outcome.results.push_back(r.arrays[0]);
  }
  for (const auto& [pair, queue] : wire) REQUIRE(queue.empty());
  outcome.max_messages = std::ranges::max(received);
  outcome.max_elements = std::ranges::max(elements);
  return outcome;
}

}  // namespace

TEST_CASE("the tree of seven leaves is that of the header's picture") {
  CHECK(whole_tree(7) == "(((0+1)+(2+3))+((4+5)+6))");
  CHECK(whole_tree(1) == "0");
}

TEST_CASE("each leaf is on one rank, in order, and ranks differ by one leaf at most") {
  for (int64_t leaves = 1; leaves <= 70; ++leaves) {
    for (int ranks = 1; ranks <= 20; ++ranks) {
      int64_t next = 0, most = 0, least = leaves;
      for (int rank = 0; rank < ranks; ++rank) {
        const LeafRange own = leaves_of(leaves, ranks, rank);
        CHECK(own.begin == next);
        next = own.end;
        most = std::max(most, own.size());
        least = std::min(least, own.size());
      }
      CHECK(next == leaves);
      CHECK(most - least <= 1);
    }
  }
}

TEST_CASE("every number of leaves on every number of ranks gives the same sum on every rank") {
  for (int64_t leaves = 1; leaves <= 40; ++leaves) {
    const std::string expected = whole_tree(leaves);
    for (int ranks = 1; ranks <= 18; ++ranks) {
      CAPTURE(leaves);
      CAPTURE(ranks);
      for (const Array& result : run(leaves, ranks).results) CHECK(result == Array(result.size(), expected));
    }
  }
}

TEST_CASE("halving: the same sum, in parts, on four ranks and more if each has a subtree of the same size") {
  for (int ranks = 1; ranks <= 18; ++ranks) {
    for (int64_t leaves = 1; leaves <= 70; ++leaves) {
      CAPTURE(leaves);
      CAPTURE(ranks);
      const bool can = ranks >= 4 && std::has_single_bit(static_cast<unsigned>(ranks)) && leaves >= ranks &&
                       std::has_single_bit(static_cast<uint64_t>(leaves));
      for (int rank = 0; rank < ranks; ++rank) CHECK(reduce_plan(leaves, ranks, rank).halving.empty() == !can);
      if (!can) continue;
      const Outcome outcome = run(leaves, ranks, true);
      const Array expected(static_cast<size_t>(ranks), whole_tree(leaves));
      for (const Array& result : outcome.results) CHECK(result == expected);
      const auto p = static_cast<size_t>(ranks), doublings = static_cast<size_t>(std::bit_width(p) - 1);
      CHECK(outcome.max_messages == 2 * doublings);
      CHECK(outcome.max_elements == 2 * (p - 1));  // of p: each part comes once to be added, and once as a sum
    }
  }
}

TEST_CASE("powers of two need one message for each doubling of the ranks; three ranks a few more") {
  for (int doublings = 0; doublings <= 4; ++doublings) {
    for (int64_t leaves = int64_t{1} << doublings; leaves <= 64; leaves *= 2) {
      CHECK(run(leaves, 1 << doublings).max_messages == static_cast<size_t>(doublings));
    }
  }
  CHECK(run(8, 3).max_messages <= 4);
}

}  // namespace hs::test
