// tests/exercise 13 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "docs/exercises/13/exercise.h"
#include "docs/exercises/vectors.h"

using exercise::Message;
using exercise::Rank;
using Reduce = void (*)(const Rank&, std::vector<float>&);

namespace {

class Network {
 public:
  explicit Network(int size) : sent(static_cast<size_t>(size)), largest(sent.size()), errors(sent.size()) {}

  void send(int from, int to, Message message) {
    const std::lock_guard lock(mutex_);
    sent[static_cast<size_t>(from)].push_back(to);
    largest[static_cast<size_t>(from)] = std::max(largest[static_cast<size_t>(from)], message.size());
    queues_[{from, to}].push_back(std::move(message));
    arrived_.notify_all();
  }
  Message receive(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[{from, to}];
    if (!arrived_.wait_for(lock, std::chrono::milliseconds(1900), [&] { return !queue.empty(); })) {
      throw std::runtime_error("rank " + std::to_string(to) + " waits for a message of rank " + std::to_string(from) +
                               " that does not come");
    }
    Message message = std::move(queue.front());
    queue.pop_front();
    return message;
  }

  std::vector<std::vector<int>> sent;  // of each rank: to whom, in order
  std::vector<size_t> largest;         // of each rank: the values of its longest message
  std::vector<std::string> errors;

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<Message>> queues_;
};

// Values whose sum depends on the order of the additions.
std::vector<float> values_of(int rank, size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((static_cast<size_t>(rank) * 7919 + i * 104729) % 1000) / 999 + 0.1f);
  }
  return values;
}

// All ranks have the same bits, and they are the sum.
void check_sum(Network& network, int size, size_t count, Reduce reduce) {
  std::vector<std::vector<float>> values;
  values.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) values.push_back(values_of(rank, count));
  {
    std::vector<std::jthread> threads;
    threads.reserve(values.size());
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          reduce({rank, size, [&, rank](int to, Message message) { network.send(rank, to, std::move(message)); },
                  [&, rank](int from) { return network.receive(from, rank); }},
                 values[static_cast<size_t>(rank)]);
        } catch (const std::exception& error) {
          network.errors[static_cast<size_t>(rank)] = error.what();
        }
      });
    }
  }
  for (const std::string& error : network.errors) REQUIRE_MESSAGE(error.empty(), error);
  for (int rank = 0; rank < size; ++rank) {
    REQUIRE(values[static_cast<size_t>(rank)].size() == count);
    for (size_t i = 0; i < count; ++i) {
      INFO("value ", i, " of rank ", rank);
      const float found = values[static_cast<size_t>(rank)][i];
      float sum = 0;
      for (int other = 0; other < size; ++other) sum += values_of(other, count)[i];
      REQUIRE(found == doctest::Approx(sum).epsilon(1e-6));
      REQUIRE_MESSAGE(std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(values[0][i]),
                      "other bits than rank 0");
    }
  }
}

constexpr size_t counts[] = {0, 1, 3, 16, 101};

}  // namespace

TEST_CASE("ring: 2 (size - 1) messages of one piece, to the next rank") {
  for (int size = 1; size <= 9; ++size) {
    for (const size_t count : counts) {
      INFO(size, " ranks, ", count, " values");
      Network network(size);
      check_sum(network, size, count, exercise::ring);
      const auto ranks = static_cast<size_t>(size);
      for (size_t rank = 0; rank < ranks; ++rank) {
        INFO("to whom rank ", rank, " has sent");
        REQUIRE(network.sent[rank] == std::vector<int>(2 * (ranks - 1), static_cast<int>((rank + 1) % ranks)));
      }
      if (size > 1) REQUIRE(std::ranges::max(network.largest) <= (count + ranks - 1) / ranks);
    }
  }
}

TEST_CASE("doubling: one message per round, and two more with the ranks that are left over") {
  for (int size = 1; size <= 9; ++size) {
    for (const size_t count : counts) {
      INFO(size, " ranks, ", count, " values");
      Network network(size);
      check_sum(network, size, count, exercise::doubling);
      const size_t ranks = static_cast<size_t>(size), power = std::bit_floor(ranks);
      for (size_t rank = 0; rank < ranks; ++rank) {
        std::vector<int> expected;
        for (size_t bit = 1; rank < power && bit < power; bit *= 2) expected.push_back(static_cast<int>(rank ^ bit));
        if (rank + power < ranks) expected.push_back(static_cast<int>(rank + power));
        if (rank >= power) expected.push_back(static_cast<int>(rank - power));
        INFO("to whom rank ", rank, " has sent");
        REQUIRE(network.sent[rank] == expected);
      }
    }
  }
}
