// y += x, which sums gradients. The slot is declared in engine/autograd.h, because the engine itself calls it.
#include "engine/autograd.h"
#include "engine/slots.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

void accumulate_cpu(const Accumulate& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* from = call.x.data<T>();
    if constexpr (stores_16_bits<T>) {
      const auto add = [](float sum, float value) { return sum + value; };
      if (call.y.dtype() == call.x.dtype()) {
        T* to = call.y.mutable_data<T>();
        map_elements(call.x.size(), add, to, to, from);
      } else {
        float* to = call.y.mutable_data<float>();
        map_elements(call.x.size(), add, to, to, from);
      }
    } else {
      T* to = call.y.mutable_data<T>();
      parallel_ranges(call.x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      });
    }
  });
}

REGISTER_KERNEL(accumulate, cpu, "simple", {.run = accumulate_cpu, .supported = [](const Accumulate& call) {
                                              return is_float(call.x) && is_same_or_f32(call.x, call.y);
                                            }});

}  // namespace
}  // namespace hs
