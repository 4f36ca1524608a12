// The comparator's own tests, before anything relies on it.
#include <doctest/doctest.h>

#include <limits>
#include <utility>
#include <vector>

#include "kernels/examples/compare.h"

using hs::examples::compare;
using hs::examples::CompareOptions;
using hs::examples::Tolerance;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double largest = std::numeric_limits<double>::max();
constexpr double tiny = std::numeric_limits<double>::denorm_min();

}  // namespace

TEST_CASE("single elements, non-finite ones above all") {
  const auto passes = [](double got, double reference) {
    const auto result = compare({&got, 1}, {&reference, 1}, Tolerance{0.1, 0.1, 0});
    CHECK((result.failures == 0) == result.passed);
    CHECK_FALSE(result.summary.empty());
    return result.passed;
  };
  const std::vector<double> finite = {0, 1, tiny, largest, -largest};
  for (const double one : {not_a_number, inf, -inf}) {
    for (const double other : finite) {
      CHECK_FALSE(passes(one, other));
      CHECK_FALSE(passes(other, one));
    }
    for (const double other : {not_a_number, inf, -inf}) CHECK(passes(one, other) == (one == other));
  }
  for (const double one : finite) {
    CHECK(passes(one, one));
    CHECK(passes(-one, -one));
    CHECK(passes(one, -one) == (one < 0.05 && one >= 0));
  }
  const std::pair<double, double> close[] = {{0, -0.0},  {1, 1.05},   {0, tiny}, {tiny, 0},
                                             {100, 109}, {1e-300, 0}, {0.05, 0}};
  for (const auto& [got, reference] : close) CHECK(passes(got, reference));
  const std::pair<double, double> far[] = {{1, 1.3}, {100, 130}, {1e300, 1.2e300}, {0.2, 0}, {-0.2, 0}};
  for (const auto& [got, reference] : far) CHECK_FALSE(passes(got, reference));
}

TEST_CASE("an expected NaN is equal to a NaN and to nothing else") {
  const CompareOptions options{.nan_expected = true};
  const Tolerance tolerance{0.1, 0.1, 0};
  const double zero = 0;
  CHECK(compare({&not_a_number, 1}, {&not_a_number, 1}, tolerance, options).passed);
  CHECK_FALSE(compare({&zero, 1}, {&not_a_number, 1}, tolerance, options).passed);
  CHECK_FALSE(compare({&not_a_number, 1}, {&zero, 1}, tolerance, options).passed);
  CHECK_FALSE(compare({&inf, 1}, {&not_a_number, 1}, tolerance, options).passed);
}

TEST_CASE("zero tolerance accepts equality only") {
  const std::vector<double> a = {1, 2, 3}, b = {1, 2, 3.0000000000000004};
  CHECK(compare(a, a, {}).passed);
  CHECK_FALSE(compare(b, a, {}).passed);
  CHECK(compare(b, a, {}).worst_index == 2);
}

TEST_CASE("sizes must agree, and empty is equal to empty only") {
  const std::vector<double> none, one = {1};
  CHECK(compare(none, none, {}).passed);
  CHECK_FALSE(compare(one, none, {1, 1, 0}).passed);
  CHECK_FALSE(compare(none, one, {1, 1, 0}).passed);
}

TEST_CASE("one bad element among many fails and is named") {
  std::vector<double> reference(1000, 1.0), got = reference;
  got[777] = 1.5;
  const auto result = compare(got, reference, {0.1, 0, 0});
  CHECK_FALSE(result.passed);
  CHECK(result.failures == 1);
  CHECK(result.worst_index == 777);
  CHECK(result.summary.find("777") != std::string::npos);
  got[777] = not_a_number;
  CHECK_FALSE(compare(got, reference, {0.1, 0, 0}).passed);
}

TEST_CASE("the Frobenius bound sees a bias that every element tolerates") {
  const std::vector<double> reference(100, 1.0), shifted(100, 1.0 + 5e-6);
  CHECK(compare(shifted, reference, {1e-5, 0, 0}).passed);
  CHECK_FALSE(compare(shifted, reference, {1e-5, 0, 2e-6}).passed);
}

TEST_CASE("a Frobenius bound on an all-zero reference accepts zeros only") {
  const std::vector<double> zeros(10, 0.0), noise(10, 1e-30);
  CHECK(compare(zeros, zeros, {0, 1, 1e-6}).passed);
  CHECK_FALSE(compare(noise, zeros, {0, 1, 1e-6}).passed);
}

TEST_CASE("a reference of mostly zeros is not trusted where that is asked") {
  const std::vector<double> reference = {0, 0, 0, 1};
  CHECK(compare(reference, reference, {}).passed);
  CHECK_FALSE(compare(reference, reference, {}, {.largest_zero_share = 0.3}).passed);
  CHECK(compare(reference, reference, {}, {.largest_zero_share = 0.8}).passed);
}
