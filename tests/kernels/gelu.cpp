// gelu far from zero, where a careless order of its operations gives inf * 0.
#include "kernels/gelu/gelu.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "kernels/cast/cast.h"

namespace hs::test {

TEST_CASE("gelu far from zero is x or 0, and its gradient 1 or 0") {
  const std::vector<float> far = {20, 1e3f, 1e5f, 1e18f, 1e25f, 3e38f};
  std::vector<float> x = far;
  for (const float value : far) x.push_back(-value);
  const auto count = static_cast<int64_t>(x.size());
  for (const char* variant : {"simple", "simd"}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      if (dtype == DType::f64 && std::string(variant) == "simd") continue;
      gelu_forward.force(variant);
      gelu_backward.force(variant);
      const Tensor in = cast(Tensor::from(x, {count}), dtype);
      Tensor y = in.empty_like(), dx = in.empty_like();
      gelu_forward({in, y});
      gelu_backward({in, cast(Tensor::from(std::vector<float>(x.size(), 1), {count}), dtype), dx});
      const auto values = cast(in, DType::f64).to_vector<double>(), results = cast(y, DType::f64).to_vector<double>(),
                 gradients = cast(dx, DType::f64).to_vector<double>();
      for (size_t i = 0; i < x.size(); ++i) {
        CAPTURE(x[i]);
        CHECK(std::fabs(results[i] - (x[i] > 0 ? values[i] : 0)) < 1e-30);
        CHECK(std::fabs(gradients[i] - (x[i] > 0 ? 1 : 0)) < 1e-30);
      }
      gelu_forward.force(nullptr);
      gelu_backward.force(nullptr);
    }
  }
}

}  // namespace hs::test
