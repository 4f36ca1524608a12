#include <fmt/format.h>

#include <numeric>

#include "kernels/cast/cast.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::examples::normalize_image_rows {

std::vector<uint8_t> every_byte() {
  std::vector<uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

const Examples rows([](Table& table) {
  table.push_back(
      {.name = "normalize_image, all 256 values",
       .run = {[](const Inputs&) {
         return normalize_image(on_test_device(Tensor::from(every_byte(), {1, 16, 16, 1})), {0.1307f, 0.3081f});
       }},
       .forward = {1e-6, 1e-7, 0},
       .reference = {[](const std::vector<Numbers>&) {
         Numbers y;
         for (int i = 0; i < 256; ++i) y.push_back((i / 255.0 - double{0.1307f}) / double{0.3081f});
         return y;
       }},
       .flops = 256 * 3,
       .same_on_devices = true});
  for (const DType type : {DType::f16, DType::bf16}) {
    table.push_back({.name = fmt::format("normalize_image to {}, all 256 values", name(type)),
                     .run = {[=](const Inputs&) {
                       const Tensor pixels = on_test_device(Tensor::from(every_byte(), {1, 16, 16, 1}));
                       return cast(normalize_image(pixels, {0.1307f, 0.3081f}, type), DType::f32);
                     }},
                     .reference = {[=](const std::vector<Numbers>&) {
                       Numbers y;
                       for (const uint8_t pixel : every_byte()) {
                         y.push_back(normalized_to(type, pixel, {0.1307f, 0.3081f}));
                       }
                       return y;
                     }}});
  }
});

}  // namespace hs::examples::normalize_image_rows
