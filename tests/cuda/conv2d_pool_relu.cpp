// conv2d_pool_relu on the device beside what tests/cuda/ops.cpp asks of every variant: shapes that only the naive one
// takes, which variants the models run, and the fused op against the three ops that it stands for.
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <string>

#include "engine/ambient.h"
#include "kernels/cast/cast.h"
#include "tests/support/checks.h"
#include "tests/support/random_tensor.h"

namespace hs::test {
namespace {

struct Convolution {
  Shape x;
  int64_t OC;
  Conv2dOptions options = {};
  bool pools = true;  // else it is conv2d
};

// Of whole numbers, so that sums are exact, and equal values in a window are common.
using Results = std::array<Tensor, 4>;  // y and the gradients of x, weight and bias, on the CPU in f32

Results run(const Convolution& c, Device device, DType dtype, const DropoutRule& dropped = {}) {
  const Conv2dOptions& o = c.options;
  Tensor leaves[] = {whole_numbers(c.x, 1).to(device),
                     whole_numbers({o.kernel_h * o.kernel_w * c.x[3], c.OC}, 2).to(device),
                     whole_numbers({c.OC}, 3).to(device)};
  for (Tensor& leaf : leaves) leaf.set_requires_grad(true);
  const Tensor x = cast(leaves[0], dtype), w = cast(leaves[1], dtype), b = cast(leaves[2], dtype);
  const Tensor y = c.pools ? conv2d_pool_relu(x, w, b, o, dropped) : conv2d(x, w, b, o);
  backward(y, cast(whole_numbers(y.shape(), 4).to(device), dtype));
  Results results = {cast(y.detach(), DType::f32).to(Device::cpu)};
  for (size_t i = 0; i < 3; ++i) results[i + 1] = leaves[i].grad().to(Device::cpu);
  return results;
}

void check_equal(const Results& got, const Results& expected, DType dtype) {
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("result ", i);
    // Sums are exact in f32; what is stored in 16 bits is rounded once.
    const Tensor rounded = cast(cast(expected[i], dtype), DType::f32);
    CHECK(to_numbers(got[i]) == to_numbers(rounded));
  }
}

struct Force {
  explicit Force(const char* variant)
      : forward(conv2d_pool_relu_forward, variant), backward(conv2d_pool_relu_backward, variant) {}
  const ForcedVariant forward, backward;
};

// By the plain sums, which are exact on integers.
Results run_on_cpu(const Convolution& c) {
  const Force direct("direct");
  const ForcedVariant forward(conv2d_forward, "direct"), backward(conv2d_backward, "direct");
  return run(c, Device::cpu, DType::f32);
}

// The variants that ran since the last question, as "mma" or "mma and direct".
std::string variants_that_ran(const KernelSlot& slot) {
  static std::map<const VariantBase*, uint64_t> before;
  std::string names;
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    const bool ran = v->device == Device::cuda && v->calls != std::exchange(before[v], v->calls);
    if (ran) names += (names.empty() ? "" : " and ") + std::string(v->name);
  }
  return names;
}

}  // namespace

TEST_CASE("the naive variant gives the CPU's integers for every shape, stride and padding") {
  const Convolution shapes[] = {{{2, 6, 7, 2}, 3, {.stride = 2}},
                                {{2, 9, 8, 1}, 5, {.stride = 3, .padding = 2}},
                                {{1, 7, 8, 5}, 7, {.kernel_h = 4, .kernel_w = 3, .padding = 1}},
                                {{3, 4, 4, 24}, 17, {.kernel_h = 1, .kernel_w = 1}},
                                {{2, 5, 9, 6}, 10, {.kernel_h = 2, .kernel_w = 5, .padding = 3}},
                                {{0, 6, 6, 2}, 3}};
  for (const Convolution& c : shapes) {
    CAPTURE(c.x.to_string());
    const Results expected = run_on_cpu(c);
    const Force naive("naive");
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      CAPTURE(hs::name(dtype));
      check_equal(run(c, Device::cuda, dtype), expected, dtype);
    }
  }
}

// Matrix products of several bands and tiles of channels are rows of the op table.
TEST_CASE("the layers of mnist_cnn, mnist_cnn_large and resnet8 run the fast variants, with the CPU's integers") {
  const struct {
    Convolution c;
    DType dtype;
    const char* variant;
  } layers[] = {{{{2, 28, 28, 1}, 32}, DType::f32, "direct"},
                {{{2, 28, 28, 1}, 32}, DType::f16, "mma_first_layer"},
                {{{1, 32, 32, 3}, 32}, DType::bf16, "mma_first_layer"},
                {{{2, 13, 13, 32}, 64}, DType::f16, "mma"},
                {{{1, 26, 26, 32}, 64}, DType::bf16, "mma"},
                {{{1, 26, 26, 32}, 64}, DType::f16, "mma"},
                {{{130, 3, 2, 16}, 16, {.kernel_h = 2, .kernel_w = 1}}, DType::f16, "mma"},  // two images in each part
                {{{2, 6, 6, 16}, 32, {.kernel_h = 5, .kernel_w = 3, .padding = 2}}, DType::f16, "mma"},
                {{{3, 9, 8, 3}, 16, {.padding = 1}, false}, DType::f16, "mma_first_layer"},
                {{{3, 8, 9, 16}, 32, {.stride = 2, .padding = 1}, false}, DType::f16, "mma"},
                {{{2, 8, 8, 16}, 32, {.kernel_h = 1, .kernel_w = 1, .stride = 2}, false}, DType::f16, "mma"},
                {{{9, 9, 8, 32}, 80, {.padding = 1}, false}, DType::f16, "mma"}};
  for (const auto& [c, dtype, variant] : layers) {
    CAPTURE(c.x.to_string());
    const KernelSlot &forward = c.pools ? static_cast<KernelSlot&>(conv2d_pool_relu_forward) : conv2d_forward,
                     &backward = c.pools ? static_cast<KernelSlot&>(conv2d_pool_relu_backward) : conv2d_backward;
    const Results expected = run_on_cpu(c);
    variants_that_ran(forward), variants_that_ran(backward);
    const Results got = run(c, Device::cuda, dtype);
    CHECK(variants_that_ran(forward) == variant);
    CHECK(variants_that_ran(backward) == variant);
    check_equal(got, expected, dtype);
  }
}

TEST_CASE("dropout in the kernel has the bits of dropout behind it, forward and backward") {
  const struct {
    Convolution c;
    const char* variant;
  } layers[] = {{{{3, 13, 13, 32}, 64}, "mma"},
                {{{1, 5, 6, 48}, 80}, "mma"},
                {{{1, 26, 26, 16}, 16}, "mma"},
                {{{2, 6, 7, 2}, 3, {.stride = 2}}, "naive"}};
  for (const auto& [c, variant] : layers) {
    CAPTURE(c.x.to_string());
    const Force force(variant);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      for (const double rate : {0.5, 0.3}) {
        CAPTURE(rate);
        const Tensor step = Tensor::from(std::vector<int32_t>{17}, {}).to(Device::cuda);
        const DropoutRule rule{rate, {11, RandomPurpose::dropout, 2, 1, 3}, step};
        const uint64_t before = calls_of(dropout_mask);
        const Results inside = run(c, Device::cuda, dtype, rule);
        CHECK(calls_of(dropout_mask) == before);
        const ForcedVariant simple(dropout_mask, "simple");
        const Results behind = run(c, Device::cuda, dtype, rule);
        CHECK(calls_of(dropout_mask) == before + 2);
        for (size_t i = 0; i < inside.size(); ++i) {
          INFO("result ", i);
          CHECK(to_numbers(inside[i]) == to_numbers(behind[i]));
        }
        CHECK(to_numbers(inside[0]) != to_numbers(run(c, Device::cuda, dtype)[0]));
      }
    }
  }
}

TEST_CASE("no variant that is slower than the three ops is chosen") {
  variants_that_ran(conv2d_pool_relu_forward);
  run({{2, 6, 6, 2}, 3}, Device::cuda, DType::f32);
  run({{2, 6, 6, 32}, 64}, Device::cuda, DType::f32);  // the products of f32 are the library's
  CHECK(variants_that_ran(conv2d_pool_relu_forward) == "");
}

}  // namespace hs::test
