// conv2d in f16 and bf16 on the CPU: every variant against plain loops in f64, computed from the inputs as they were
// rounded.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "engine/optim.h"
#include "engine/parallel.h"
#include "kernels/conv2d_amx.h"
#include "tests/half_support.h"
#include "tests/support/naive.h"

namespace hs::test {
namespace {

using namespace half;

// Variants of this program alone, tried after all others.
REGISTER_KERNEL(conv2d_forward, cpu, "amx emulated",
                {.run = amx::forward<EmulatedTiles>,
                 .supported = [](const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes& s, Tensor&,
                                 Tensor&) { return amx::takes_forward(x, s); },
                 .workspace = [](const Tensor&, const Tensor&, const Tensor&, const Conv2dSizes& s, Tensor&,
                                 Tensor&) { return amx::forward_workspace(s); },
                 .rank = -1});
REGISTER_KERNEL(conv2d_backward, cpu, "amx emulated",
                {.run = amx::backward<EmulatedTiles>,
                 .supported = [](const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes& s, bool, Tensor&,
                                 Tensor& dx, Tensor&, Tensor&) { return amx::takes_backward(x, s, dx); },
                 .workspace = [](const Tensor&, const Tensor&, const Tensor&, const Conv2dSizes& s, bool, Tensor&,
                                 Tensor& dx, Tensor&, Tensor&) { return amx::backward_workspace(s, dx.defined()); },
                 .rank = -1});

struct Convolution {
  Conv2dSizes s;
  double density;  // of dy
  std::string name() const {
    return fmt::format("conv2d {}x{}x{}x{} {}x{} ->{} stride {} padding {} density {}", s.N, s.H, s.W, s.C, s.KH, s.KW,
                       s.OC, s.stride, s.padding, density);
  }
};

Convolution convolution(const Shape& x, int64_t OC, const Conv2dOptions& o, double density) {
  Conv2dSizes s{};
  s.N = x[0], s.H = x[1], s.W = x[2], s.C = x[3], s.OC = OC;
  s.KH = o.kernel_h, s.KW = o.kernel_w, s.stride = o.stride, s.padding = o.padding;
  s.OH = (s.H + 2 * s.padding - s.KH) / s.stride + 1;
  s.OW = (s.W + 2 * s.padding - s.KW) / s.stride + 1;
  return {s, density};
}

std::vector<Convolution> convolutions() {
  return {
      convolution({2, 5, 5, 1}, 2, {}, 1),
      convolution({1, 3, 3, 1}, 1, {}, 1),
      convolution({17, 9, 9, 1}, 32, {}, 1),  // conv1 of mnist_cnn: few channels in
      convolution({2, 5, 6, 2}, 3, {.kernel_h = 2, .kernel_w = 3}, 0.4),
      convolution({2, 7, 7, 6}, 20, {.stride = 2, .padding = 1}, 1),
      convolution({18, 8, 9, 32}, 64, {}, 0.15),  // conv2 of mnist_cnn
      convolution({2, 8, 9, 32}, 64, {}, 1),
      convolution({2, 6, 7, 32}, 70, {.padding = 1}, 0.5),
      convolution({2, 7, 6, 96}, 17, {.stride = 2, .padding = 2}, 0.5),
      convolution({2, 6, 6, 64}, 40, {.kernel_h = 5, .kernel_w = 3, .padding = 2}, 1),
      convolution({3, 5, 4, 32}, 16, {.kernel_h = 1, .kernel_w = 1}, 0.3),
      convolution({2, 8, 8, 40}, 33, {.kernel_h = 3, .kernel_w = 2, .padding = 1}, 0.3),
      convolution({1, 13, 40, 32}, 32, {.padding = 1}, 0.2),
      convolution({0, 5, 5, 32}, 3, {}, 1),
  };
}

struct Operands {
  Tensor x, weight, bias, dy;
  Operands(const Convolution& c, DType type, bool integers) {
    const Conv2dSizes& s = c.s;
    x = random_tensor({s.N, s.H, s.W, s.C}, type, 11, integers);
    weight = random_tensor({s.K(), s.OC}, type, 12, integers);
    bias = random_tensor({s.OC}, type, 13, integers);
    dy = random_tensor({s.N, s.OH, s.OW, s.OC}, type, 14, integers, c.density);
  }
  Operands map(const std::function<Tensor(const Tensor&)>& f) const {
    Operands copy = *this;
    for (Tensor* t : {&copy.x, &copy.weight, &copy.bias, &copy.dy}) *t = f(*t);
    return copy;
  }
};

// y, dx, dweight and dbias; the latter two of `gradient`, added to 1 if `accumulate`.
std::array<Tensor, 4> run_convolution(const Convolution& c, const Operands& in, DType gradient, bool accumulate,
                                      bool forward, bool backward) {
  const Conv2dSizes& s = c.s;
  Tensor workspace, y = Tensor::empty({s.N, s.OH, s.OW, s.OC}, in.x.dtype()), dx = in.x.empty_like();
  const auto ones = [&](const Shape& shape) {
    return cast(Tensor::from(std::vector<float>(static_cast<size_t>(shape.size()), 1.0f), shape), gradient);
  };
  Tensor dweight = ones(in.weight.shape()), dbias = ones({s.OC});
  if (forward) {
    workspace = Tensor::empty({conv2d_forward.workspace(in.x, in.weight, in.bias, s, workspace, y)}, DType::u8);
    conv2d_forward(in.x, in.weight, in.bias, s, workspace, y);
  }
  if (backward) {
    workspace = Tensor::empty(
        {conv2d_backward.workspace(in.x, in.weight, in.dy, s, accumulate, workspace, dx, dweight, dbias)}, DType::u8);
    conv2d_backward(in.x, in.weight, in.dy, s, accumulate, workspace, dx, dweight, dbias);
  }
  return {y, dx, dweight, dbias};
}

std::array<int64_t, 4> terms(const Conv2dSizes& s) {
  return {s.K() + 1, s.KH * s.KW * s.OC, s.N * s.OH * s.OW + 1, s.N * s.OH * s.OW + 1};
}

const char* const result_names[] = {"y", "dx", "dweight", "dbias"};

struct Poisoned {
  Poisoned() { set_poison(true); }
  ~Poisoned() { set_poison(false); }
};

}  // namespace

TEST_CASE("conv2d: every variant is within tolerance of the f64 reference, and exact on integers") {
  const Poisoned poisoned;
  for (const Convolution& c : convolutions()) {
    for (const DType type : {DType::f16, DType::bf16}) {
      const Operands in(c, type, false), integers(c, type, true);
      const auto to_f64 = [](const Tensor& t) { return cast(t, DType::f64); };
      const auto to_magnitude = [](const Tensor& t) { return Tensor::from(absolute(numbers(t)), t.shape()); };
      for (const bool accumulate : {false, true}) {
        const DType gradient = accumulate ? DType::f32 : type;
        const auto expected = run_convolution(c, in.map(to_f64), DType::f64, accumulate, true, true);
        const auto magnitude = run_convolution(c, in.map(to_magnitude), DType::f64, accumulate, true, true);
        const auto exact = run_convolution(c, integers.map(to_f64), DType::f64, accumulate, true, true);
        for (const bool forward : {true, false}) {
          const auto check = [&](const std::string& variant) {
            const auto got = run_convolution(c, in, gradient, accumulate, forward, !forward);
            const auto whole = run_convolution(c, integers, gradient, accumulate, forward, !forward);
            for (size_t i = forward ? 0 : 1; i < (forward ? 1 : 4); ++i) {
              const std::string what =
                  fmt::format("{} {} {} {} {}", c.name(), name(type), variant, result_names[i], accumulate);
              check_sums(what, got[i], numbers(expected[i]), numbers(magnitude[i]), terms(c.s)[i]);
              Numbers rounded = numbers(cast(exact[i], got[i].dtype()));
              const Comparison same = compare(numbers(whole[i]), rounded, tolerance::exact);
              INFO(what, " on integers: ", same.summary);
              CHECK(same.passed);
            }
          };
          if (forward) {
            for_each_variant(conv2d_forward, check);
          } else {
            for_each_variant(conv2d_backward, check);
          }
        }
      }
    }
  }
}

TEST_CASE("conv2d: any number of threads gives the same bits") {
  for (const Convolution& c : convolutions()) {
    for (const DType type : {DType::f16, DType::bf16}) {
      const Operands in(c, type, false);
      for (const bool forward : {true, false}) {
        const auto check = [&](const std::string& variant) {
          set_threads(1);
          const auto one = run_convolution(c, in, DType::f32, false, forward, !forward);
          for (const int count : {2, 5}) {
            set_threads(count);
            const auto several = run_convolution(c, in, DType::f32, false, forward, !forward);
            for (size_t i = forward ? 0 : 1; i < (forward ? 1 : 4); ++i) {
              INFO(fmt::format("{} {} {} {}, {} threads", c.name(), name(type), variant, result_names[i], count));
              CHECK(same_bytes(one[i], several[i]));
            }
          }
          set_threads(0);
        };
        if (forward) {
          for_each_variant(conv2d_forward, check);
        } else {
          for_each_variant(conv2d_backward, check);
        }
      }
    }
  }
}

TEST_CASE("conv2d: a NaN in the image or the weights reaches exactly the outputs that use it") {
  for (const Convolution& c : convolutions()) {
    const Conv2dSizes& s = c.s;
    if (s.N == 0) continue;
    for (const DType type : {DType::f16, DType::bf16}) {
      for (const bool in_image : {true, false}) {
        Operands in(c, type, false);
        Tensor& target = in_image ? in.x : in.weight;
        static_cast<uint16_t*>(target.mutable_raw_data())[target.size() / 2] = 0x7fff;
        const Numbers wanted = naive_conv2d(numbers(in.x), numbers(in.weight), numbers(in.bias), in.x.shape(), s.OC,
                                            {s.KH, s.KW, s.stride, s.padding});
        for_each_variant(conv2d_forward, [&](const std::string& variant) {
          const Numbers got = numbers(run_convolution(c, in, type, false, true, false)[0]);
          int64_t wrong = 0;
          // A NaN weight may or may not meet the zeros of the padding.
          const bool exactly = in_image || s.padding == 0;
          for (size_t i = 0; i < got.size(); ++i) {
            if (exactly || std::isnan(wanted[i])) wrong += std::isnan(got[i]) != std::isnan(wanted[i]);
          }
          INFO(fmt::format("{} {} {} {}", c.name(), name(type), variant, in_image ? "image" : "weight"));
          CHECK(wrong == 0);
        });
      }
      for_each_variant(conv2d_backward, [&](const std::string& variant) {
        Operands in(c, type, false);
        static_cast<uint16_t*>(in.dy.mutable_raw_data())[in.dy.size() / 2] = 0x7fff;
        const auto got = run_convolution(c, in, DType::f32, false, false, true);
        for (size_t i = 1; i < 4; ++i) {
          const Numbers values = numbers(got[i]);
          INFO(fmt::format("{} {} {} {}", c.name(), name(type), variant, result_names[i]));
          CHECK(std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); }));
        }
      });
    }
  }
}

bool any_not_finite(const Tensor& x) {
  const Numbers values = numbers(x);
  return !std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

// What the optimizer asks before a step: the count of gradients that are not finite, with the scaler's kernel.
bool found_by_scaler(const Tensor& gradient) {
  const Tensor flat = gradient.reshape({gradient.size()}), scaler = Tensor::from(std::vector<float>{1024, 0, 0}, {3});
  Tensor measured = Tensor::empty({2}, DType::f32), workspace;
  workspace = Tensor::empty({measure_gradients.workspace(flat, scaler, workspace, measured)}, DType::u8);
  measure_gradients(flat, scaler, workspace, measured);
  return measured.to_vector<float>()[1] > 0;
}

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("conv2d: one inf or NaN in dy, or in an x that dy needs, reaches the gradients that the scaler looks at") {
  for (const Convolution& c : convolutions()) {
    const Conv2dSizes& s = c.s;
    if (s.N == 0) continue;
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      for (const double bad : {infinity, -infinity, std::nan("")}) {
        for (const bool in_dy : {true, false}) {
          Operands in(c, type, false);
          if (in_dy) {
            in.x = random_tensor(in.x.shape(), type, 15, false, 0.5);  // zeros, as after a ReLU: 0 * inf
          } else {
            in.dy = random_tensor(in.dy.shape(), type, 16);
          }
          const int64_t at = in_dy ? in.dy.size() / 3 : in.x.size() / 2;
          Tensor& target = in_dy ? in.dy : in.x;
          target.slice(at, {1}).copy_from(cast(Tensor::from(std::vector<double>{bad}, {1}), type));
          for_each_variant(conv2d_backward, [&](const std::string& variant) {
            const auto [y, dx, dweight, dbias] = run_convolution(c, in, DType::f32, true, false, true);
            INFO(fmt::format("{} {} {}: {} in {}", c.name(), name(type), variant, bad, in_dy ? "dy" : "x"));
            CHECK(found_by_scaler(dweight));
            CHECK(found_by_scaler(dbias) == in_dy);
            CHECK(any_not_finite(dx) == in_dy);
            const Numbers of_weight = numbers(dweight);
            for (int64_t i = 0; in_dy && i < dweight.size(); ++i) {
              const bool same_channel = i % s.OC == at % s.OC;
              if (std::isfinite(of_weight[static_cast<size_t>(i)]) == same_channel) FAIL_CHECK("dweight[", i, "]");
            }
          });
        }
      }
    }
  }
}

TEST_CASE("conv2d: where dy is zero, variants that skip zeros do not see an inf in x, and the others make NaN of it") {
  const Convolution c = convolution({2, 8, 9, 32}, 64, {}, 1);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    Operands in(c, type, false);
    in.x.slice(in.x.size() / 2, {1}).copy_from(cast(Tensor::from(std::vector<double>{infinity}, {1}), type));
    in.dy.fill_zero();
    for_each_variant(conv2d_backward, [&](const std::string& variant) {
      const Tensor dweight = run_convolution(c, in, DType::f32, true, false, true)[2];
      INFO(std::string(name(type)), " ", variant);
      CHECK(any_not_finite(dweight) == !(variant == "direct" || variant == "avx512_bf16"));
    });
  }
}

TEST_CASE("conv2d: every variant for 16-bit types ran") {
  check_all_tried(conv2d_forward);
  check_all_tried(conv2d_backward);
}

}  // namespace hs::test
