// batch_norm2d beyond the op table: large means, what is fused, and errors. The running tensors:
// tests/models/statistics.cpp.
#include "kernels/batch_norm2d/batch_norm2d.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/slots.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/op_table.h"
#include "kernels/relu/relu.h"
#include "tests/support/checks.h"
#include "tests/support/random_tensor.h"
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

constexpr double u32 = tolerance::u32;

// Uniform, of this mean and deviation.
Tensor random_values(const Shape& shape, uint32_t which, double mean = 0, double deviation = 1) {
  const double side = std::sqrt(3.0) * deviation;
  return random_tensor(shape, which, mean - side, mean + side);
}

Tensor leaf(Tensor x) {
  x.set_requires_grad(true);
  return x;
}

Tensor constant(int64_t C, float value) { return Tensor::from(std::vector<float>(static_cast<size_t>(C), value), {C}); }

// Mean and variance (divided by M - 1) of each channel.
struct Moments {
  Numbers mean, variance;
  Moments(const Numbers& x, size_t C) : mean(C), variance(C) {
    const auto M = static_cast<double>(x.size() / C);
    for (size_t i = 0; i < x.size(); ++i) mean[i % C] += x[i] / M;
    for (size_t i = 0; i < x.size(); ++i) variance[i % C] += std::pow(x[i] - mean[i % C], 2) / (M - 1);
  }
};

// Calls body() with the default variants and then with each CPU variant of batch_norm2d forced that supports it.
template <class Body>
void for_variants(const Body& body) {
  body();
  for (KernelSlot* slot :
       {static_cast<KernelSlot*>(&batch_norm2d_statistics), static_cast<KernelSlot*>(&batch_norm2d_forward),
        static_cast<KernelSlot*>(&batch_norm2d_backward)}) {
    for (const char* variant : {"simple", "simd"}) {
      INFO(std::string(slot->name()), "=", std::string(variant));
      const ForcedVariant forced(*slot, variant);
      body();
    }
  }
}

}  // namespace

TEST_CASE("a mean a thousand times the deviation costs no digits of the variance but those of x") {
  constexpr size_t C = 16;
  for_variants([&] {
    const Tensor x = random_values({40, 9, 10, C}, 3, 1000, 1);
    const Moments expected(to_numbers(x), C);
    Tensor mean = Tensor::empty({C}, DType::f32), variance = Tensor::empty({C}, DType::f32);
    batch_norm2d_statistics({x, mean, variance});
    for (size_t c = 0; c < C; ++c) {
      CHECK(to_numbers(mean)[c] == doctest::Approx(expected.mean[c]).epsilon(2 * u32));
      CHECK(to_numbers(variance)[c] == doctest::Approx(expected.variance[c]).epsilon(8 * u32));  // 1e6 u32 without care
    }
  });
}

TEST_CASE("with only the running tensors wanted, backward still returns the statistics") {
  const Tensor x = random_values({6, 4}, 8), running_mean = leaf(constant(4, 0)),
               running_variance = leaf(constant(4, 1));
  const Tensor y = batch_norm2d(x, constant(4, 1), constant(4, 0), running_mean, running_variance);
  backward(y, x);
  CHECK(to_numbers(running_mean.grad())[3] == doctest::Approx(Moments(to_numbers(x), 4).mean[3]));
}

TEST_CASE(
    "a ReLU, the end of a residual block and the sum of the gradients of its readers keep their bits in one pass") {
  constexpr int64_t C = 32;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool has_residual : {false, true}) {
      const auto run = [&](bool fuse) {
        const AmbientScope scope;
        ambient().fuse = fuse;
        const Tensor x = leaf(random_values({9, 15, C}, 18)), residual = leaf(random_values({9, 15, C}, 19)),
                     scale = leaf(random_values({C}, 20)), shift = leaf(random_values({C}, 21));
        const uint64_t separate = calls_of(relu_forward), added = calls_of(add_forward);
        const Tensor y = batch_norm2d(cast(x, dtype), scale, shift, {}, {}, {.relu = true},
                                      has_residual ? cast(residual, dtype) : Tensor());
        const Tensor read = add(add(y, mul(y, y)), y);  // four gradients; the last can wait for the rule
        backward(read, cast(random_values(y.shape(), 22), dtype));
        CHECK(calls_of(relu_forward) - separate == (fuse ? 0 : 1));
        // Two sums in forward, three if the residual is added alone; and of gradients two, three if none waits.
        CHECK(calls_of(add_forward) - added == (fuse ? 2 + 2 : 2 + has_residual + 3));
        return std::vector<Tensor>{y.detach(), x.grad(), scale.grad(), shift.grad(),
                                   has_residual ? residual.grad() : shift.grad()};
      };
      const auto fused = run(true), separate = run(false);
      for (size_t i = 0; i < fused.size(); ++i) CHECK(same_bytes(fused[i], separate[i]));
    }
  }
}

TEST_CASE("arguments that do not fit are one line that says what would") {
  const Tensor scale = constant(3, 1);
  CHECK(error_of([&] {
          batch_norm2d(Tensor::zeros({1, 1, 1, 3}, DType::f32), scale, scale, {}, {});
        }) ==
        "batch_norm2d: x is (1, 1, 1, 3), which is 1 values per channel; expected at least 2 in training, use a larger "
        "batch, and one that leaves no single sample for the last of an epoch");
  const Tensor x = Tensor::zeros({2, 3}, DType::f32);
  CHECK(error_of([&] { batch_norm2d(x, constant(2, 1), scale, {}, {}); }) ==
        "batch_norm2d: x is f32(2, 3), scale f32(2) and shift f32(3); expected both as f32(3)");
  const Tensor half = cast(x, DType::f16);
  CHECK(error_of([&] { batch_norm2d(half, cast(scale, DType::f16), scale, {}, {}); }) ==
        "batch_norm2d: x is f16(2, 3), scale f16(3) and shift f32(3); expected both as f32(3)");
  CHECK(error_of([&] { batch_norm2d(x, scale, scale, constant(4, 0), {}); }) ==
        "batch_norm2d: x is f32(2, 3), running_mean f32(4) and running_variance undefined; expected both as f32(3) or "
        "undefined");
  CHECK(error_of([&] { batch_norm2d(x, scale, scale, {}, {}, {.relu = true}, scale); }) ==
        "batch_norm2d: x is f32(2, 3) and residual f32(3); expected the same, and the option relu");
  const Inference inference;
  CHECK(error_of([&] { batch_norm2d(x, scale, scale, scale, {}); }) ==
        "batch_norm2d: x is f32(2, 3), running_mean f32(3) and running_variance undefined; expected both as f32(3)");
}

}  // namespace hs::test
