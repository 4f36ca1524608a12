// gelu on vectors, in f32, with the exponential of kernels/cpu/vector_math.h: variant "simd".
#include <algorithm>
#include <bit>

#include "kernels/cpu/elements.h"
#include "kernels/gelu/gelu.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/gelu/gate.h"

namespace hs::HS_ISA {
namespace {

// Not lambdas: in a template, GCC compiles theirs without the instruction set that is enabled here.
struct Value {
  Vec operator()(Vec x) const { return GeluGates(x).value(); }
};
struct Gradient {
  Vec operator()(Vec x, Vec dy) const { return GeluGates(x).gradient(dy); }
};

template <class F, class... In>
void map_floats(int64_t count, float* y, const In*... x) {
  for (int64_t i = 0; i < count; i += lanes) store_first(y + i, F()(load_first(x + i, count - i)...), count - i);
}

// y[i] = F(x[i]...) for i from begin to end - 1, vector by vector; 16-bit elements are widened and narrowed in blocks.
template <class F, class T, class... In>
void map_vectors(int64_t begin, int64_t end, T* y, const In*... x) {
  in_blocks<T>(begin, end, [&](int64_t first, int64_t count) {
    if constexpr (stores_16_bits<T>) {
      float out[block_size];
      const auto widened = [&](auto&&... blocks) { map_floats<F>(count, out, blocks.read(x + first, count)...); };
      widened(Block<In>()...);
      narrow(out, y + first, count);
    } else {
      map_floats<F>(count, y + first, (x + first)...);
    }
  });
}

void forward(const GeluForward& call) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    T* y = call.y.mutable_data<T>();
    parallel_ranges(call.x.size(), elementwise_grain,
                    [=](int64_t begin, int64_t end) { map_vectors<Value>(begin, end, y, x); });
  });
}

void backward(const GeluBackward& call) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *dy = call.dy.data<T>();
    T* dx = call.dx.mutable_data<T>();
    parallel_ranges(call.x.size(), elementwise_grain,
                    [=](int64_t begin, int64_t end) { map_vectors<Gradient>(begin, end, dx, x, dy); });
  });
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/gelu/simd.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

REGISTER_KERNEL(gelu_forward, cpu, "simd",
                {.run = HS_DISPATCHED(forward), .supported = takes_f32_or_16_bits, .rank = 10});
REGISTER_KERNEL(gelu_backward, cpu, "simd",
                {.run = HS_DISPATCHED(backward), .supported = takes_f32_or_16_bits, .rank = 10});

}  // namespace
}  // namespace hs
#endif
