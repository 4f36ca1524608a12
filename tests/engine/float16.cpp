// The 16-bit formats against an independent computation in double: fields with ldexp one way, nearbyint the other.
// Arrays of them, as cast has them between f32 and 16 bits: tests/kernels/cpu_half.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <vector>

#include "engine/float16.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"

namespace hs {
namespace {

template <class T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int mantissa_bits = 10, bias = 15;
  static Half narrow(float value) { return to_half(value); }
};
template <>
struct Format<BFloat16> {
  static constexpr int mantissa_bits = 7, bias = 127;
  static BFloat16 narrow(float value) { return to_bfloat16(value); }
};

template <class T>
constexpr uint16_t infinity_bits = (2 * Format<T>::bias + 1) << Format<T>::mantissa_bits;
template <class T>
constexpr uint16_t quiet_bit = 1 << (Format<T>::mantissa_bits - 1);

template <class T>
bool is_nan_pattern(uint32_t bits) {
  return (bits & 0x7fff) > infinity_bits<T>;
}

// The value of a pattern. Infinity reads as the power of two that would come after the largest finite value: rounding
// treats it as that neighbour.
template <class T>
double finite_value(uint32_t bits) {
  const int mantissa = static_cast<int>(bits) & ((1 << Format<T>::mantissa_bits) - 1);
  const int exponent = (static_cast<int>(bits) & 0x7fff) >> Format<T>::mantissa_bits;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - Format<T>::bias - Format<T>::mantissa_bits)
                                         : std::ldexp(mantissa + (1 << Format<T>::mantissa_bits),
                                                      exponent - Format<T>::bias - Format<T>::mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// double -> the nearest pattern, ties to even. The pattern of a NaN is only required to be a quiet NaN.
template <class T>
uint16_t nearest(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity_bits<T>);
  int exponent = 0;
  std::frexp(magnitude, &exponent);                        // magnitude is in [2^(exponent-1), 2^exponent)
  exponent = std::max(exponent - 1, 1 - Format<T>::bias);  // the smallest exponent is shared with the subnormals
  const double units = std::nearbyint(std::ldexp(magnitude, Format<T>::mantissa_bits - exponent));
  if (std::ldexp(units, exponent - Format<T>::mantissa_bits) >= std::ldexp(1, Format<T>::bias + 1)) {
    return static_cast<uint16_t>(sign | infinity_bits<T>);
  }
  const int hidden = 1 << Format<T>::mantissa_bits;
  const int mantissa = static_cast<int>(units);
  if (mantissa < hidden) return static_cast<uint16_t>(sign | mantissa);  // subnormal or zero
  return static_cast<uint16_t>(sign | (((exponent + Format<T>::bias) << Format<T>::mantissa_bits) + mantissa - hidden));
}

template <class T>
bool right(double from, T got) {
  if (std::isnan(from)) return is_nan_pattern<T>(got.bits) && (got.bits & quiet_bit<T>);
  return got.bits == nearest<T>(from);
}

// Counts failures and keeps the first, because a CHECK for each of a million values would take seconds.
struct Failures {
  int64_t count = 0;
  double first = 0;
  void expect(bool ok, double input) {
    if (!ok && count++ == 0) first = input;
  }
};

void check_none(const char* what, const Failures& failures) {
  CAPTURE(what);
  CAPTURE(failures.first);
  CHECK(failures.count == 0);
}

TEST_CASE_TEMPLATE("to_float is exact for all 65,536 patterns and narrows back to them", T, Half, BFloat16) {
  Failures widening, round_trip;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const T value{static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    if (is_nan_pattern<T>(bits)) {
      widening.expect(std::isnan(wide) && std::signbit(wide) == (bits >= 0x8000), bits);
      round_trip.expect(Format<T>::narrow(wide).bits == (bits | quiet_bit<T>), bits);
      continue;
    }
    const bool infinite = (bits & 0x7fff) == infinity_bits<T>;
    const double expected = infinite ? std::copysign(HUGE_VAL, bits & 0x8000 ? -1.0 : 1.0) : finite_value<T>(bits);
    widening.expect(static_cast<double>(wide) == expected && std::signbit(wide) == std::signbit(expected), bits);
    round_trip.expect(Format<T>::narrow(wide).bits == bits, bits);
  }
  check_none("widening", widening);
  check_none("round trip", round_trip);
}

TEST_CASE_TEMPLATE("between two neighbours the nearer one wins, and the even one in the middle", T, Half, BFloat16) {
  Failures tie_failures, below_failures, above_failures;
  for (uint32_t low = 0; low < infinity_bits<T>; ++low) {
    const double middle = (finite_value<T>(low) + finite_value<T>(low + 1)) / 2;
    const float tie = static_cast<float>(middle);
    REQUIRE(static_cast<double>(tie) == middle);
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      const uint32_t even = low % 2 == 0 ? low : low + 1;
      tie_failures.expect(Format<T>::narrow(s * tie).bits == (sign | even), s * tie);
      below_failures.expect(Format<T>::narrow(s * std::nextafterf(tie, 0)).bits == (sign | low), s * tie);
      above_failures.expect(Format<T>::narrow(s * std::nextafterf(tie, HUGE_VALF)).bits == (sign | (low + 1)), s * tie);
    }
  }
  check_none("tie", tie_failures);
  check_none("below", below_failures);
  check_none("above", above_failures);
}

TEST_CASE("conversions work in constant expressions") {
  static_assert(to_half(1.0f).bits == 0x3c00 && to_float(Half{0x3c00}) == 1.0f);
  static_assert(to_bfloat16(1.0f).bits == 0x3f80 && to_float(BFloat16{0x3f80}) == 1.0f);
  static_assert(to_float(Half{0x0001}) == 0x1p-24f);
}

TEST_CASE_TEMPLATE("a million random floats narrow to the nearest value", T, Half, BFloat16) {
  const RandomStream stream{16, RandomPurpose::synthetic, 0, 0, 0};
  Failures any, in_range;
  for (uint32_t block = 0; block < 1u << 18; ++block) {
    const Random4 random = random_block(stream, block);
    for (const uint32_t bits : random.word) {
      const float value = std::bit_cast<float>(bits);  // any pattern: most overflow or vanish as Half
      any.expect(right<T>(value, Format<T>::narrow(value)), value);
      const uint32_t exponent = 100 + (bits >> 23 & 0x7f) % 48;  // 2^-27 to 2^20: Half's range and a little more
      const float close = std::bit_cast<float>((bits & 0x807fffffu) | exponent << 23);
      in_range.expect(right<T>(close, Format<T>::narrow(close)), close);
    }
  }
  check_none("any", any);
  check_none("in range", in_range);
}

template <class From, class To>
std::vector<To> cast_all(const std::vector<From>& values) {
  return cast(Tensor::from(values, {static_cast<int64_t>(values.size())}), dtype_of<To>).template to_vector<To>();
}

TEST_CASE_TEMPLATE("cast from f64 rounds once: a double beside a tie does not become the tie first", T, Half,
                   BFloat16) {
  std::vector<double> values;
  const auto add = [&](double value) { values.insert(values.end(), {value, -value}); };
  for (const double value : {0.0, HUGE_VAL, std::nan(""), DBL_MAX, DBL_MIN, 1e300, 1e-300, 0x1.fffffefffffffp127,
                             0x1p-1074, 65520.0, std::nextafter(65520.0, 0), std::nextafter(0x1p-25, 1)}) {
    add(value);
  }
  for (uint32_t low = 0; low < infinity_bits<T>; ++low) {
    const double tie = (finite_value<T>(low) + finite_value<T>(low + 1)) / 2;
    for (const double value : {std::nextafter(tie, 0), tie, std::nextafter(tie, HUGE_VAL), tie * (1 + 0x1p-30)}) {
      add(value);
    }
  }
  const RandomStream stream{18, RandomPurpose::synthetic, 0, 0, 0};
  for (uint32_t i = 0; i < 1u << 17; ++i) {
    const Random4 random = random_block(stream, i);
    const uint64_t exponent = 1023 - 160 + random.word[2] % 300;  // 2^-160 to 2^139: beyond BFloat16 at both ends
    values.push_back(
        std::bit_cast<double>(uint64_t{random.word[0] & 0x800fffffu} << 32 | exponent << 52 | random.word[1]));
  }
  const auto got = cast_all<double, T>(values);
  Failures failures;
  for (size_t i = 0; i < values.size(); ++i) failures.expect(right<T>(values[i], got[i]), values[i]);
  check_none("failures", failures);
}

TEST_CASE("cast between the two 16-bit formats rounds once") {
  std::vector<Half> halves;
  std::vector<BFloat16> brains;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    halves.push_back({static_cast<uint16_t>(bits)});
    brains.push_back({static_cast<uint16_t>(bits)});
  }
  const auto to_brain = cast_all<Half, BFloat16>(halves);
  const auto back = cast_all<BFloat16, Half>(brains);
  Failures failures;
  for (size_t i = 0; i < halves.size(); ++i) {
    failures.expect(right<BFloat16>(to_float(halves[i]), to_brain[i]), static_cast<double>(i));
    failures.expect(right<Half>(to_float(brains[i]), back[i]), static_cast<double>(i));
  }
  check_none("failures", failures);
}

}  // namespace
}  // namespace hs
