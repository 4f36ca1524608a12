#include "kernels/cast/cast.h"
#include "kernels/examples/register.h"

namespace hs::examples::cast_rows {

const Examples rows([](Table& table) {
  table.push_back({.name = "cast to f16 and back (5, 7)",
                   .shapes = {{5, 7}},
                   .run = [](const Inputs& in) { return cast(cast(in[0], DType::f16), in[0].dtype()); },
                   .reference = elementwise([](double x) { return to_float(to_half(static_cast<float>(x))); }),
                   .half = false,
                   .differentiable = false,
                   .same_on_devices = true});
  table.push_back({.name = "cast to bf16 and back (5, 7)",
                   .shapes = {{5, 7}},
                   .run = [](const Inputs& in) { return cast(cast(in[0], DType::bf16), in[0].dtype()); },
                   .reference = elementwise([](double x) { return to_float(to_bfloat16(static_cast<float>(x))); }),
                   .half = false,
                   .differentiable = false,
                   .same_on_devices = true});
});

}  // namespace hs::examples::cast_rows
