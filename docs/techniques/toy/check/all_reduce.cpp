// The toy's doubling and halving have the bits of the engine's plans, carried out on the same arrays.
#define main main_of_all_reduce
#include "docs/techniques/toy/all_reduce.cpp"
#undef main

#include <doctest/doctest.h>

#include "engine/ranks/leaf_tree.h"

namespace {

// Carries out the plans of all ranks, one leaf each, by halving or not. Round i of one meets round i of another.
Ranks by_plans(const Ranks& ranks, bool halves) {
  const int p = static_cast<int>(ranks.size());
  std::vector<hs::ReducePlan> plans;
  std::vector<Ranks> arrays;
  for (int r = 0; r < p; ++r) {
    plans.push_back(hs::reduce_plan(p, p, r));
    arrays.emplace_back(plans.back().arrays, Array(ranks[0].size()));
    arrays.back()[0] = ranks[r];
  }
  const auto rounds = [&](int r) -> const std::vector<hs::ReducePlan::Round>& {
    return halves ? plans[r].halving : plans[r].rounds;
  };
  for (size_t i = 0; i < rounds(0).size(); ++i) {
    const std::vector<Ranks> before = arrays;
    for (int r = 0; r < p; ++r) {
      for (const auto& message : rounds(r)[i].receives) {
        for (const auto& sent : rounds(message.rank)[i].sends) {
          if (sent.rank != r) continue;
          const auto [begin, end] = message.part.elements(ranks[0].size());
          for (size_t e = begin; e < end; ++e) arrays[r][message.array][e] = before[message.rank][sent.array][e];
        }
      }
      for (const auto& add : rounds(r)[i].adds) {
        const auto [begin, end] = add.part.elements(ranks[0].size());
        for (size_t e = begin; e < end; ++e) arrays[r][add.to][e] += arrays[r][add.from][e];
      }
    }
  }
  Ranks results;
  for (const Ranks& own : arrays) results.push_back(own[0]);
  return results;
}

}  // namespace

TEST_CASE("toy: all-reduce") {
  for (const size_t p : {4, 8, 16}) {
    Ranks a = some_arrays(p, 32 * p), b = a, c = a;
    const Ranks plain = by_plans(a, false), halves = by_plans(a, true);
    Cost cost;
    doubling(a, cost), halving(b, cost), ring(c, cost);
    CHECK(a == plain);
    CHECK(b == halves);
    CHECK(a == b);
    CHECK(c != a);
  }
  CHECK(main_of_all_reduce(2, nullptr) == 0);
}
