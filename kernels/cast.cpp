#include "kernels/cast.h"

#include "kernels/cpu.h"

namespace hs {

Tensor cast(const Tensor& x, DType dtype) {
  const Op op("cast");
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  cast_forward(x, y);
  return record("cast", y, {x}, [from = x.dtype()](const Tensor& dy) -> Gradients { return {cast(dy, from)}; });
}

namespace {

float widen(float value) { return value; }
double widen(double value) { return value; }
float widen(Half value) { return to_float(value); }
float widen(BFloat16 value) { return to_float(value); }

// double -> float, rounded to odd: the last bit of the result is set if anything was lost. A second rounding to 16 bits
// then gives what one rounding from double would have given (Boldo and Melquiond, "Emulation of a FMA and correctly
// rounded sums", 2008). Without it, a double just above a tie would round twice, the wrong way.
float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool away = (back > value) == (value > 0);
  if (away) bits -= 1;  // towards zero first; from inf this gives the largest float
  return std::bit_cast<float>(bits | 1u);
}

template <class To>
To narrow(float value) {
  if constexpr (std::is_same_v<To, Half>) {
    return to_half(value);
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class To>
To narrow(double value) {
  if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>) {
    return narrow<To>(to_odd(value));
  } else {
    return static_cast<To>(value);
  }
}

// Calls body.operator()<T>() for each type that has a place in a cast.
template <class Body>
void for_cast_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::f64:
      return body.template operator()<double>();
    case DType::f16:
      return body.template operator()<Half>();
    case DType::bf16:
      return body.template operator()<BFloat16>();
    case DType::i32:
    case DType::u8:
      return;  // excluded by `supported`
  }
}

void cast_cpu(const Tensor& x, Tensor& y) {
  for_cast_type(x.dtype(), [&]<class From>() {
    for_cast_type(y.dtype(), [&]<class To>() {
      const From* in = x.data<From>();
      To* out = y.mutable_data<To>();
      parallel_ranges(x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = narrow<To>(widen(in[i]));
      });
    });
  });
}

bool is_floating(const Tensor& x) { return x.dtype() != DType::i32 && x.dtype() != DType::u8; }

REGISTER_KERNEL(cast_forward, cpu, "simple", {.run = cast_cpu, .supported = [](const Tensor& x, Tensor& y) {
                                                return is_floating(x) && is_floating(y);
                                              }});

}  // namespace
}  // namespace hs
