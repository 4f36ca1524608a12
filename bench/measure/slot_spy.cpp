#include "bench/measure/slot_spy.h"

#include <fmt/format.h>

namespace hs::bench::measure {
namespace {

std::string sizes_of(const Conv2dSizes& s) {
  return fmt::format("{}x{}x{}x{} {}x{} -> {}", s.N, s.H, s.W, s.C, s.KH, s.KW, s.OC);
}

}  // namespace

std::string sizes_of(const Gemm& call) {
  const GemmOptions& options = call.options;
  const int64_t K = call.a.shape()[options.transpose_a ? 0 : 1];
  return fmt::format("{}x{}x{} {}{}", call.c.shape()[0], call.c.shape()[1], K, options.transpose_a ? "T" : "N",
                     options.transpose_b ? "T" : "N");
}

std::string sizes_of(const Conv2dForward& call) { return sizes_of(call.sizes); }
std::string sizes_of(const Conv2dBackward& call) { return sizes_of(call.sizes); }

std::string sizes_of(const MaxPool2dForward& call) {
  return fmt::format("{}, {}x{}", call.x.shape().to_string(), call.window, call.window);
}

}  // namespace hs::bench::measure
