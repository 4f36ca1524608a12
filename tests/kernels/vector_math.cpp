// kernels/cpu/vector_math.h against the C library, with each instruction set that this CPU has.
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {
namespace {

// The largest error of a function, in units in the last place, over every 1999th f32 where the result is neither
// bounded nor 0.
template <class Function, class Expected>
double largest_error(float smallest, float largest, const Function& function, const Expected& expected_of) {
  double worst = 0;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1999 * lanes) {
    float x[lanes], y[lanes];
    for (int64_t i = 0; i < lanes; ++i) {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits + static_cast<uint64_t>(1999 * i)));
      x[i] = value >= smallest && value <= largest ? value : 0;  // 0 for NaN
    }
    store(y, function(load(x)));
    for (int64_t i = 0; i < lanes; ++i) {
      const double expected = expected_of(double{x[i]});
      const double last_place = std::ldexp(1.0, std::ilogb(expected) - 23);
      const double error = std::fabs(y[i] - expected) / last_place;
      worst = error > worst || error != error ? error : worst;
    }
  }
  return worst;
}

Vec power_of_two(Vec x) {
  Vec v[2] = {broadcast(1), x};
  exp2(v);
  return v[1];
}

double exp_error() {
  return largest_error(-87.33f, 88.37f, HS_ISA::exp, [](double x) { return std::exp(x); });
}
double exp2_error() {
  return largest_error(-126, 127, power_of_two, [](double x) { return std::exp2(x); });
}
Vec reciprocal_of_one_and(Vec x) { return reciprocal(1.0f + x); }  // not a lambda: it would lack the instruction set

double reciprocal_error() {
  return largest_error(0, 1e30f, reciprocal_of_one_and, [](double x) { return 1 / double{1 + static_cast<float>(x)}; });
}
float exp2_of(float x) { return power_of_two(broadcast(x))[0]; }

// exp of one number, in all lanes but the first.
float exp_of(float x) {
  Vec v = broadcast(x);
  v[0] = 1;
  return HS_ISA::exp(v)[1];
}

// The sum and the maximum of 1, 2, 4, ..., in lanes.
bool lanes_agree() {
  Vec v;
  float expected = 0, numbers[lanes];
  for (int64_t i = 0; i < lanes; ++i) expected += v[i] = static_cast<float>(1 << i);
  store(numbers, v);
  return lane_sum(v) == expected && lane_max(v) == v[lanes - 1] && lane_max(-v) == -1 &&
         lane_sum(first_lanes(v, 3)) == 7 && lane_sum(load_first_or(numbers, 3, 100)) == 7 + 100 * (lanes - 3) &&
         lane_sum(first_lanes(v, lanes)) == expected;
}

constexpr VectorMath functions = {exp_error, exp2_error, reciprocal_error, exp_of, exp2_of, lanes_agree};

}  // namespace
}  // namespace hs::HS_ISA

#else
#include <doctest/doctest.h>

namespace hs {
namespace {

struct VectorMath {
  double (*exp_error)();
  double (*exp2_error)();
  double (*reciprocal_error)();
  float (*exp_of)(float);
  float (*exp2_of)(float);
  bool (*lanes_agree)();
};

}  // namespace
}  // namespace hs

#define HS_SOURCE "tests/kernels/vector_math.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs::test {
namespace {

void check(const VectorMath& math) {
  const double error = math.exp_error();
  CAPTURE(error);
  CHECK(error <= 2);
  CHECK(math.exp_of(0) == 1);
  CHECK(math.exp_of(-87.34f) == 0);
  CHECK(math.exp_of(-INFINITY) == 0);
  CHECK(math.exp_of(89) == math.exp_of(88.37f));
  CHECK(math.exp_of(INFINITY) == math.exp_of(88.37f));
  CHECK(std::isnan(math.exp_of(NAN)));
  CHECK(math.exp2_error() <= 2);
  CHECK(math.reciprocal_error() <= 1);
  CHECK(math.exp2_of(-126.5f) == 0);
  CHECK(math.exp2_of(-INFINITY) == 0);
  CHECK(std::isnan(math.exp2_of(NAN)));
  CHECK(math.lanes_agree());
}

}  // namespace

TEST_CASE("vector functions agree with the C library") {
  check(baseline::functions);
#if defined(__x86_64__)
  if (cpu_features().avx2) check(avx2::functions);
  if (cpu_features().avx512) check(avx512::functions);
#endif
}

}  // namespace hs::test
#endif
