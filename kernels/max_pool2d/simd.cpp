// max_pool2d on vectors of channels: "simd" for f32, "simd16" for f16 and bf16. Forward keeps the maximum and its
// position in registers; backward, where windows do not overlap, goes by windows and writes every input once: its
// gradient, or zero. A maximum is a selection: nothing is widened.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/elements.h"
#include "kernels/max_pool2d/max_pool2d.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set

namespace hs::HS_ISA {
namespace {

// What differs between the types: `order` says how vectors compare, is_above whether to take the first for the second.
struct Floats {
  using Element = float;
  static constexpr int64_t lanes = hs::HS_ISA::lanes;
  using Vec = hs::HS_ISA::Vec;
  using Index = int32_t;
  using IndexVec = Index __attribute__((vector_size(lanes * sizeof(Index))));
  using ByteVec = uint8_t __attribute__((vector_size(lanes)));

  static bool is_type_of(const Tensor& x) { return is_f32(x); }
  static float infinity(DType) { return 0; }  // not needed to compare
  static Vec order(Vec values, float) { return values; }
  static IndexVec is_above(Vec a, Vec b) { return ~(a <= b) & (b == b); }  // true for the first NaN
};

struct Halves {
  using Element = int16_t;
  static constexpr int64_t lanes = 2 * hs::HS_ISA::lanes;
  using Vec = int16_t __attribute__((vector_size(lanes * sizeof(int16_t))));
  using Index = int16_t;
  using IndexVec = Vec;
  using ByteVec = uint8_t __attribute__((vector_size(lanes)));

  static bool is_type_of(const Tensor& x) { return is_16_bit(x); }
  // Integers in the order of the numbers, as the patterns of positive numbers are: -0 and 0 are equal, NaN is above
  // everything.
  static int16_t infinity(DType dtype) { return dtype == DType::f16 ? 0x7c00 : 0x7f80; }
  static Vec order(Vec bits, int16_t infinity) {
    const Vec magnitude = bits & int16_t{0x7fff};
    const Vec ordered = bits < 0 ? -magnitude : magnitude;
    return magnitude > infinity ? Vec{} + int16_t{0x7fff} : ordered;
  }
  static IndexVec is_above(Vec a, Vec b) { return a > b; }  // false for what is equal: the first one stays
};

template <class V>
V load_as(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class Type>
void forward_simd(const MaxPool2dForward& call) {
  using Element = typename Type::Element;
  using Vec = typename Type::Vec;
  using IndexVec = typename Type::IndexVec;
  const int64_t window = call.window, stride = call.stride;
  const int64_t N = call.x.shape()[0], H = call.x.shape()[1], W = call.x.shape()[2], C = call.x.shape()[3];
  const int64_t OH = call.y.shape()[1], OW = call.y.shape()[2];
  const auto infinity = Type::infinity(call.x.dtype());
  const auto* in = static_cast<const Element*>(call.x.raw_data());
  auto* out = static_cast<Element*>(call.y.mutable_raw_data());
  uint8_t* chosen = call.choice.mutable_data<uint8_t>();
  parallel(N, [=](int64_t n, int) {
    for (int64_t oh = 0; oh < OH; ++oh) {
      for (int64_t ow = 0; ow < OW; ++ow) {
        const Element* corner = in + ((n * H + oh * stride) * W + ow * stride) * C;
        const int64_t o = ((n * OH + oh) * OW + ow) * C;
        for (int64_t c = 0; c < C; c += Type::lanes) {
          Vec best = load_as<Vec>(corner + c), best_order = Type::order(best, infinity);
          IndexVec where = {};
          for (int64_t i = 0, row = 0; row < window; ++row) {
            for (int64_t column = 0; column < window; ++column, ++i) {
              const Vec value = load_as<Vec>(corner + (row * W + column) * C + c), order = Type::order(value, infinity);
              const IndexVec better = Type::is_above(order, best_order);
              best = better ? value : best;
              best_order = better ? order : best_order;
              where = better ? IndexVec{} + static_cast<typename Type::Index>(i) : where;
            }
          }
          std::memcpy(out + o + c, &best, sizeof best);
          const auto bytes = __builtin_convertvector(where, typename Type::ByteVec);
          std::memcpy(chosen + o + c, &bytes, sizeof bytes);
        }
      }
    }
  });
}

template <class Type>
void backward_simd(const MaxPool2dBackward& call) {
  using Element = typename Type::Element;
  using Vec = typename Type::Vec;
  using IndexVec = typename Type::IndexVec;
  const int64_t window = call.window;
  const int64_t N = call.dx.shape()[0], H = call.dx.shape()[1], W = call.dx.shape()[2], C = call.dx.shape()[3];
  const int64_t OH = call.dy.shape()[1], OW = call.dy.shape()[2];
  const auto* dout = static_cast<const Element*>(call.dy.raw_data());
  const uint8_t* chosen = call.choice.data<uint8_t>();
  auto* din = static_cast<Element*>(call.dx.mutable_raw_data());
  parallel(N, [=](int64_t n, int) {
    Element* image = din + n * H * W * C;
    for (int64_t oh = 0; oh < OH; ++oh) {
      Element* rows = image + oh * window * W * C;
      for (int64_t ow = 0; ow < OW; ++ow) {
        const int64_t o = ((n * OH + oh) * OW + ow) * C;
        for (int64_t c = 0; c < C; c += Type::lanes) {
          const Vec gradient = load_as<Vec>(dout + o + c);
          const auto where = __builtin_convertvector(load_as<typename Type::ByteVec>(chosen + o + c), IndexVec);
          for (int64_t i = 0, row = 0; row < window; ++row) {
            for (int64_t column = 0; column < window; ++column, ++i) {
              const IndexVec position = IndexVec{} + static_cast<typename Type::Index>(i);
              const Vec here = where == position ? gradient : Vec{};
              std::memcpy(rows + (row * W + ow * window + column) * C + c, &here, sizeof here);
            }
          }
        }
      }
      for (int64_t row = 0; row < window; ++row) {  // columns that fill no window
        std::fill(rows + (row * W + OW * window) * C, rows + (row + 1) * W * C, Element{0});
      }
    }
    std::fill(image + OH * window * W * C, image + H * W * C, Element{0});  // rows that fill no window
  });
}

template <class Type>
bool supports_forward(const MaxPool2dForward& call) {
  return Type::is_type_of(call.x) && call.x.shape()[3] % Type::lanes == 0;
}

template <class Type>
bool supports_backward(const MaxPool2dBackward& call) {
  return Type::is_type_of(call.dy) && call.dy.shape()[3] % Type::lanes == 0 && call.window == call.stride;
}

constexpr auto forward_f32 = forward_simd<Floats>, forward_f16 = forward_simd<Halves>;
constexpr auto backward_f32 = backward_simd<Floats>, backward_f16 = backward_simd<Halves>;
constexpr auto takes_f32 = supports_forward<Floats>, takes_f16 = supports_forward<Halves>;
constexpr auto takes_f32_back = supports_backward<Floats>, takes_f16_back = supports_backward<Halves>;

}  // namespace
}  // namespace hs::HS_ISA

#else

#define HS_SOURCE "kernels/max_pool2d/simd.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

REGISTER_KERNEL(max_pool2d_forward, cpu, "simd",
                {.run = HS_DISPATCHED(forward_f32), .supported = HS_DISPATCHED(takes_f32), .rank = 10});
REGISTER_KERNEL(max_pool2d_forward, cpu, "simd16",
                {.run = HS_DISPATCHED(forward_f16), .supported = HS_DISPATCHED(takes_f16), .rank = 10});
REGISTER_KERNEL(max_pool2d_backward, cpu, "simd",
                {.run = HS_DISPATCHED(backward_f32), .supported = HS_DISPATCHED(takes_f32_back), .rank = 10});
REGISTER_KERNEL(max_pool2d_backward, cpu, "simd16",
                {.run = HS_DISPATCHED(backward_f16), .supported = HS_DISPATCHED(takes_f16_back), .rank = 10});

}  // namespace hs

#endif
