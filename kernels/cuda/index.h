// Indices of 32 bits, for kernels that compute a position from an index: a GPU has no instruction that divides, and for
// 64 bits it runs about a hundred others. What has more than 2^31 - 1 elements is processed in several launches.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "engine/error.h"
#include "engine/host_device.h"

namespace hs {

inline constexpr int64_t max_indices = INT32_MAX;

// Divides by a number that is known before the launch: a multiplication and a shift. With 2^shift = 2^31 times the
// power of two at or above the divisor, and factor = 2^shift / divisor rounded up, the error is too small to reach the
// next whole number. Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
class Divisor {
 public:
  // REQUIRES: 1 <= divisor < 2^31
  explicit Divisor(int64_t divisor)
      : divisor_(static_cast<uint32_t>(divisor)),
        shift_(31 + static_cast<uint32_t>(std::bit_width(divisor_ - 1))),
        factor_(static_cast<uint32_t>(((uint64_t{1} << shift_) + divisor_ - 1) / divisor_)) {}

  struct Result {
    uint32_t quotient, remainder;
  };
  // REQUIRES: n < 2^31
  HS_HOST_DEVICE Result divide(uint32_t n) const {
    const auto quotient = static_cast<uint32_t>(uint64_t{n} * factor_ >> shift_);
    return {quotient, n - quotient * divisor_};
  }
  HS_HOST_DEVICE uint32_t divisor() const { return divisor_; }

 private:
  uint32_t divisor_, shift_, factor_;
};

// How many images a launch can process, at least 1. Throws Error (usage) if not even one has indices of 32 bits.
inline int64_t images_per_launch(const char* op, int64_t images, int64_t elements_per_image) {
  if (elements_per_image > max_indices) {
    throw Error(ExitCode::usage, std::string(op) + ": an image has " + std::to_string(elements_per_image) +
                                     " elements, expected at most " + std::to_string(max_indices) +
                                     " on this device; cut it into smaller ones");
  }
  return std::clamp<int64_t>(max_indices / std::max<int64_t>(elements_per_image, 1), 1, std::max<int64_t>(images, 1));
}

}  // namespace hs
