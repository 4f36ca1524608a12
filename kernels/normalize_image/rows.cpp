#include <fmt/format.h>

#include <numeric>

#include "kernels/cast/cast.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::examples::normalize_image_rows {

OpCase row_of(DType type, const Shape& shape) {
  constexpr PixelScale scale{0.1307f, 0.3081f};
  std::vector<uint8_t> pixels(static_cast<size_t>(shape.size()));
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});  // and again from 0 after 255
  return {.name = fmt::format("normalize_image to {} {}", name(type), shape.to_string()),
          .run = {[=](const Inputs&) {
            return cast(normalize_image(on_test_device(Tensor::from(pixels, shape)), scale, type), DType::f32);
          }},
          .forward = type == DType::f32 ? Tolerance{1e-6, 1e-7, 0} : tolerance::exact,
          .reference = {[=](const std::vector<Numbers>&) {
            Numbers y;
            for (const uint8_t pixel : pixels) {
              y.push_back(type == DType::f32 ? (pixel / 255.0 - double{scale.mean}) / double{scale.deviation}
                                             : normalized_to(type, pixel, scale));
            }
            return y;
          }},
          .flops = 3 * count(shape),
          .same_on_devices = true};
}

const Examples rows([](Table& table) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) table.push_back(row_of(type, {1, 16, 16, 1}));
});

const Examples drawn([](Draw& draw) {
  const auto type = draw.pick({DType::f32, DType::f16, DType::bf16});
  return row_of(type, {draw.size(9), draw.positive(30), draw.positive(30), draw.pick<int64_t>({1, 3})});
});

}  // namespace hs::examples::normalize_image_rows
