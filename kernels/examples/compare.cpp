#include "kernels/examples/compare.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#ifdef __FAST_MATH__
#error "the comparator needs IEEE arithmetic: NaN must compare as NaN"
#endif

namespace hs::examples {

double tolerance::sum_allowance(int64_t K, double magnitude) {
  return 8 * std::sqrt(static_cast<double>(K)) * u32 * magnitude;
}

Tolerance tolerance::rounded_to(DType dtype, const Tolerance& f32, bool averaging) {
  const Rounding rounding = rounding_to(dtype);
  return {f32.relative + rounding.u, f32.absolute + rounding.half_smallest,
          averaging ? std::hypot(f32.frobenius, rounding.frobenius) : 0};
}

Tolerance tolerance::call_in(DType dtype) {
  const Rounding rounding = rounding_to(dtype);
  return {call.relative, call.absolute, rounding.u == 0 ? call.frobenius : 4 * rounding.frobenius};
}

Comparison compare(std::span<const double> got, std::span<const double> reference, const Tolerance& tolerance,
                   const CompareOptions& options) {
  Comparison result;
  if (got.size() != reference.size() || (!options.allowance.empty() && options.allowance.size() != got.size())) {
    result.summary = fmt::format("{} elements, expected {}", got.size(), reference.size());
    return result;
  }
  double difference_square = 0, reference_square = 0;
  size_t zeros = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i], r = reference[i];
    zeros += r == 0;
    double share = 0;  // of the tolerance
    if (std::isfinite(g) && std::isfinite(r)) {
      const double difference = std::fabs(g - r);
      const double allowed = tolerance.absolute + tolerance.relative * std::fabs(r) +
                             (options.allowance.empty() ? 0 : options.allowance[i]);
      share = difference == 0 ? 0 : difference / allowed;  // inf when nothing is allowed
      difference_square += difference * difference;
      reference_square += r * r;
    } else if (!(g == r) && !(options.nan_expected && std::isnan(g) && std::isnan(r))) {
      share = difference_square = std::numeric_limits<double>::infinity();
    }
    if (!(share <= 1)) ++result.failures;
    if (result.worst_index < 0 || share > result.worst_share) {
      result.worst_share = share;
      result.worst_index = static_cast<int64_t>(i);
    }
  }
  const double norm = std::sqrt(difference_square), allowed_norm = tolerance.frobenius * std::sqrt(reference_square);
  const bool norm_passed = tolerance.frobenius == 0 || norm <= allowed_norm;
  result.relative_norm = norm == 0 ? 0 : norm / std::sqrt(reference_square);
  const bool trusted = static_cast<double>(zeros) <= options.largest_zero_share * static_cast<double>(got.size());
  result.passed = result.failures == 0 && norm_passed && trusted;
  if (got.empty()) {
    result.summary = "both empty";
    return result;
  }
  const size_t worst = static_cast<size_t>(result.worst_index);
  result.summary =
      fmt::format("{} of {} elements out of tolerance; worst at {}: got {:.9g}, expected {:.9g}, {:.0f}% of tolerance",
                  result.failures, got.size(), worst, got[worst], reference[worst], 100 * result.worst_share);
  if (!norm_passed) result.summary += fmt::format("; Frobenius difference {:.3g}, allowed {:.3g}", norm, allowed_norm);
  if (!trusted) result.summary += fmt::format("; not trusted: {} of {} reference values are zero", zeros, got.size());
  return result;
}

}  // namespace hs::examples
