#include "kernels/cast/cast.h"

#include <fmt/format.h>

#include "kernels/examples/register.h"

namespace hs::examples::cast_rows {

OpCase row_of(DType type, const Shape& shape) {
  return {.name = fmt::format("cast to {} and back {}", name(type), shape.to_string()),
          .shapes = {shape},
          .run = [type](const Inputs& in) { return cast(cast(in[0], type), in[0].dtype()); },
          .reference = elementwise([type](double x) -> double {
            const auto value = static_cast<float>(x);
            return type == DType::f16 ? to_float(to_half(value)) : to_float(to_bfloat16(value));
          }),
          .half = false,
          .differentiable = false,
          .same_on_devices = true};
}

const Examples rows([](Table& table) {
  for (const DType type : {DType::f16, DType::bf16}) table.push_back(row_of(type, {5, 7}));
});

const Examples drawn([](Draw& draw) { return row_of(draw.pick({DType::f16, DType::bf16}), draw.shape(40001)); });

}  // namespace hs::examples::cast_rows
