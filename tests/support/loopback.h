// Transports between threads of one process, for tests: messages that are late by a random time, and an all-reduce that
// adds from the left, which is not the tree.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/error.h"
#include "engine/random.h"
#include "engine/ranks/transport.h"

namespace hs::test {

class Loopback {
 public:
  explicit Loopback(int size, int max_delay_us = 0, uint64_t seed = 1)
      : size_(size), max_delay_us_(max_delay_us), seed_(seed) {}

  std::unique_ptr<Transport> open(int rank) { return std::make_unique<End>(*this, rank); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Message {
    std::vector<std::byte> bytes;
    Clock::time_point arrives;
  };
  using Key = std::tuple<int, int, int>;  // from, to, tag

  class Sent : public Transfer {
   public:
    bool done() override { return true; }
  };

  class Received : public Transfer {
   public:
    Received(Loopback& hub, Key key, std::span<std::byte> bytes) : hub_(hub), key_(key), bytes_(bytes) {}
    bool done() override {
      if (done_) return true;
      const std::scoped_lock lock(hub_.mutex_);
      auto& queue = hub_.wire_[key_];
      if (queue.empty() || queue.front().arrives > Clock::now()) return false;
      const std::vector<std::byte>& from = queue.front().bytes;
      if (from.size() != bytes_.size()) throw Error(ExitCode::rank, "a message of another size");
      std::ranges::copy(from, bytes_.begin());
      queue.pop_front();
      return done_ = true;
    }

   private:
    Loopback& hub_;
    const Key key_;
    const std::span<std::byte> bytes_;
    bool done_ = false;
  };

  // All ranks' values are collected; the last one to come adds them, from the left.
  class Reduced : public Transfer {
   public:
    Reduced(Loopback& hub, int64_t number, int rank, std::span<float> values)
        : hub_(hub), number_(number), values_(values) {
      const std::scoped_lock lock(hub_.mutex_);
      auto& all = hub_.reductions_[number];
      all.resize(static_cast<size_t>(hub_.size_));
      all[static_cast<size_t>(rank)].emplace(values.begin(), values.end());
    }
    bool done() override {
      const std::scoped_lock lock(hub_.mutex_);
      const auto& all = hub_.reductions_[number_];
      if (!std::ranges::all_of(all, &std::optional<std::vector<float>>::has_value)) return false;
      for (size_t i = 0; i < values_.size(); ++i) {
        values_[i] = (*all[0])[i];
        for (size_t rank = 1; rank < all.size(); ++rank) values_[i] += (*all[rank])[i];
      }
      return true;
    }

   private:
    Loopback& hub_;
    const int64_t number_;
    const std::span<float> values_;
  };

  class End : public Transport {
   public:
    End(Loopback& hub, int rank) : hub_(hub), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return hub_.size_; }
    std::string host() const override { return "loopback"; }
    TransferPtr send(int to, int tag, std::span<const std::byte> bytes) override {
      const std::scoped_lock lock(hub_.mutex_);
      auto& queue = hub_.wire_[{rank_, to, tag}];
      const uint32_t random = random_bits({hub_.seed_, RandomPurpose::init, 0, 0, 0}, hub_.sent_++);
      const int delay =
          hub_.max_delay_us_ > 0 ? static_cast<int>(random % static_cast<uint32_t>(hub_.max_delay_us_)) : 0;
      auto arrives = Clock::now() + std::chrono::microseconds(delay);
      if (!queue.empty()) arrives = std::max(arrives, queue.back().arrives);
      queue.push_back({{bytes.begin(), bytes.end()}, arrives});
      return std::make_unique<Sent>();
    }
    TransferPtr receive(int from, int tag, std::span<std::byte> bytes) override {
      return std::make_unique<Received>(hub_, Key{from, rank_, tag}, bytes);
    }
    TransferPtr all_reduce(std::span<float> values) override {
      return std::make_unique<Reduced>(hub_, reductions_++, rank_, values);
    }
    void close() override {}

   private:
    Loopback& hub_;
    const int rank_;
    int64_t reductions_ = 0;
  };

  const int size_, max_delay_us_;
  const uint64_t seed_;
  std::mutex mutex_;
  std::map<Key, std::deque<Message>> wire_;
  std::map<int64_t, std::vector<std::optional<std::vector<float>>>> reductions_;
  uint64_t sent_ = 0;
};

// Runs `body` once for each rank, each on its own thread, and rethrows the first rank's error.
inline void on_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace hs::test
