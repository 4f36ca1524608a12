// tests/exercise 22 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "docs/exercises/22/exercise.h"
#include "docs/exercises/vectors.h"

using exercise::Memory;
using exercise::Replayed;
using exercise::Stream;

namespace {

struct Device {
  std::vector<float> weights = {1, -2, 3}, average = {0, 0, 0}, gradients = {0, 0, 0};
  int64_t step = 0;
  float rate = 0.1f;
  Memory memory() { return {weights.data(), average.data(), gradients.data(), 3, &step, &rate}; }
  // What the host changes before each step.
  void prepare(int number) {
    for (size_t i = 0; i < 3; ++i)
      gradients[i] = static_cast<float>((number * 7 + static_cast<int>(i) * 5) % 11) / 4 - 1;
    rate = number < 5 ? 0.1f : 0.02f;
  }
};

// The weights after each of 12 steps, by the formula, in f64.
std::vector<std::vector<double>> expected() {
  Device device;
  std::vector<double> weights(device.weights.begin(), device.weights.end()), average(3);
  std::vector<std::vector<double>> all;
  for (int number = 0; number < 12; ++number) {
    device.prepare(number);
    for (size_t i = 0; i < 3; ++i) {
      average[i] = 0.9 * average[i] + 0.1 * device.gradients[i];
      weights[i] -= device.rate * average[i] / (1 - std::pow(0.9, number + 1));
    }
    all.push_back(weights);
  }
  return all;
}

void check_step(const Device& device, int number) {
  INFO("step ", number + 1);
  REQUIRE(device.step == number + 1);
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(device.weights[i] == doctest::Approx(expected()[static_cast<size_t>(number)][i]).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("launched each time") {
  Stream stream;
  Device device;
  for (int number = 0; number < 12; ++number) {
    device.prepare(number);
    exercise::launch_step(stream, device.memory());
    check_step(device, number);
  }
}

TEST_CASE("launching while the stream records changes nothing") {
  Stream stream;
  Device device;
  device.prepare(0);
  stream.begin_recording();
  exercise::launch_step(stream, device.memory());
  const auto record = stream.end_recording();
  CHECK_MESSAGE(device.step == 0, "the counter has moved, although no kernel has run");
  CHECK(device.weights == Device().weights);
  CHECK(device.average == Device().average);
}

TEST_CASE("replayed: the counter moves, and a new rate and new gradients are seen") {
  Stream stream;
  Device device, other;
  Memory memory = device.memory();  // becomes another one before the replay comes
  Replayed replayed;
  int called = 0;
  int64_t launches = 0;
  for (int number = 0; number < 12; ++number) {
    device.prepare(number);
    replayed.run(stream, [&] {
      ++called;
      memory = device.memory();
      exercise::launch_step(stream, memory);
      memory = other.memory();
    });
    REQUIRE_MESSAGE(other.step == 0, "a kernel reads the caller's `memory`, which is another one by now: copy it");
    check_step(device, number);
    if (number == 1) launches = stream.launches;
  }
  CHECK_MESSAGE(called == 2, "calls of launch(): one that runs, one that is recorded");
  CHECK_MESSAGE(stream.launches == launches, "a replay must not launch");
}

TEST_CASE("the first call runs, so that it may do what a recording must not") {
  Stream stream;
  Replayed replayed;
  int ran = 0, ran_within = -1;
  const auto launch = [&] {
    stream.launch([&] { ++ran; });
    ran_within = ran;
  };
  replayed.run(stream, launch);
  CHECK_MESSAGE(ran_within == 1, "the first call has been recorded");
  replayed.run(stream, launch);
  CHECK_MESSAGE(ran_within == 1, "the second call has not been recorded");
  CHECK(ran == 2);
}

TEST_CASE("an exception while recording: nothing has run, and everything still works") {
  Stream stream;
  Replayed replayed;
  int ran = 0, called = 0;
  const auto launch = [&] {
    stream.launch([&] { ++ran; });
    if (++called == 2) throw std::runtime_error("this op cannot be recorded");
  };
  replayed.run(stream, launch);
  CHECK_THROWS_WITH_AS(replayed.run(stream, launch), "this op cannot be recorded", std::runtime_error);
  CHECK(ran == 1);
  stream.launch([&] { ran += 10; });
  CHECK_MESSAGE(ran == 11, "the stream still records");
  for (int i = 0; i < 3; ++i) REQUIRE_NOTHROW(replayed.run(stream, launch));
  CHECK(ran == 14);
  CHECK(called == 3);
}

TEST_CASE("an exception in the first call: the next one runs normally") {
  Stream stream;
  Replayed replayed;
  int ran = 0, ran_within = 0;
  const auto fails = [] { throw std::runtime_error("no memory"); };
  CHECK_THROWS_WITH_AS(replayed.run(stream, fails), "no memory", std::runtime_error);
  replayed.run(stream, [&] {
    stream.launch([&] { ++ran; });
    ran_within = ran;
  });
  CHECK_MESSAGE(ran_within == 1, "the call after the one that threw has been recorded");
}
