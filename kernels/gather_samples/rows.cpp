#include "engine/slots.h"
#include "kernels/examples/register.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::examples::gather_samples_rows {

OpCase row_of(int64_t bytes) {
  return {.name = "gather_samples, images of " + std::to_string(bytes),
          .run = {[bytes](const Inputs&) {
            std::vector<uint8_t> pixels;
            for (int64_t i = 0; i < 10 * bytes; ++i) pixels.push_back(static_cast<uint8_t>(i * 7));
            const Tensor set = on_test_device(Tensor::from(pixels, {10, 1, bytes, 1}));
            const Tensor samples = on_test_device(Tensor::from(std::vector<int32_t>{9, 0, 4, 4}, {4}));
            Tensor out = on_test_device(Tensor::zeros({4, 1, bytes, 1}, DType::u8));
            gather_samples({set, samples, out});
            return normalize_image(out, {0, 1.0f / 255});
          }},
          .forward = {1e-6, 0, 0},
          .reference = {[bytes](const std::vector<Numbers>&) {
            Numbers y;
            for (const int64_t sample : {9, 0, 4, 4}) {
              for (int64_t i = 0; i < bytes; ++i) y.push_back(static_cast<uint8_t>((sample * bytes + i) * 7));
            }
            return y;
          }},
          .same_on_devices = true};
}

const Examples rows([](Table& table) {
  // Bytes per image: 1, 15, and 16, which a GPU moves at once.
  for (const int64_t bytes : {1, 15, 16}) table.push_back(row_of(bytes));
  // Numbers move as their bytes do.
  const std::vector<float> set = {0.5f, -1, 2, 1e30f, 3, -4};
  table.push_back({.name = "gather_samples, numbers",
                   .run = {[set](const Inputs&) {
                     const Tensor samples = on_test_device(Tensor::from(std::vector<int32_t>{2, 0}, {2}));
                     Tensor out = on_test_device(Tensor::zeros({2, 1, 2, 1}, DType::f32));
                     gather_samples({on_test_device(Tensor::from(set, {3, 1, 2, 1})), samples, out});
                     return out;
                   }},
                   .forward = tolerance::exact,
                   .reference = {[set](const std::vector<Numbers>&) {
                     return Numbers{set[4], set[5], set[0], set[1]};
                   }},
                   .same_on_devices = true});
});

const Examples drawn([](Draw& draw) { return row_of(draw.positive(800)); });

}  // namespace hs::examples::gather_samples_rows
