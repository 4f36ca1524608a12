#include "bench/measure/kernel_work.h"

namespace hs::bench::measure {

double flops_of(std::string_view slot, std::span<const Shape> shapes) {
  const auto size = [&](size_t i) { return static_cast<double>(shapes[i].size()); };
  if (slot == "gemm") {  // a, b, ..., c
    const double M = static_cast<double>(shapes.back()[0]);
    return M > 0 ? 2 * size(0) / M * size(shapes.size() - 1) : 0;  // 2 K times the elements of C
  }
  // Each element of the result is a sum over the rows of the weight.
  const auto rows = [&](size_t weight) { return static_cast<double>(shapes[weight][0]); };
  if (slot == "conv2d_forward") return 2 * rows(1) * size(3);  // x, weight, bias, y
  if (slot == "conv2d_backward") {                             // x, weight, dy, dx, dweight, dbias
    return 2 * rows(1) * size(2) * ((size(3) > 0 ? 1 : 0) + (size(4) > 0 ? 1 : 0));
  }
  // The products of the four pixels of each pooled value; backward needs only those of the one that won.
  if (slot == "conv2d_pool_relu_forward") return 4 * 2 * rows(1) * size(3);  // x, weight, bias, y, winner
  if (slot == "conv2d_pool_relu_backward") {  // x, weight, winner, dy, dx, dweight, dbias
    return 2 * rows(1) * size(3) * ((size(4) > 0 ? 1 : 0) + (size(5) > 0 ? 1 : 0));
  }
  // qkv (B, T, 3C), log_sums, y or dy: two products, or five, of C multiply-adds for each query and key up to it.
  if (slot == "causal_attention_forward" || slot == "causal_attention_backward") {
    const double products = slot == "causal_attention_forward" ? 2 : 5;
    return products * size(2) * static_cast<double>(shapes[0][1] + 1);
  }
  return 0;
}

}  // namespace hs::bench::measure
