// y += x: how gradients meet. The slot is declared in engine/autograd.h, because the engine itself calls it.
#include "engine/autograd.h"
#include "kernels/cpu.h"

namespace hs {
namespace {

void accumulate_cpu(const Tensor& x, Tensor& y) {
  for_float_type(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    if constexpr (stores_16_bits<T>) {
      const auto add = [](float sum, float value) { return sum + value; };
      if (y.dtype() == x.dtype()) {
        T* to = y.mutable_data<T>();
        map_elements(x.size(), add, to, to, from);
      } else {
        float* to = y.mutable_data<float>();
        map_elements(x.size(), add, to, to, from);
      }
    } else {
      T* to = y.mutable_data<T>();
      parallel_ranges(x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      });
    }
  });
}

REGISTER_KERNEL(accumulate, cpu, "simple", {.run = accumulate_cpu, .supported = [](const Tensor& x, Tensor& y) {
                                              return is_float(x) && is_same_or_f32(x, y);
                                            }});

}  // namespace
}  // namespace hs
