// The one comparator, used by every test that compares numbers, and the one table of tolerances.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "engine/tensor.h"

namespace hs::examples {

// An element passes if |got - reference| <= absolute + relative * |reference| + its allowance (CompareOptions); a
// tensor passes if all elements do and ||got - reference||_F <= frobenius * ||reference||_F. frobenius 0: not checked.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
  double frobenius = 0;
};

// By operation, for f32 results against an f64 reference that is computed from the f32 inputs. Changing one is a design
// decision: say why here. u = 2^-24 is the unit roundoff of f32.
namespace tolerance {
inline constexpr double u32 = 0x1p-24;
inline constexpr Tolerance exact = {};                       // selections and single IEEE operations
inline constexpr Tolerance two_roundings = {4 * u32, 0, 0};  // a factor that is not representable, then a product
// A sum of K products; elements are held to sum_allowance. The composed row has no such bound and gets 1e-5.
inline constexpr Tolerance gemm = {0, 0, 2e-6};
inline constexpr Tolerance composed = {1e-5, 4e-6, 2e-6};
inline constexpr Tolerance sum = {4 * u32, 0, 0};  // added in double, rounded once
inline constexpr Tolerance cross_entropy = {2e-6, 1e-6, 0};
inline constexpr Tolerance cross_entropy_gradient = {1e-5, 1e-7, 0};
inline constexpr Tolerance optimizer = {1e-6, 4 * u32, 0};    // absolute: states of size one may cancel
inline constexpr Tolerance gradient_check = {1e-6, 1e-8, 0};  // f64, central differences
// f64 against f64: a kernel with f32 inside it is off by more, and the order of a sum by less.
inline constexpr Tolerance in_f64 = {1e-10, 1e-10, 0};
// What a call writes at the sizes of a training step, where no row bounds its elements: only the norm is held. It tells
// a wrong result from a right one; how exact a kernel is, the rows say. Gradients cancel, so that the norm of a right
// one may be off by 1e-5; factors that are rounded to f16 make it 3e-4.
inline constexpr Tolerance call = {0, std::numeric_limits<double>::infinity(), 1e-4};

// The rounding error allowed in a sum of K terms whose magnitudes add up to `magnitude`: 8 sqrt(K) u magnitude. Errors
// of random sign grow with sqrt(K); 8 standard deviations do not happen, and a lost term is far larger.
double sum_allowance(int64_t K, double magnitude);

// The same for K values of random signs that are added in turn, absolutely, where their root mean square is known: the
// partial sums walk up to sqrt(K) of it, and each addition is off by up to u of its sum, u / sqrt(3) on average. That
// is u K / sqrt(6) together, and this 8 standard deviations.
constexpr double walk(int64_t K, double root_mean_square) {
  return 3.3 * u32 * static_cast<double>(K) * root_mean_square;
}
inline constexpr double rms = 0.58;  // of numbers in [-1, 1), as most inputs are

// Results in 16 bits are f32 arithmetic within the f32 bounds, rounded to the type: the error is at most u |value|, or
// half the smallest subnormal. Over many values that error has a root mean square of 0.38 u (uniform in half a unit in
// the last place), or 0.65 u after three intermediate roundings; `frobenius` is 0.82 u. u = 0: f32, no such rounding.
struct Rounding {
  double u, half_smallest, frobenius;
};
constexpr Rounding rounding_to(DType dtype) {
  if (dtype == DType::f16) return {0x1p-11, 0x1p-25, 4e-4};
  if (dtype == DType::bf16) return {0x1p-8, 0x1p-134, 3.2e-3};
  return {};
}
// call for results in this type: two variants may each round up to three times on their way.
Tolerance call_in(DType dtype);
// `f32` plus one rounding to the type. The norm is checked only for `averaging` results: few values, or copies of one,
// may all be rounded by u, or cancel.
Tolerance rounded_to(DType dtype, const Tolerance& f32, bool averaging);
}  // namespace tolerance

struct Comparison {
  bool passed = false;
  int64_t failures = 0;      // elements out of tolerance
  int64_t worst_index = -1;  // the element with the largest error relative to its tolerance
  double worst_share = 0;    // that ratio; 1: exactly at the tolerance; inf for a non-finite mismatch
  double relative_norm = 0;  // ||got - reference||_F / ||reference||_F; inf for a non-finite mismatch
  std::string summary;       // one line for a person
};

struct CompareOptions {
  bool nan_expected = false;               // true: NaN in both is equal; false: any NaN fails
  double largest_zero_share = 1;           // a reference with a larger fraction of zeros proves little and fails
  std::span<const double> allowance = {};  // absolute, element by element; empty: none
};

// Different sizes fail. Infinities of the same sign are equal. Any other non-finite value fails.
Comparison compare(std::span<const double> got, std::span<const double> reference, const Tolerance& tolerance,
                   const CompareOptions& options = {});

}  // namespace hs::examples
