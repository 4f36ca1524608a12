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

using exercise::Message;
using exercise::Rank;
using Reduce = void (*)(const Rank&, std::vector<float>&);

namespace {

class Network {
 public:
  explicit Network(int size) : sent(static_cast<size_t>(size)), largest(sent), errors(sent.size()) {}

  void send(int from, int to, Message message) {
    const std::lock_guard lock(mutex_);
    ++sent[static_cast<size_t>(from)];
    largest[static_cast<size_t>(from)] = std::max(largest[static_cast<size_t>(from)], message.size());
    not_next += to != (from + 1) % static_cast<int>(sent.size());
    queues_[{from, to}].push_back(std::move(message));
    arrived_.notify_all();
  }
  Message receive(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[{from, to}];
    if (!arrived_.wait_for(lock, std::chrono::seconds(5), [&] { return !queue.empty(); })) {
      throw std::runtime_error("rank " + std::to_string(to) + " waits for a message of rank " + std::to_string(from) +
                               " that does not come");
    }
    Message message = std::move(queue.front());
    queue.pop_front();
    return message;
  }

  std::vector<size_t> sent, largest;  // of each rank: messages, and the values of the longest one
  int not_next = 0;
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
      REQUIRE(network.not_next == 0);
      REQUIRE(network.sent == std::vector<size_t>(ranks, 2 * (ranks - 1)));
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
        const size_t rounds = static_cast<size_t>(std::countr_zero(power));
        REQUIRE(network.sent[rank] == (rank >= power ? 1 : rounds + (rank + power < ranks ? 1 : 0)));
      }
    }
  }
}
