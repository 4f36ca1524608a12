// inf and NaN in conv2d's gradients on the CPU, also where kernels skip zeros.
#include "tests/support/conv2d_not_finite.h"

namespace hs::test {

TEST_CASE("one inf or NaN in dy, or in an x that dy needs, reaches the gradients that the scaler looks at") {
  const Convolution convolutions[] = {
      {{2, 5, 5, 1}, 2},
      {{17, 9, 9, 1}, 32},  // conv1 of mnist_cnn: few channels in
      {{2, 5, 6, 2}, 3, {.kernel_h = 2, .kernel_w = 3}},
      {{2, 7, 7, 6}, 20, {.stride = 2, .padding = 1}},
      {{6, 8, 9, 32}, 64},  // conv2 of mnist_cnn
      {{2, 6, 7, 32}, 70, {.padding = 1}},
      {{2, 6, 6, 64}, 40, {.kernel_h = 5, .kernel_w = 3, .padding = 2}},
      {{3, 5, 4, 32}, 16, {.kernel_h = 1, .kernel_w = 1}},
  };
  for (const Convolution& c : convolutions) check_not_finite(c, Device::cpu);
}

TEST_CASE("where dy is zero, variants that skip zeros do not see an inf in x, and the others make NaN of it") {
  const OpCase row = row_with_gradient({{2, 8, 9, 32}, 64}, [](Tensor& dy) { dy.fill_zero(); });
  int runs = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const RowRun how = run_on(Device::cpu, dtype);
    const Inputs inputs = inputs_with(row, how, INFINITY);
    for_each_variant(row, how, [&](const std::string& description) {
      const std::string slot = "conv2d_backward=";
      const size_t found = description.find(slot);
      if (found == std::string::npos) return;
      INFO(description);
      const std::string variant = description.substr(found + slot.size());
      const bool skips = variant == "direct" || variant == "winograd" || variant == "avx512_bf16";
      const auto results = run_row(row, inputs, how);  // outside CHECK, which would catch what it throws
      ++runs;
      CHECK(is_finite(results[2]) == skips);
    });
  }
  CHECK(runs >= 8);
}

}  // namespace hs::test
