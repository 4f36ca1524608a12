// Every CPU variant of conv2d, of conv2d_pool_relu and of their backward kernels, over all image sizes from 3 x 3 to
// 20 x 20, in every type that it supports, between guard pages: a wrong element is a failed check, and an access past
// the end of any tensor a fault.
//
// Inputs are multiples of 1/64 in [-1, 1], exact in every type, and so are the f32 sums of their products: each result
// must equal the f64 reference, a loop over the formula of kernels/conv2d/conv2d.h, rounded once to its type; of a
// variant with an error_growth nearly. (How far other numbers may be off is the op table's matter.) From size to size
// change the channels, the kernel, stride and padding, the batch, and which optional tensors there are. A variant that
// does not support a size's first case runs that size with the channels of another one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "engine/cpu_features.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/examples/guard_pages.h"
#include "tests/support/checks.h"
#include "tests/support/sanitized.h"

namespace hs::test {
namespace {

struct Case {
  int64_t N, H, W, C, OC;
  Conv2dOptions options;
  bool has_bias, wants_dx, accumulates, has_f32_gradients;
};

// The op's tensors in f64. Gradients of a pooled convolution have their own dy.
struct Exact {
  Numbers x, weight, bias, y, dy, dx, dweight, dbias;
};

Numbers sixty_fourths(int64_t count, uint32_t stream, bool with_zeros = false) {
  Numbers values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto k = static_cast<int>(random_bits({.seed = 5, .layer = stream}, i) % (with_zeros ? 193 : 129));
    values[i] = k > 128 ? 0 : (k - 64) / 64.0;
  }
  return values;
}

// Calls body(input pixel, weight row of the tap, output pixel), each times its channels an index.
template <class Body>
void for_taps(const Conv2dSizes& s, const Body& body) {
  for (int64_t o = 0; o < s.N * s.OH * s.OW; ++o) {
    const int64_t n = o / (s.OH * s.OW), oh = o / s.OW % s.OH, ow = o % s.OW;
    for (int64_t tap = 0; tap < s.KH * s.KW; ++tap) {
      const int64_t h = oh * s.stride + tap / s.KW - s.padding, w = ow * s.stride + tap % s.KW - s.padding;
      if (h >= 0 && h < s.H && w >= 0 && w < s.W) body((n * s.H + h) * s.W + w, tap, o);
    }
  }
}

void convolve(const Conv2dSizes& s, Exact& e) {
  e.y.assign(static_cast<size_t>(s.N * s.OH * s.OW * s.OC), 0);
  for (size_t i = 0; !e.bias.empty() && i < e.y.size(); ++i) e.y[i] = e.bias[i % e.bias.size()];
  for_taps(s, [&](int64_t pixel, int64_t tap, int64_t o) {
    double* y = e.y.data() + o * s.OC;
    for (int64_t c = 0; c < s.C; ++c) {
      const double x = e.x[static_cast<size_t>(pixel * s.C + c)];
      const double* weight = e.weight.data() + (tap * s.C + c) * s.OC;
      for (int64_t oc = 0; oc < s.OC; ++oc) y[oc] += x * weight[oc];
    }
  });
}

// dense: the gradient of every value of y.
void convolve_back(const Conv2dSizes& s, const Numbers& dense, Exact& e) {
  e.dx.assign(e.x.size(), 0);
  e.dweight.assign(e.weight.size(), 0);
  e.dbias.assign(static_cast<size_t>(s.OC), 0);
  for (size_t i = 0; i < dense.size(); ++i) e.dbias[i % e.dbias.size()] += dense[i];
  for_taps(s, [&](int64_t pixel, int64_t tap, int64_t o) {
    const double* dy = dense.data() + o * s.OC;
    for (int64_t c = 0; c < s.C; ++c) {
      const double x = e.x[static_cast<size_t>(pixel * s.C + c)];
      const double* weight = e.weight.data() + (tap * s.C + c) * s.OC;
      double* dweight = e.dweight.data() + (tap * s.C + c) * s.OC;
      double dx = 0;
      for (int64_t oc = 0; oc < s.OC; ++oc) {
        dx += dy[oc] * weight[oc];
        dweight[oc] += dy[oc] * x;
      }
      e.dx[static_cast<size_t>(pixel * s.C + c)] += dx;
    }
  });
}

// Pools e.y into y and the winners' places, and spreads dy over the winners.
struct Pooled {
  Numbers y, winner, dense;
  Pooled(const Conv2dSizes& s, const Exact& e, const Numbers& dy) : dense(e.y.size()) {
    for (int64_t i = 0; i < s.N * (s.OH / 2) * (s.OW / 2) * s.OC; ++i) {
      const int64_t oc = i % s.OC, pw = i / s.OC % (s.OW / 2), ph = i / s.OC / (s.OW / 2) % (s.OH / 2);
      const int64_t n = i / s.OC / (s.OW / 2) / (s.OH / 2);
      double best = 0, place = closed;
      size_t from = 0;
      for (int64_t k = 0; k < 4; ++k) {
        const auto at = static_cast<size_t>(((n * s.OH + 2 * ph + k / 2) * s.OW + 2 * pw + k % 2) * s.OC + oc);
        if (e.y[at] > best) best = e.y[at], place = static_cast<double>(k), from = at;
      }
      y.push_back(best);
      winner.push_back(place);
      if (place != closed) dense[from] = dy[static_cast<size_t>(i)];
    }
  }
};

// e.y where the winners are.
Numbers pooled_values(const Conv2dSizes& s, const Exact& e, const std::vector<uint8_t>& winners) {
  Numbers values;
  for (size_t i = 0; i < winners.size(); ++i) {
    const auto at = static_cast<int64_t>(i), oc = at % s.OC, pw = at / s.OC % (s.OW / 2);
    const int64_t row = at / s.OC / (s.OW / 2), n = row / (s.OH / 2), ph = row % (s.OH / 2), place = winners[i];
    const int64_t from = ((n * s.OH + 2 * ph + place / 2) * s.OW + 2 * pw + place % 2) * s.OC + oc;
    values.push_back(place == closed ? 0 : e.y.at(static_cast<size_t>(from)));
  }
  return values;
}

Tensor tensor_of(const Numbers& values, const Shape& shape, DType dtype) {
  return cast(Tensor::from(values, shape), dtype);
}

Numbers plus(Numbers values, double old) {
  for (double& value : values) value += old;
  return values;
}

constexpr double old_gradient = 3;

// The sizes that each variant ran.
using Sizes = std::set<std::pair<int64_t, int64_t>>;
std::map<std::pair<const VariantBase*, DType>, Sizes> covered;

class CaseRun {
 public:
  CaseRun(const Case& c, DType dtype, const std::set<const VariantBase*>& skipped)
      : c_(c), dtype_(dtype), skipped_(skipped) {}

  std::set<const VariantBase*> ran;

  const char* remark = "";  // for the lines of failures
  bool is_exact = true;     // the variant that runs

  // Runs `slot(call)` with each variant that supports it, on outputs that check(name) then compares.
  template <class Call, class MakeCall>
  void each_variant(Kernel<Call>& slot, const MakeCall& make_call) {
    for (const VariantBase* v = slot.variants(); v; v = v->next) {
      if (v->device != Device::cpu || skipped_.contains(v)) continue;
      slot.force(v->name);
      is_exact = v->error_growth == 1;
      description_ =
          fmt::format("{}={} {} of ({}, {}, {}, {}) -> {}, {}x{} stride {} padding {}{}{}{}{}", slot.name(), v->name,
                      name(dtype_), c_.N, c_.H, c_.W, c_.C, c_.OC, c_.options.kernel_h, c_.options.kernel_w,
                      c_.options.stride, c_.options.padding, c_.has_bias ? "" : ", no bias",
                      c_.wants_dx ? "" : ", no dx", c_.accumulates ? ", accumulating" : "", remark);
      GuardPages::set_description(description_);
      make_call([&](const Call& call) {
        const bool runs = slot.variant_for(call) != nullptr;
        if (runs) {
          slot(call);
          ran.insert(v);
          covered[{v, dtype_}].emplace(c_.H, c_.W);
        }
        return runs;
      });
      slot.force(nullptr);
    }
  }

  void check_equal(const char* what, const Tensor& got, const Numbers& expected) const {
    check_equal(what, to_numbers(got), expected);
  }
  template <class T>
  void check_equal(const char* what, const std::vector<T>& got, const Numbers& expected) const {
    REQUIRE(got.size() == expected.size());
    const double absolute = is_exact ? 0 : 1e-3, relative = is_exact ? 0 : 2 * tolerance::rounding_to(dtype_).u;
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double allowed = absolute + relative * std::fabs(expected[i]);
      if (!(std::fabs(got[i] - expected[i]) <= allowed) && wrong++ == 0) first = i;
    }
    CHECK_MESSAGE(wrong == 0, fmt::format("{}: {}: {} of {} elements are wrong, the first is {}: {}, expected {}",
                                          description_, what, wrong, got.size(), first, got[first], expected[first]));
  }

 private:
  const Case c_;
  const DType dtype_;
  const std::set<const VariantBase*>& skipped_;
  std::string description_;
};

std::set<const VariantBase*> run_case(const Case& c, DType dtype, const std::set<const VariantBase*>& skipped) {
  CaseRun run(c, dtype, skipped);
  const int64_t K = c.options.kernel_h * c.options.kernel_w * c.C;
  Exact e;
  e.x = sixty_fourths(c.N * c.H * c.W * c.C, 0);
  e.weight = sixty_fourths(K * c.OC, 1);
  if (c.has_bias) e.bias = sixty_fourths(c.OC, 2);
  const Tensor x = tensor_of(e.x, {c.N, c.H, c.W, c.C}, dtype), weight = tensor_of(e.weight, {K, c.OC}, dtype);
  const Tensor bias = c.has_bias ? tensor_of(e.bias, {c.OC}, dtype) : Tensor();
  const Conv2dSizes s = conv2d_sizes(x, weight, bias, c.options);

  convolve(s, e);
  const Shape out{s.N, s.OH, s.OW, s.OC};
  const Numbers y_rounded = rounded_to(dtype, e.y);
  run.each_variant<Conv2dForward>(conv2d_forward, [&](const auto& call) {
    Tensor y = Tensor::empty(out, dtype);
    if (call({x, weight, bias, s, y})) run.check_equal("y", y, y_rounded);
  });
  Numbers positive = e.y;
  for (double& value : positive) value = std::max(value, 0.0);
  const Numbers relu_rounded = rounded_to(dtype, positive);
  run.remark = ", with ReLU";
  run.each_variant<Conv2dForward>(conv2d_forward, [&](const auto& call) {
    Tensor y = Tensor::empty(out, dtype);
    if (call({x, weight, bias, s, y, true})) run.check_equal("y", y, relu_rounded);
  });
  run.remark = "";

  const DType gradient_type = c.has_f32_gradients ? DType::f32 : dtype;
  // backward(name, call, dense): the same for both backward kernels; call(dx, dweight, dbias) makes the call.
  const auto check_backward = [&](auto& slot, const Numbers& dense, const auto& call_with) {
    convolve_back(s, dense, e);
    const double old = c.accumulates ? old_gradient : 0;
    const Numbers dx_rounded = rounded_to(dtype, e.dx),
                  dweight_rounded = rounded_to(gradient_type, plus(e.dweight, old)),
                  dbias_rounded = rounded_to(gradient_type, plus(e.dbias, old));
    const auto gradient = [&](const Shape& shape) {
      if (!c.accumulates) return Tensor::empty(shape, gradient_type);
      return tensor_of(Numbers(static_cast<size_t>(shape.size()), old_gradient), shape, gradient_type);
    };
    run.each_variant(slot, [&](const auto& call) {
      Tensor dx = c.wants_dx ? Tensor::empty(x.shape(), dtype) : Tensor();
      Tensor dweight = gradient(weight.shape()), dbias = c.has_bias ? gradient({c.OC}) : Tensor();
      if (!call_with(call, dx, dweight, dbias)) return;
      if (c.wants_dx) run.check_equal("dx", dx, dx_rounded);
      run.check_equal("dweight", dweight, dweight_rounded);
      if (c.has_bias) run.check_equal("dbias", dbias, dbias_rounded);
    });
  };
  const Numbers dense = sixty_fourths(out.size(), 3, true);
  const Tensor dy = tensor_of(dense, out, dtype);
  Numbers sparse = dense;  // as behind max-pooling and ReLU; variants may take another way then
  for (size_t i = 0; i < sparse.size(); ++i) sparse[i] = random_bits({.seed = 6}, i) % 8 == 0 ? sparse[i] : 0;
  run.remark = ", few zeros";
  for (const Numbers& values : {dense, sparse}) {
    const Tensor of_values = tensor_of(values, out, dtype);
    check_backward(conv2d_backward, values, [&](const auto& call, Tensor& dx, Tensor& dweight, Tensor& dbias) {
      return call({x, weight, of_values, s, c.accumulates, dx, dweight, dbias});
    });
    run.remark = ", mostly zeros";
  }
  Numbers open = dense;  // dy where ReLU let y through
  for (size_t i = 0; i < open.size(); ++i) open[i] = positive[i] > 0 ? open[i] : 0;
  const Tensor relu_y = tensor_of(positive, out, dtype);
  run.remark = ", with ReLU";
  check_backward(conv2d_backward, open, [&](const auto& call, Tensor& dx, Tensor& dweight, Tensor& dbias) {
    return call({x, weight, dy, s, c.accumulates, dx, dweight, dbias, relu_y});
  });
  run.remark = "";

  if (s.OH < 2 || s.OW < 2) return run.ran;
  const Shape windows{s.N, s.OH / 2, s.OW / 2, s.OC};
  const Numbers pooled_dy = sixty_fourths(windows.size(), 4, true);
  const Pooled pooled(s, e, pooled_dy);
  const Numbers pooled_rounded = rounded_to(dtype, pooled.y);
  run.each_variant<Conv2dPoolReluForward>(conv2d_pool_relu_forward, [&](const auto& call) {
    Tensor y = Tensor::empty(windows, dtype), winner = Tensor::empty(windows, DType::u8);
    if (!call({x, weight, bias, s, y, winner})) return;
    run.check_equal("y", y, pooled_rounded);
    const auto winners = winner.to_vector<uint8_t>();
    if (run.is_exact) {
      run.check_equal("winner", winners, pooled.winner);
    } else {  // of nearly equal values any may win
      run.check_equal("the winners' values", pooled_values(s, e, winners), pooled.y);
    }
  });
  const Tensor dpooled = tensor_of(pooled_dy, windows, dtype);
  const Tensor winner = Tensor::from(std::vector<uint8_t>(pooled.winner.begin(), pooled.winner.end()), windows);
  check_backward(conv2d_pool_relu_backward, pooled.dense,
                 [&](const auto& call, Tensor& dx, Tensor& dweight, Tensor& dbias) {
                   return call({x, weight, winner, dpooled, s, c.accumulates, dx, dweight, dbias});
                 });
  return run.ran;
}

constexpr int64_t smallest = 3, largest = 20, sides = largest - smallest + 1;
constexpr std::array<int64_t, 6> channel_counts = {1, 3, 8, 16, 32, 33};
// Stride 1 and a border in front, then what fewer variants support. Each fits an image of 3 x 3.
constexpr std::array<Conv2dOptions, 11> kernels = {{{3, 3, 1, 0},
                                                    {3, 3, 1, 1},
                                                    {5, 5, 1, 2},
                                                    {1, 1, 1, 0},
                                                    {2, 3, 1, 1},
                                                    {3, 1, 1, 0},
                                                    {3, 3, 2, 1},
                                                    {1, 1, 1, 1},
                                                    {3, 3, 2, 0},
                                                    {7, 7, 1, 3},
                                                    {2, 2, 3, 0}}};
constexpr int common_kernels = 6;

// The cases of a size. Of those after the first run only the variants that did not support the ones before.
std::vector<Case> cases_of(int64_t H, int64_t W, int round) {
  const auto i = static_cast<int>((H - smallest) * sides + W - smallest) + 137 * round;
  const auto next = static_cast<size_t>(i);
  const int64_t N = H * W <= 40 ? 17 : 1 + i % 4;  // 17: more than there are groups of samples
  Case first{.N = N,
             .H = H,
             .W = W,
             .C = channel_counts[next / channel_counts.size() % channel_counts.size()],
             .OC = channel_counts[next % channel_counts.size()],
             .options = kernels[next % kernels.size()],
             .has_bias = i % 3 != 0,
             .wants_dx = i % 7 != 0,
             .accumulates = i % 2 == 0,
             .has_f32_gradients = i % 4 < 2};
  Case wide = first, one = first;
  wide.options = one.options = std::min(H, W) < 5 ? kernels[1] : kernels[next % common_kernels];  // room for windows
  wide.C = 32;
  one.C = 1;
  Case plain = one;
  plain.OC = 32;
  plain.options.padding = std::min(H, W) < 5 ? 1 : 0;
  Case tiles = first;  // for Winograd's
  tiles.N = 1 + i % 2, tiles.C = 16 + 16 * (i % 2), tiles.OC = 16 + 16 * (i / 2 % 3);
  tiles.options = {3, 3, 1, std::min(H, W) < 5 ? 1 : i % 3};
  return {first, wide, one, plain, tiles};
}

// How often each size is run, with other choices, and of all these runs every how many.
constexpr int64_t rounds = 2;
const int64_t every = with_sanitizer ? 13 : 1;  // 13: odd and prime to everything that the choices repeat after

struct OneThread {
  OneThread() { set_threads(1); }
  ~OneThread() { set_threads(0); }
};

}  // namespace

TEST_CASE("conv2d and conv2d_pool_relu at every size equal the f64 reference and stay inside their tensors") {
  const GuardPages guard;
  const Poisoned poisoned;
  const OneThread one_thread;
  covered.clear();
  const int64_t step = cpu_features().cap.empty() ? every : every * rounds;  // capped runs come on top
  Sizes sizes;
  std::set<std::pair<int64_t, int64_t>> channels;
  for (int64_t i = 0; i < sides * sides * rounds; i += step) {
    const int64_t H = smallest + i / rounds / sides, W = smallest + i / rounds % sides;
    const std::vector<Case> cases = cases_of(H, W, static_cast<int>(i % rounds));
    sizes.emplace(H, W);
    channels.emplace(cases[0].C, cases[0].OC);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      std::set<const VariantBase*> done;
      for (const Case& c : cases) {
        GuardPages::set_side(GuardPages::Side::behind);
        std::set<const VariantBase*> ran = run_case(c, dtype, done);
        if (i % 4 == 0) {
          GuardPages::set_side(GuardPages::Side::before);
          run_case(c, dtype, done);
        }
        done.merge(ran);
      }
    }
  }
  CHECK((sizes.size() == static_cast<size_t>(sides * sides) || every > 1));
  CHECK(channels.size() == channel_counts.size() * channel_counts.size());
  const std::set<std::string> slots = {conv2d_forward.name(), conv2d_backward.name(), conv2d_pool_relu_forward.name(),
                                       conv2d_pool_relu_backward.name()};
  for (const KernelSlot* slot : kernel_slots()) {
    if (!slots.contains(slot->name())) continue;
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->device != Device::cpu) continue;
      int types = 0;
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const auto found = covered.find({v, dtype});
        if (found == covered.end()) continue;
        ++types;
        INFO(std::string(slot->name()), "=", std::string(v->name), " ", std::string(name(dtype)));
        CHECK(found->second == sizes);
      }
      INFO(std::string(slot->name()), "=", std::string(v->name), " ran in no type");
      CHECK((types > 0 || is_ruled_out(v->name)));
    }
  }
}

}  // namespace hs::test
