// How long a step of training takes on any number of ranks, by a model: a message of n bytes takes alpha + n beta
// seconds, and adding n bytes to n others n gamma. (Thakur, Rabenseifner, Gropp, "Optimization of collective
// communication operations in MPICH", 2005, has the times of the all-reduces.) And what measures these constants.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "engine/check.h"
#include "engine/ranks/exchange.h"
#include "engine/ranks/transport.h"

namespace hs::bench::measure {

struct Link {
  double alpha = 0, beta = 0, gamma = 0;
};

inline double fastest(int64_t rounds, const std::function<double()>& clock, const std::function<void()>& work) {
  double seconds = INFINITY;
  for (int64_t i = 0; i < rounds; ++i) {
    const double start = clock();
    work();
    seconds = std::min(seconds, clock() - start);
  }
  return seconds;
}

// alpha and beta, from two messages that this rank and `peer` send to each other, both at once as in a sum. Smaller
// ones MPI sends in another way. Both ranks must call it. clock(): in seconds
inline Link measure_link(Transport& transport, int peer, int64_t rounds,
                         const std::function<double()>& clock = steady_seconds) {
  constexpr size_t small = 8 << 10, large = 8 << 20;
  const std::vector<std::byte> out(large);
  std::vector<std::byte> in(large);
  const auto time = [&](size_t bytes) {
    return fastest(rounds, clock, [&] {
      const TransferPtr receive = transport.receive(peer, 0, std::span(in).first(bytes));
      const TransferPtr send = transport.send(peer, 0, std::span(out).first(bytes));
      wait(*receive, peer, ExchangeOptions{}.timeout);
      wait(*send, peer, ExchangeOptions{}.timeout);
    });
  };
  const double of_small = time(small), beta = std::max(0.0, time(large) - of_small) / (large - small);
  return {.alpha = std::max(0.0, of_small - beta * small), .beta = beta};
}

inline double measure_gamma() {
  std::vector<float> to(size_t{16} << 20), from(to.size(), 1);  // more than a cache holds
  const double seconds = fastest(5, steady_seconds, [&] {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  });
  check(to.back() == 5, "measure_gamma: {}, expected 5", to.back());  // so that it is computed
  return seconds / static_cast<double>(to.size() * sizeof(float));
}

// The seconds in which p ranks, a power of two, sum n bytes each. `halving` is Rabenseifner's: each rank adds a part,
// and all parts are then collected.
inline double doubling_seconds(double n, double p, const Link& link) {
  return std::log2(p) * (link.alpha + n * (link.beta + link.gamma));
}
inline double halving_seconds(double n, double p, const Link& link) {
  return 2 * std::log2(p) * link.alpha + n * (2 * link.beta + link.gamma) * (p - 1) / p;
}
inline double ring_seconds(double n, double p, const Link& link) {
  return 2 * (p - 1) * link.alpha + n * (2 * link.beta + link.gamma) * (p - 1) / p;
}

// The bytes from which halving pays among four ranks: where the two times are equal.
inline double halving_pays_from(const Link& link) { return 4 * link.alpha / (link.beta + 2.5 * link.gamma); }

// What ranks sum in a step. Each bucket but the last has at least bucket_kib of whole parameters; as in
// training, larger ones than `halving_kib` are halved from four ranks on.
struct GradientSizes {
  int64_t bucket_kib = 256, halving_kib = ExchangeOptions{}.halving_bytes >> 10;
  std::vector<int64_t> bytes = {};  // by parameter
  double backward = 0;              // seconds in which they become ready, from the last one on, each in the same time
};

// The seconds of all sums, and of them those after the end of backward. One bucket after another is summed, each once
// it is ready: bucket i ends at f_i = max(r_i, f_{i-1}) + c_i.
inline std::pair<double, double> sum_buckets(const GradientSizes& gradients, double ranks, const Link& link) {
  double total = 0, end = 0;
  int64_t bytes = 0;
  for (size_t i = gradients.bytes.size(); i-- > 0;) {
    bytes += gradients.bytes[i];
    if (i > 0 && bytes < gradients.bucket_kib << 10) continue;
    const double missing = static_cast<double>(i) / static_cast<double>(gradients.bytes.size());
    const bool halves = ranks >= 4 && bytes >= gradients.halving_kib << 10;
    const double cost = (halves ? halving_seconds : doubling_seconds)(static_cast<double>(bytes), ranks, link);
    end = std::max((1 - missing) * gradients.backward, end) + cost;
    total += cost;
    bytes = 0;
  }
  return {total, std::max(0.0, end - gradients.backward)};
}

}  // namespace hs::bench::measure
