// Sums over ranks, which are threads here: the same bits for every number of them and of leaves, whatever is late, and
// an end if one does not answer.
#include "engine/ranks/exchange.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "engine/float16.h"
#include "engine/random.h"
#include "tests/support/loopback.h"

namespace hs::test {
namespace {

using Values = std::vector<float>;

// Values whose sum depends on the order of additions.
float leaf_value(int64_t leaf, size_t i) {
  constexpr float hostile[] = {1e8f, 1, -1e8f, 1e-8f, -3, 0.1f, 7e7f};
  if (i % 3 == 0) return hostile[(static_cast<size_t>(leaf) + i) % 7];
  return 2 * to_unit_float(random_bits({5, RandomPurpose::init, static_cast<uint32_t>(leaf), 0, 0}, i)) - 1;
}

Values leaf_values(int64_t leaf, size_t count) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = leaf_value(leaf, i);
  return values;
}

void add(Values& to, const Values& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

// By the definition in engine/ranks/leaf_tree.h.
Values tree_sum(int64_t begin, int64_t end, int64_t leaves, size_t count) {
  if (end - begin == 1) return leaf_values(begin, count);
  const int64_t middle = (begin + end) / 2;
  Values sum = tree_sum(begin, middle, leaves, count);
  if (middle < leaves) add(sum, tree_sum(middle, end, leaves, count));
  return sum;
}
Values tree_sum(int64_t leaves, size_t count) {
  int64_t end = 1;
  while (end < leaves) end *= 2;
  return tree_sum(0, end, leaves, count);
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// What a rank has after its own leaves, array by array.
std::vector<Values> own_sums(int64_t leaves, int ranks, int rank, size_t count) {
  const LeafRange own = leaves_of(leaves, ranks, rank);
  std::vector<Values> kept;
  if (own.size() == 0) return {Values(count)};
  LeafCounter counter(own.begin);
  for (int64_t leaf = own.begin; leaf + 1 < own.end; ++leaf) {
    Values sum = leaf_values(leaf, count);
    for (int left = counter.add(); left > 0; --left) {
      add(sum, kept.back());
      kept.pop_back();
    }
    kept.push_back(sum);
    CHECK(kept.size() == counter.kept().size());
  }
  CHECK(static_cast<int>(kept.size()) == reduce_plan(leaves, ranks, rank).kept);
  kept.insert(kept.begin(), leaf_values(own.end - 1, count));
  return kept;
}

std::vector<float*> pointers_to(std::vector<Values>& arrays) {
  std::vector<float*> pointers;
  for (Values& array : arrays) pointers.push_back(array.data());
  return pointers;
}

// Several sums of different sizes, at once, `steps` times. Returns the results of the last step, by rank.
std::vector<std::vector<Values>> sums(int64_t leaves, int ranks, const ExchangeOptions& options, int max_delay_us,
                                      bool library = false) {
  const std::vector<size_t> sizes = {1, 300, 0, 17};
  Loopback hub(ranks, max_delay_us, static_cast<uint64_t>(leaves));
  std::vector<std::vector<Values>> results(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](int rank) {
    Exchange exchange([&] { return hub.open(rank); }, options);
    const ReducePlan plan = reduce_plan(leaves, ranks, rank);
    for (int step = 0; step < 2; ++step) {
      std::vector<std::vector<Values>> sets;
      for (const size_t size : sizes) sets.push_back(own_sums(leaves, ranks, rank, size));
      for (auto& arrays : sets) {
        if (library) {
          exchange.start_library(arrays[0].data(), arrays[0].size());
        } else {
          exchange.start(plan, pointers_to(arrays), arrays[0].size());
        }
      }
      CHECK(exchange.wait());
      results[static_cast<size_t>(rank)].clear();
      for (const auto& arrays : sets) results[static_cast<size_t>(rank)].push_back(arrays[0]);
    }
    const ExchangeSeconds seconds = exchange.seconds();
    CHECK(seconds.sums == 8);
    CHECK((seconds.bytes > 0) == (ranks > 1 && !library && leaves_of(leaves, ranks, rank).size() > 0));
  });
  return results;
}

}  // namespace

TEST_CASE("the tree of seven leaves is that of the picture in engine/ranks/leaf_tree.h") {
  const auto v = [](int64_t leaf) { return leaf_value(leaf, 0); };
  CHECK(tree_sum(7, 1)[0] == ((v(0) + v(1)) + (v(2) + v(3))) + ((v(4) + v(5)) + v(6)));
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

TEST_CASE("any number of ranks gives the tree's sum, bit for bit, whichever message is late") {
  for (const int64_t leaves : {1, 2, 3, 4, 5, 8, 13, 16}) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
      CAPTURE(leaves);
      CAPTURE(ranks);
      for (const auto& rank : sums(leaves, ranks, {}, 300)) {
        CHECK(same_bits(rank[0], tree_sum(leaves, 1)));
        CHECK(same_bits(rank[1], tree_sum(leaves, 300)));
        CHECK(same_bits(rank[3], tree_sum(leaves, 17)));
      }
    }
  }
}

TEST_CASE("an all-reduce in another order gives other bits on these values, and on every rank the same") {
  const auto results = sums(4, 4, {}, 0, true);
  for (const auto& rank : results) CHECK(same_bits(rank[1], results[0][1]));
  CHECK_FALSE(same_bits(results[0][1], tree_sum(4, 300)));
}

TEST_CASE("with 16 bits on the wire every rank has the same result, near the sum") {
  for (const int ranks : {2, 3, 4}) {
    const auto results = sums(6, ranks, {.wire = Wire::bf16}, 0);
    const Values exact = tree_sum(6, 300);
    for (const auto& rank : results) {
      CHECK(same_bits(rank[1], results[0][1]));
      for (size_t i = 1; i < exact.size(); i += 3) CHECK(std::fabs(rank[1][i] - exact[i]) <= 6 * 3 * 0x1p-9f);
    }
    CHECK_FALSE(same_bits(results[0][1], exact));
  }
  // Ranks without leaves get the sum as the others have it, as at the short end of an epoch.
  for (const int64_t leaves : {1, 2, 3}) {
    const auto results = sums(leaves, 5, {.wire = Wire::bf16}, 0);
    for (const auto& rank : results) CHECK(same_bits(rank[1], results[0][1]));
  }
  // A rank alone has nothing to send, so nothing is rounded.
  CHECK(same_bits(sums(6, 1, {.wire = Wire::bf16}, 0)[0][1], tree_sum(6, 300)));
}

// Every rank's result, and the bytes that all have sent, for arrays of `count` floats that are halved from
// `halving_bytes` on (-1: never).
void check_sum(int64_t leaves, int ranks, size_t count, int64_t halving_bytes, int max_delay_us = 0) {
  CAPTURE(leaves);
  CAPTURE(ranks);
  CAPTURE(count);
  Loopback hub(ranks, max_delay_us, count);
  const Values sum = tree_sum(leaves, count);
  std::vector<uint64_t> sent(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](int rank) {
    Exchange exchange([&] { return hub.open(rank); }, {.halving_bytes = halving_bytes});
    const ReducePlan plan = reduce_plan(leaves, ranks, rank);
    std::vector<Values> arrays = own_sums(leaves, ranks, rank, count);
    exchange.start(plan, pointers_to(arrays), count);
    CHECK(exchange.wait());
    CHECK(same_bits(arrays[0], sum));
    sent[static_cast<size_t>(rank)] = static_cast<uint64_t>(exchange.seconds().bytes);
  });
  const auto p = static_cast<uint64_t>(ranks), n = static_cast<uint64_t>(leaves);
  const auto all = std::accumulate(sent.begin(), sent.end(), uint64_t{0});
  const uint64_t bytes = count * sizeof(float), doublings = std::bit_width(p) - 1;
  const bool can_halve = p >= 4 && n >= p && std::has_single_bit(p) && std::has_single_bit(n);
  if (can_halve && halving_bytes >= 0 && std::cmp_greater_equal(bytes, halving_bytes)) {
    CHECK(all == 2 * (p - 1) * bytes);  // each part of an array comes once to be added, and once as a sum
  } else if (std::has_single_bit(p) && n % p == 0 && std::has_single_bit(n / p)) {
    CHECK(all == p * doublings * bytes);
  } else {
    CHECK(all <= p * (std::bit_width(n) + 1) * bytes);  // about a message for each level of the tree
  }
}

TEST_CASE("every number of leaves on every number of ranks gives the tree's sum, halved or not, in few messages") {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 18}) {
    for (int64_t leaves = 1; leaves <= 40; leaves += ranks < 10 ? 1 : 3) {
      for (const int64_t halving_bytes : {-1, 0}) check_sum(leaves, ranks, 33, halving_bytes);
    }
  }
}

TEST_CASE("halving takes any number of values, in messages that are late, and from the given number of bytes on") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const size_t count : {0, 1, 2, 3, 5, 7, 8, 9, 31, 300, 1001}) check_sum(2 * ranks, ranks, count, 0, 200);
  }
  for (const size_t count : {255, 256}) check_sum(4, 4, count, 1024);
}

// Run by tests/ranks, once on each rank. The values are those of the head of this file, where every order shows.
TEST_CASE("over MPI the sum is the tree's, and MPI's own all-reduce is not") {
  if (launched_ranks() == 0) return;
  Exchange exchange(open_mpi, {});
  const int ranks = exchange.size(), rank = exchange.rank();
  for (const int64_t leaves : {4, 7, 8, 13}) {
    for (const auto& [count, library] : {std::pair<size_t, bool>{3000, false}, {30000, false}, {3000, true}}) {
      std::vector<Values> arrays = own_sums(leaves, ranks, rank, count);
      const ReducePlan plan = reduce_plan(leaves, ranks, rank);
      if (library) {  // one rank's leaves from left to right, as TrainStep adds them
        const LeafRange own = leaves_of(leaves, ranks, rank);
        arrays[0] = leaf_values(own.begin, count);
        for (int64_t leaf = own.begin + 1; leaf < own.end; ++leaf) add(arrays[0], leaf_values(leaf, count));
        exchange.start_library(arrays[0].data(), count);
      } else {
        exchange.start(plan, pointers_to(arrays), count);
      }
      exchange.wait();
      if (!library) CHECK(same_bits(arrays[0], tree_sum(leaves, count)));
      if (library && leaves == 13) CHECK_FALSE(same_bits(arrays[0], tree_sum(leaves, count)));
    }
  }
  exchange.close();
}

TEST_CASE("texts and values of each rank reach every rank, exactly, whatever type gradients are sent in") {
  constexpr int ranks = 3;
  Loopback hub(ranks);
  on_ranks(ranks, [&](int rank) {
    Exchange exchange([&] { return hub.open(rank); }, {.wire = Wire::bf16});
    CHECK(exchange.rank() == rank);
    CHECK(exchange.size() == ranks);
    const auto text = [](int of) { return std::string(static_cast<size_t>(of * 1000), static_cast<char>('a' + of)); };
    CHECK(exchange.share(text(rank)) == std::vector{text(0), text(1), text(2)});
    Values values(7);
    for (size_t i = static_cast<size_t>(rank); i < values.size(); i += ranks) values[i] = 0.1f * static_cast<float>(i);
    CHECK(exchange.gather(values));
    for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == 0.1f * static_cast<float>(i));
    exchange.close();
  });
}

TEST_CASE("texts for rank 0 alone, what the other clocks show, and when sums were in progress") {
  constexpr int ranks = 3;
  Loopback hub(ranks, 200);
  double posted = 0, finished = 1e300;
  std::mutex mutex;
  on_ranks(ranks, [&](int rank) {
    Exchange exchange([&] { return hub.open(rank); }, {.timeout = 10});
    const auto texts = exchange.share(std::string(static_cast<size_t>(rank), 'x'), Exchange::With::first);
    CHECK(texts == (rank == 0 ? std::vector<std::string>{"", "x", "xx"} : std::vector<std::string>{}));
    // Rank r's clock is 100 r seconds ahead, and runs on between question and answer.
    const double ahead = exchange.clock_ahead([&] { return steady_seconds() + 100.0 * rank; });
    CHECK(std::fabs(ahead - 100.0 * rank) < 0.01);
    CHECK(std::fabs(exchange.clock_ahead()) < 0.01);

    const ReducePlan plan = reduce_plan(ranks, ranks, rank);
    Values large = leaf_values(rank, 1000), small = leaf_values(rank, 10);
    exchange.start(plan, {small.data()}, 10, "before");
    CHECK(exchange.wait());
    CHECK(exchange.take_times(true).empty());
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double begin = steady_seconds();
    exchange.start(plan, {large.data()}, 1000, "large");
    exchange.start(plan, {small.data()}, 10, "small");
    CHECK(exchange.wait());
    std::vector<SumTimes> times = exchange.take_times(false);
    const double end = steady_seconds();
    std::ranges::sort(times, {}, &SumTimes::name);
    REQUIRE(times.size() == 2);
    CHECK(times[0].name == "large");
    CHECK(times[0].bytes == 4000);
    CHECK(times[1].name == "small");
    CHECK(times[1].bytes == 40);
    CHECK(begin <= times[0].posted);
    CHECK(times[0].posted <= times[1].posted);
    CHECK(times[1].finished <= end);
    exchange.start(plan, {small.data()}, 10, "after");
    CHECK(exchange.wait());
    CHECK(exchange.take_times(false).empty());
    const std::scoped_lock lock(mutex);
    posted = std::max(posted, times[0].posted);
    finished = std::min(finished, times[0].finished);
  });
  CHECK(posted <= finished);  // no rank has the sum before all have posted it
}

TEST_CASE("a rank that is late is named by those that wait for its message, and they by those that wait for them") {
  constexpr int ranks = 4;
  for (const int late : {0, 2}) {
    for (const std::string what : {"sum", "all-reduce", "texts"}) {
      Loopback hub(ranks);
      on_ranks(ranks, [&](int rank) {
        Exchange exchange([&] { return hub.open(rank); }, {.timeout = 0.5});
        exchange.share("");
        if (rank == late) return;
        const ReducePlan plan = reduce_plan(ranks, ranks, rank);
        Values values = leaf_values(rank, 10);
        // By doubling, the rank that has no neighbour in common with the late one waits for the one that has.
        std::string awaited = fmt::format("rank {}", rank == (late ^ 3) ? late ^ 1 : late);
        if (what == "all-reduce") awaited = "another rank";
        if (what == "texts") awaited = fmt::format("rank {}", rank == 0 ? late : 0);
        try {
          if (what == "texts") exchange.share("x");
          if (what == "sum") exchange.start(plan, {values.data()}, 10);
          if (what == "all-reduce") exchange.start_library(values.data(), 10);
          exchange.wait();
          FAIL_CHECK("rank ", rank, " did not wait");
        } catch (const Error& error) {
          CHECK(error.code() == ExitCode::rank);
          CHECK_MESSAGE(std::string(error.what()).starts_with(awaited + " did not answer within "), error.what());
        }
      });
    }
  }
}

TEST_CASE("a rank that is asked to stop while it waits stops, and goes on with no sum") {
  constexpr int ranks = 3;
  Loopback hub(ranks);
  on_ranks(ranks, [&](int rank) {
    Exchange exchange([&] { return hub.open(rank); }, {});
    if (rank == 1) return;
    Values values(1);
    int asked = 0;
    CHECK_FALSE(exchange.gather(values, [&] { return ++asked > 5; }));
    CHECK_THROWS_AS(exchange.gather(values), Error);
  });
}

TEST_CASE("what fails when the transport is opened is the constructor's error") {
  const auto open = []() -> std::unique_ptr<Transport> { throw Error(ExitCode::usage, "no transport here"); };
  CHECK_THROWS_WITH(Exchange(open, {}), "no transport here");
}

}  // namespace hs::test
