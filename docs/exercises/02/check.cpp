// tests/exercise 02 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "docs/exercises/02/exercise.h"
#include "engine/random.h"

namespace {

std::vector<float> numbers(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  const hs::RandomStream stream{.seed = 2, .purpose = hs::RandomPurpose::synthetic};
  for (size_t i = 0; i < values.size(); ++i) values[i] = hs::to_unit_float(hs::random_bits(stream, i));
  return values;
}

// Values that cannot be read before `threads` threads ask for one at the same time: each waits in the signal handler of
// its first read until the last has come, or for ten seconds.
struct Gate {
  void* begin;
  size_t bytes;
  int threads;
  std::atomic<int> waiting{0}, most{0};
};
Gate* gate = nullptr;

void wait_at_gate(int, siginfo_t* fault, void*) {
  const auto offset = reinterpret_cast<uintptr_t>(fault->si_addr) - reinterpret_cast<uintptr_t>(gate->begin);
  if (offset >= gate->bytes) {
    signal(SIGSEGV, SIG_DFL);  // an access that is wrong anyway: now it ends the program
    return;
  }
  const int here = ++gate->waiting;
  for (int most = gate->most; most < here && !gate->most.compare_exchange_weak(most, here);) {
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (gate->most < gate->threads && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  --gate->waiting;
  mprotect(gate->begin, gate->bytes, PROT_READ);
}

}  // namespace

TEST_CASE("the same bits on any number of threads") {
  for (const int64_t size : {0, 1, 2, 7, 4095, 4097, 100'003}) {
    const std::vector<float> values = numbers(size);
    const float one = exercise::parallel_sum(values.data(), size, 1);
    for (int threads = 2; threads <= 9; ++threads) {
      INFO(size, " values, ", threads, " threads");
      CHECK(std::bit_cast<uint32_t>(exercise::parallel_sum(values.data(), size, threads)) ==
            std::bit_cast<uint32_t>(one));
    }
  }
}

TEST_CASE("every value is added once") {
  for (const int64_t size : {0, 1, 2, 7, 4095, 4097, 100'003}) {
    const std::vector<float> ones(static_cast<size_t>(size), 1.0f);
    INFO(size, " ones");
    CHECK(exercise::parallel_sum(ones.data(), size, 3) == static_cast<float>(size));
  }
}

TEST_CASE("20 million values, by 4 threads at once: within 1e-5 of the exact sum") {
  const std::vector<float> values = numbers(20'000'000);
  const double exact = std::accumulate(values.begin(), values.end(), 0.0);
  const size_t bytes = values.size() * sizeof(float);
  void* copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(copy != MAP_FAILED);
  std::copy(values.begin(), values.end(), static_cast<float*>(copy));
  Gate four{copy, bytes, 4};
  gate = &four;
  struct sigaction handler = {}, before;
  handler.sa_sigaction = wait_at_gate;
  handler.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &handler, &before);
  mprotect(copy, bytes, PROT_NONE);
  const double sum = exercise::parallel_sum(static_cast<float*>(copy), static_cast<int64_t>(values.size()), 4);
  sigaction(SIGSEGV, &before, nullptr);
  CHECK(std::abs(sum - exact) < 1e-5 * exact);
  const int most = four.most;
  CHECK_MESSAGE(most == 4, "4 threads were asked for, and at most ", most,
                " read the values at the same time: divide the pieces among all of them, with no lock around the sum");
}
