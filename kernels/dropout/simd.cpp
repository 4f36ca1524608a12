// dropout_mask on vectors: the random numbers of 128 elements become 128 bits, one for each element, set if it is kept.
// A vector of elements is multiplied by the scale and masked with its part of the bits. The numbers are those of the
// simple variant. Read next: kernels/cpu/philox.h.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/elements.h"
#include "kernels/dropout/dropout.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/cpu/philox.h"

namespace hs::HS_ISA {
namespace {

// Elements first .. first + count - 1 of the tensor; in and out may be the same. REQUIRES: first is a multiple of 8
template <class Value>
void mask_values(const PhiloxStream& stream, uint32_t threshold, Value factor, int64_t first, int64_t count,
                 const Value* in, Value* out) {
  for (int64_t i = 0; i < count; i += 128) {
    const Bits128 kept = numbers_at_least(threshold, stream, static_cast<uint32_t>((first + i) / dropout_group));
    for (int64_t j = i; j < std::min(i + 128, count); j += 64) {
      const uint64_t bits = kept.half[(j - i) / 64];
      if constexpr (std::is_same_v<Value, float>) {
        if (count - j >= 64) {
          for (int64_t k = 0; k < 64; k += lanes)
            store(out + j + k, where_bits(static_cast<uint32_t>(bits >> k), load(in + j + k) * factor));
          continue;
        }
      }
      const int64_t left = std::min<int64_t>(count - j, 64);
      for (int64_t k = 0; k < left; ++k) out[j + k] = bits >> k & 1 ? in[j + k] * factor : 0;
    }
  }
}

void mask(const DropoutMask& call) {
  RandomStream stream = call.stream;
  if (call.step.defined()) stream.step += static_cast<uint32_t>(*call.step.data<int32_t>());
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    const auto factor = static_cast<Computing<T>>(dropout_scale(call.rate));
    const uint32_t threshold = dropout_threshold(call.rate);
    parallel_ranges(call.x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      const PhiloxStream numbers(stream);
      in_blocks<T>(begin, end, [&](int64_t first, int64_t count) {
        if constexpr (stores_16_bits<T>) {
          float values[block_size];
          widen(in + first, values, count);
          mask_values(numbers, threshold, factor, first, count, values, values);
          narrow(values, out + first, count);
        } else {
          mask_values(numbers, threshold, factor, first, count, in + first, out + first);
        }
      });
    });
  });
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/dropout/simd.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

REGISTER_KERNEL(dropout_mask, cpu, "simd", {.run = HS_DISPATCHED(mask), .supported = takes_floats, .rank = 10});

}  // namespace
}  // namespace hs
#endif
