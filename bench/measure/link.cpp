#include "bench/measure/link.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "bench/cli/clock.h"
#include "engine/check.h"

namespace hs::bench::measure {
namespace {

constexpr int message_tag = 0, sum_tag = 1, turn_tag = 2;
constexpr int64_t many_rounds_up_to = 64 << 10;  // bytes
constexpr int more_rounds = 10;

void exchange(Transport& transport, int peer, int tag, std::span<const std::byte> out, std::span<std::byte> in,
              double timeout) {
  const TransferPtr receive = transport.receive(peer, tag, in), send = transport.send(peer, tag, out);
  wait(*receive, peer, timeout);
  wait(*send, peer, timeout);
}

void add(std::span<float> to, std::span<const float> from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

std::vector<MessageTime> time_messages(Transport& transport, int peer, const std::vector<int64_t>& sizes, int rounds,
                                       double timeout, const std::function<void()>& between,
                                       const std::function<double()>& clock) {
  const auto most = static_cast<size_t>(*std::ranges::max_element(sizes));
  const std::vector<std::byte> out(most);
  std::vector<std::byte> in(most);
  std::vector<MessageTime> times;
  for (const int64_t size : sizes) {
    if (between) between();
    const auto bytes = static_cast<size_t>(size);
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < rounds * (size <= many_rounds_up_to ? more_rounds : 1); ++i) {
      const double start = clock();
      exchange(transport, peer, message_tag, std::span(out).first(bytes), std::span(in).first(bytes), timeout);
      fastest = std::min(fastest, clock() - start);
    }
    times.push_back({size, fastest});
  }
  return times;
}

std::vector<int64_t> message_sizes(int64_t largest) {
  std::vector<int64_t> sizes;
  for (int64_t size = 8; size <= largest; size *= 2) sizes.push_back(size);
  return sizes;
}

double addition_seconds_per_byte() {
  constexpr size_t count = size_t{16} << 20;
  std::vector<float> to(count, 1), from(count, 1);
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point start = Clock::now();
    add(to, from);
    fastest = std::min(fastest, seconds_since(start));
  }
  check(to.back() == 6, "addition_seconds_per_byte: {}, expected 6", to.back());  // so that it is computed
  return fastest / static_cast<double>(count * sizeof(float));
}

void sum_by_doubling(Transport& transport, int ranks, std::span<float> values, std::vector<float>& received,
                     double timeout) {
  received.resize(values.size());
  for (int distance = 1; distance < ranks; distance *= 2) {
    exchange(transport, transport.rank() ^ distance, sum_tag, std::as_bytes(values),
             std::as_writable_bytes(std::span(received)), timeout);
    add(values, received);
  }
}

void await(Transport& transport, int rank, double timeout) {
  std::byte turn{};
  const TransferPtr receive = transport.receive(rank, turn_tag, {&turn, 1});
  const Clock::time_point start = Clock::now();
  while (!receive->done()) {
    if (seconds_since(start) > timeout) wait(*receive, rank, 0);  // names the rank
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void release(Transport& transport, int rank, double timeout) {
  const std::byte turn{};
  wait(*transport.send(rank, turn_tag, {&turn, 1}), rank, timeout);
}

}  // namespace hs::bench::measure
