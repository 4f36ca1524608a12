#include "kernels/dropout/dropout.h"

#include <algorithm>

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

// Numbers 4*first .. 4*(first + lanes) - 1 of a stream: the arithmetic of philox4x32 (engine/random.h) with the loop
// over blocks innermost, which the compiler vectorises.
constexpr int lanes = 16;

void random_numbers(const RandomStream& stream, uint32_t first, uint32_t (&numbers)[4 * lanes]) {
  uint32_t words[4][lanes];
  const Random4 counter = random_counter(stream, first);
  for (int lane = 0; lane < lanes; ++lane) {
    words[0][lane] = first + static_cast<uint32_t>(lane);
    for (int w = 1; w < 4; ++w) words[w][lane] = counter.word[w];
  }
  uint32_t key0 = static_cast<uint32_t>(stream.seed), key1 = static_cast<uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += philox_key0, key1 += philox_key1) {
    for (int lane = 0; lane < lanes; ++lane) {
      const uint64_t product0 = uint64_t{philox_multiplier0} * words[0][lane];
      const uint64_t product1 = uint64_t{philox_multiplier1} * words[2][lane];
      words[0][lane] = static_cast<uint32_t>(product1 >> 32) ^ words[1][lane] ^ key0;
      words[1][lane] = static_cast<uint32_t>(product1);
      words[2][lane] = static_cast<uint32_t>(product0 >> 32) ^ words[3][lane] ^ key1;
      words[3][lane] = static_cast<uint32_t>(product0);
    }
  }
  for (int lane = 0; lane < lanes; ++lane) {
    for (int w = 0; w < 4; ++w) numbers[4 * lane + w] = words[w][lane];
  }
}

void dropout_cpu(const DropoutMask& call) {
  RandomStream stream = call.stream;
  if (call.step.defined()) stream.step += static_cast<uint32_t>(*call.step.data<int32_t>());
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    const auto factor = static_cast<Computing<T>>(1 / (1 - call.rate));
    const uint32_t threshold = dropout_threshold(call.rate);
    // The grain is a multiple of 4 * lanes, so that a piece begins where a block of random numbers does.
    parallel_ranges(call.x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += 4 * lanes) {
        uint32_t numbers[4 * lanes];
        random_numbers(stream, static_cast<uint32_t>(first / 4), numbers);
        const auto keep = [=](auto value, uint32_t number) {
          const auto kept = value * factor;
          return number >= threshold ? kept : 0;
        };
        map_range(0, std::min<int64_t>(end - first, 4 * lanes), keep, out + first, in + first, &numbers[0]);
      }
    });
  });
}

REGISTER_KERNEL(dropout_mask, cpu, "simple",
                {.run = dropout_cpu, .supported = [](const DropoutMask& call) { return is_float(call.x); }});

}  // namespace
}  // namespace hs
