// The arithmetic of the CUDA kernels' indices, which needs no device.
#include <doctest/doctest.h>

#include "kernels/cuda/index.h"

namespace hs::test {

TEST_CASE("indices of 32 bits: division by multiplication is exact, and launches are cut where indices would end") {
  for (const int64_t divisor : {1, 2, 3, 5, 6, 7, 9, 10, 32, 63, 784, 65535, 65536, 65537, 1 << 30, INT32_MAX}) {
    const Divisor by(divisor);
    const auto check = [&](int64_t n) {
      if (n < 0 || n > most_indices) return;
      const auto [quotient, remainder] = by.divide(static_cast<uint32_t>(n));
      CAPTURE(n);
      CHECK((quotient == n / divisor && remainder == n % divisor));
    };
    INFO("divisor ", divisor);
    for (int64_t k = 0; k <= most_indices / divisor; k += 1 + k / 7) {
      for (const int64_t beside : {-1, 0, 1}) check(k * divisor + beside);
    }
    for (int64_t n = most_indices; n > most_indices - 100; --n) check(n);
  }
  CHECK(images_per_launch("op", 10, 784) == 10);
  CHECK(images_per_launch("op", 10, most_indices / 3) == 3);
  CHECK(images_per_launch("op", 10, most_indices) == 1);
  CHECK(images_per_launch("op", 0, 0) == 1);
  CHECK_THROWS_WITH_AS(images_per_launch("op", 10, most_indices + 1),
                       "op: an image has 2147483648 elements, expected at most 2147483647 on this device; cut it into "
                       "smaller ones",
                       Error);
}

}  // namespace hs::test
