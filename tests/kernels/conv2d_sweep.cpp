// Every CPU variant of conv2d, of conv2d_pool_relu and of their backward kernels, over all image sizes from 3 x 3 to
// 20 x 20, in every type that it supports, between guard pages: a wrong element is a failed check, and an access past
// the end of any tensor a fault.
//
// The ops run on small integers, as rows of the op table do: each result must equal that of the naive kernels in f64,
// rounded once to its type; of a variant with an error_growth nearly. (How far other numbers may be off is the op
// table's matter.) From size to size change the channels, the kernel, stride and padding, the batch, and which optional
// tensors there are. A variant that does not support a size's first case runs that size with the channels of another
// one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "engine/cpu_features.h"
#include "engine/parallel.h"
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

using Variants = std::set<const VariantBase*>;
constexpr std::array<DType, 3> types = {DType::f32, DType::f16, DType::bf16};

// The sizes that each variant ran.
using Sizes = std::set<std::pair<int64_t, int64_t>>;
std::map<std::pair<const VariantBase*, DType>, Sizes> covered;

// An op at the sizes of a case, and its results by the naive kernels.
struct Example {
  OpCase row;
  bool pools, is_sparse;
  std::vector<Numbers> exact = {};
};

RowRun run_of(const Case& c, const Example& example, DType dtype) {
  RowRun how{.dtype = dtype, .numbers = dtype, .integers = true, .zeros = example.is_sparse ? 0.75 : 0};
  if (!c.has_bias) how.missing = {2};
  if (!c.wants_dx) how.frozen = {0};
  if (c.accumulates) how.held = 3.0f;
  if (c.has_f32_gradients && dtype != DType::f32) how.autocast = std::exchange(how.dtype, DType::f32);
  return how;
}

// Of a dy with few zeros, and of one that is mostly zeros, as behind max-pooling: variants may take another way then.
std::vector<Example> examples_of(const Case& c) {
  const int64_t K = c.options.kernel_h * c.options.kernel_w * c.C;
  std::vector<Example> all;
  const auto add = [&](const char* name, bool relu, bool pools, bool is_sparse) {
    const Conv2dOptions o = c.options;
    Example& example =
        all.emplace_back(
            OpCase{
                .name = fmt::format("{} of ({}, {}, {}, {}) -> {}, {}x{} stride {} padding {}{}{}{}{}", name, c.N, c.H,
                                    c.W, c.C, c.OC, o.kernel_h, o.kernel_w, o.stride, o.padding,
                                    c.has_bias ? "" : ", no bias", c.wants_dx ? "" : ", no dx",
                                    c.accumulates ? ", accumulating" : "", is_sparse ? ", mostly zeros" : ""),
                .shapes = {{c.N, c.H, c.W, c.C}, {K, c.OC}, {c.OC}},
                .run =
                    [=](const Inputs& in) {
                      if (pools) return conv2d_pool_relu(in[0], in[1], in[2], o);
                      return relu ? conv2d_relu(in[0], in[1], in[2], o) : conv2d(in[0], in[1], in[2], o);
                    }},
            pools, is_sparse);
    GuardPages::set_description(example.row.name);
    const ForcedVariant forward(conv2d_forward, "naive"), backward(conv2d_backward, "naive");
    example.exact = as_numbers(run_row(example.row, reference_run(run_of(c, example, DType::f32))));
  };
  add("conv2d", false, false, false);
  add("conv2d", false, false, true);
  add("conv2d with ReLU", true, false, false);
  const int64_t down = c.H + 2 * c.options.padding - c.options.kernel_h,
                right = c.W + 2 * c.options.padding - c.options.kernel_w;
  if (std::min(down, right) >= c.options.stride) add("conv2d_pool_relu", false, true, false);  // 2 x 2 and more
  return all;
}

// The first result that is wrong, with by how much, or an empty text.
std::string wrong_result(const Example& example, const RowRun& how, bool is_exact, const std::vector<Tensor>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    const Numbers got = to_numbers(results[i]);
    Numbers plain = example.exact.at(i), once = rounded_to(i == 0 ? results[0].dtype() : how.numbers, plain);
    for (Numbers* wanted : {&plain, &once}) {
      for (double& value : *wanted) value += i == 0 ? 0 : how.held.value_or(0);
    }
    // Under Autocast gradients of parameters are f32 sums, and gradients of activations have 16 bits.
    if (is_exact && (got == once || (i > 0 && how.autocast != DType::f32 && got == plain))) continue;
    const Tolerance nearly{2 * tolerance::rounding_to(how.numbers).u, 0.05, 0};
    const Comparison result = compare(got, is_exact ? once : plain, is_exact ? tolerance::exact : nearly);
    if (is_exact || !result.passed) return fmt::format("result {}: {}", i, result.summary);
  }
  return "";
}

// Runs the example with each variant of the slot that supports it and is not in `done`; returns which did.
Variants run_variants(KernelSlot& slot, const Case& c, const Example& example, DType dtype, const Variants& done) {
  RowRun how = run_of(c, example, dtype);
  const bool is_forward = &slot == &conv2d_forward || &slot == &conv2d_pool_relu_forward;
  Variants ran;
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (v->device != Device::cpu || done.contains(v)) continue;
    const bool is_exact = v->error_growth == 1;
    // The winner of a window shows in the gradient; of nearly equal values any may win.
    how.forward_only = is_forward && !(example.pools && is_exact);
    const ForcedVariant forced(slot, v->name);
    const std::string what = fmt::format("{}={} {} {}", slot.name(), v->name, name(dtype), example.row.name);
    GuardPages::set_description(what);
    try {
      const std::string wrong = wrong_result(example, how, is_exact, run_row(example.row, how));
      CHECK_MESSAGE(wrong == "", what, ", ", wrong);
      ran.insert(v);
      covered[{v, dtype}].emplace(c.H, c.W);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::forced_variant) FAIL_CHECK(what, ": ", error.what());
    }
  }
  return ran;
}

// Runs the variants that have not run this size, and adds them to `done`. A second time on the other side of the pages.
void run_case(const Case& c, bool on_both_sides, std::array<Variants, types.size()>& done) {
  GuardPages::set_side(GuardPages::Side::behind);
  const std::vector<Example> examples = examples_of(c);
  for (size_t t = 0; t < types.size(); ++t) {
    Variants ran;
    for (const auto side : {GuardPages::Side::behind, GuardPages::Side::before}) {
      if (side == GuardPages::Side::before && !on_both_sides) continue;
      GuardPages::set_side(side);
      for (const Example& example : examples) {
        KernelSlot &forward = example.pools ? static_cast<KernelSlot&>(conv2d_pool_relu_forward) : conv2d_forward,
                   &backward = example.pools ? static_cast<KernelSlot&>(conv2d_pool_relu_backward) : conv2d_backward;
        if (!example.is_sparse) ran.merge(run_variants(forward, c, example, types[t], done[t]));
        const ForcedVariant exact(forward, "direct");  // so that every gradient has the same ReLU and the same winners
        ran.merge(run_variants(backward, c, example, types[t], done[t]));
      }
    }
    done[t].merge(ran);
  }
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
    std::array<Variants, types.size()> done;
    for (const Case& c : cases) run_case(c, i % 4 == 0, done);
  }
  CHECK((sizes.size() == static_cast<size_t>(sides * sides) || every > 1));
  CHECK(channels.size() == channel_counts.size() * channel_counts.size());
  const std::set<std::string> slots = {conv2d_forward.name(), conv2d_backward.name(), conv2d_pool_relu_forward.name(),
                                       conv2d_pool_relu_backward.name()};
  for (const KernelSlot* slot : kernel_slots()) {
    if (!slots.contains(slot->name())) continue;
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->device != Device::cpu) continue;
      int count = 0;
      for (const DType dtype : types) {
        const auto found = covered.find({v, dtype});
        if (found == covered.end()) continue;
        ++count;
        INFO(std::string(slot->name()), "=", std::string(v->name), " ", std::string(name(dtype)));
        CHECK(found->second == sizes);
      }
      INFO(std::string(slot->name()), "=", std::string(v->name), " ran in no type");
      CHECK((count > 0 || is_ruled_out(v->name)));
    }
  }
}

}  // namespace hs::test
