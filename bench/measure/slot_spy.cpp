#include "bench/measure/slot_spy.h"

#include <fmt/format.h>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/max_pool2d/max_pool2d.h"

namespace hs::bench::measure {
namespace {

std::string sizes_of(const Conv2dSizes& s) {
  return fmt::format("{}x{}x{}x{} {}x{} -> {}", s.N, s.H, s.W, s.C, s.KH, s.KW, s.OC);
}

std::string sizes_of(const Gemm& call) {
  const GemmOptions& options = call.options;
  const int64_t K = call.a.shape()[options.transpose_a ? 0 : 1];
  return fmt::format("{}x{}x{} {}{}", call.c.shape()[0], call.c.shape()[1], K, options.transpose_a ? "T" : "N",
                     options.transpose_b ? "T" : "N");
}

// As the tables print them.
std::string sizes_of(const SpiedCall& seen) {
  if (&seen.slot == &gemm) return sizes_of(*static_cast<const Gemm*>(seen.call));
  if (&seen.slot == &conv2d_forward) return sizes_of(static_cast<const Conv2dForward*>(seen.call)->sizes);
  if (&seen.slot == &conv2d_backward) return sizes_of(static_cast<const Conv2dBackward*>(seen.call)->sizes);
  const std::string first = seen.tensors.front()->shape().to_string();
  if (&seen.slot != &max_pool2d_forward) return first;
  const auto window = static_cast<const MaxPool2dForward*>(seen.call)->window;
  return fmt::format("{}, {}x{}", first, window, window);
}

}  // namespace

SlotSpy::SlotSpy(Look look)
    : spy_([look = std::move(look)](const SpiedCall& call) -> const VariantBase& {
        const VariantBase* ran = call.slot.variants();
        look({call.slot, sizes_of(call), call.tensors, [&]() -> const VariantBase& { return *(ran = &call.again()); }});
        return *ran;
      }) {}

}  // namespace hs::bench::measure
