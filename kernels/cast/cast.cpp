#include "kernels/cast/cast.h"

#include "engine/slots.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor cast(const Tensor& x, DType dtype) {
  const Op op("cast");
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  cast_forward({x, y});
  return record("cast", y, {x}, [from = x.dtype()](const Tensor& dy) -> Gradients { return {cast(dy, from)}; });
}

Tensor cast_operand(const Tensor& x) { return x.dtype() == DType::f64 ? x : cast(x, ambient().autocast); }

Tensor cast_of_parameter(const Tensor& parameter) {
  const DType type = ambient().autocast;
  if (!parameter.defined() || parameter.dtype() != DType::f32) return parameter;
  if (const auto& info = parameter.grad_info();
      info && info->cast.defined() && info->cast.dtype() == type && info->cast_version == parameter.version()) {
    return info->cast;
  }
  return cast(parameter.detach(), type);
}

namespace {

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

template <class From, class To>
void cast_range(int64_t begin, int64_t end, const From* in, To* out) {
  if constexpr (std::is_same_v<From, double> && stores_16_bits<To>) {
    for (int64_t i = begin; i < end; ++i) out[i] = from_computing<To>(to_odd(in[i]));
  } else if constexpr (stores_16_bits<From> && std::is_same_v<To, double>) {
    for (int64_t i = begin; i < end; ++i) out[i] = to_computing(in[i]);
  } else if constexpr (stores_16_bits<From> && std::is_same_v<To, float>) {
    widen(in + begin, out + begin, end - begin);
  } else if constexpr (std::is_same_v<From, float> && stores_16_bits<To>) {
    narrow(in + begin, out + begin, end - begin);
  } else {
    map_range(
        begin, end, [](auto value) { return static_cast<Computing<To>>(value); }, out, in);
  }
}

void cast_cpu(const CastForward& call) {
  for_float_type(call.x.dtype(), [&]<class From>() {
    for_float_type(call.y.dtype(), [&]<class To>() {
      const From* in = call.x.data<From>();
      To* out = call.y.mutable_data<To>();
      parallel_ranges(call.x.size(), elementwise_grain,
                      [=](int64_t begin, int64_t end) { cast_range(begin, end, in, out); });
    });
  });
}

REGISTER_KERNEL(cast_forward, cpu, "simple", {.run = cast_cpu, .supported = [](const CastForward& call) {
                                                return is_float(call.x) && is_float(call.y);
                                              }});

}  // namespace
}  // namespace hs
