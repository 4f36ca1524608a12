#include "kernels/dropout/dropout.h"

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor dropout(const Tensor& x, double rate, const RandomStream& stream, const Tensor& step) {
  const Op op("dropout");
  check(rate >= 0 && rate < 1, "dropout: rate is {}, expected 0 <= rate < 1", rate);
  if (rate == 0) return x;
  Tensor y = x.empty_like();
  dropout_mask({x, rate, stream, step, y});
  const Tensor saved_step = step.defined() ? step.saved() : step;
  return record("dropout", y, {x}, [rate, stream, step = saved_step](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    dropout_mask({dy, rate, stream, step, dx});
    return {dx};
  });
}

namespace {

void dropout_cpu(const DropoutMask& call) {
  RandomStream stream = call.stream;
  if (call.step.defined()) stream.step += static_cast<uint32_t>(*call.step.data<int32_t>());
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    const auto factor = static_cast<Computing<T>>(dropout_scale(call.rate));
    const uint32_t threshold = dropout_threshold(call.rate);
    // The grain is a multiple of dropout_group, so that a piece begins where a block of random numbers does.
    parallel_ranges(call.x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += dropout_group) {
        const Random4 block = random_block(stream, static_cast<uint32_t>(first / dropout_group));
        for (int i = 0; i < dropout_group && first + i < end; ++i) {
          const Computing<T> kept = to_computing(in[first + i]) * factor;
          out[first + i] = from_computing<T>(dropout_keeps(block, i, threshold) ? kept : 0);
        }
      }
    });
  });
}

REGISTER_KERNEL(dropout_mask, cpu, "simple", {.run = dropout_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
