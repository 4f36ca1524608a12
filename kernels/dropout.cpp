#include "kernels/dropout.h"

#include "engine/check.h"
#include "kernels/cpu.h"

namespace hs {

Tensor dropout(const Tensor& x, double rate, const RandomStream& stream) {
  check(rate >= 0 && rate < 1, "dropout: rate is {}, expected 0 <= rate < 1", rate);
  if (rate == 0) return x;
  Tensor y = x.empty_like();
  dropout_mask(x, rate, stream, y);
  return record("dropout", y, {x}, [rate, stream](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    dropout_mask(dy, rate, stream, dx);
    return {dx};
  });
}

namespace {

void dropout_cpu(const Tensor& x, double rate, const RandomStream& stream, Tensor& y) {
  for_float_type(x.dtype(), [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    const T factor = static_cast<T>(1 / (1 - rate));
    const uint32_t threshold = dropout_threshold(rate);
    // The grain is a multiple of 4, so that a piece owns whole blocks of random numbers.
    parallel_ranges(x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += 4) {
        const Random4 random = random_block(stream, static_cast<uint32_t>(first / 4));
        for (int64_t i = first; i < end && i < first + 4; ++i) {
          out[i] = random.word[i - first] >= threshold ? in[i] * factor : T(0);
        }
      }
    });
  });
}

REGISTER_KERNEL(dropout_mask, cpu, "simple",
                {.run = dropout_cpu,
                 .supported = [](const Tensor& x, double, const RandomStream&, Tensor&) { return is_f32_or_f64(x); }});

}  // namespace
}  // namespace hs
