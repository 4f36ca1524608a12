// What the model of scale_model.h takes from this machine: messages between two ranks, and additions.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bench/measure/scale_model.h"
#include "engine/ranks/exchange.h"
#include "engine/ranks/transport.h"

namespace hs::bench::measure {

// The seconds in which this rank and `peer` send so many bytes to each other, both at once as in a sum: the smallest of
// `rounds`, which are more for small messages. Both ranks must call it. between(): before each size. clock(): in
// seconds
std::vector<MessageTime> time_messages(Transport& transport, int peer, const std::vector<int64_t>& sizes, int rounds,
                                       double timeout, const std::function<void()>& between = {},
                                       const std::function<double()>& clock = steady_seconds);
// 8, 16, 32, ... bytes up to 8 MiB.
std::vector<int64_t> message_sizes(int64_t largest = int64_t{8} << 20);

// Seconds for each byte that this process adds to another one, from arrays that no cache holds: the smallest of a few.
double addition_seconds_per_byte();

// values = the sum over ranks 0 .. ranks-1, by recursive doubling. Each of them must call it, none else.
// REQUIRES: ranks is a power of two
void sum_by_doubling(Transport& transport, int ranks, std::span<float> values, std::vector<float>& received,
                     double timeout);

// Waits for a message of one byte from `rank`, asleep in between: ranks that wait must not take the core from others.
void await(Transport& transport, int rank, double timeout);
void release(Transport& transport, int rank, double timeout);

}  // namespace hs::bench::measure
