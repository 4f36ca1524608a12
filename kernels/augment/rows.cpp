#include "engine/random.h"
#include "kernels/augment/augment.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::examples::augment_rows {

const Examples rows([](Table& table) {
  for (const Shape& shape : {Shape{5, 7, 11, 1}, Shape{3, 9, 6, 3}, Shape{2, 1, 1, 1}, Shape{0, 4, 4, 1},
                             Shape{50, 28, 28, 1}, Shape{50, 9, 14, 3}, Shape{50, 1, 5, 2}, Shape{50, 33, 1, 1}}) {
    std::vector<uint8_t> pixels;
    for (int64_t i = 0; i < shape.size(); ++i) {
      pixels.push_back(static_cast<uint8_t>(random_bits({.seed = 3}, static_cast<uint64_t>(i))));
    }
    std::vector<int32_t> samples;
    for (int32_t n = 0; n < shape[0]; ++n) samples.push_back(70000 * n + 1);
    constexpr int32_t epoch = 4;
    constexpr uint64_t seed = 9;
    table.push_back({.name = "augment_image " + shape.to_string(),
                     .run = {[=](const Inputs&) {
                       const auto input = [](const auto& tensor) { return on_test_device(tensor); };
                       const Tensor changed =
                           augment_image(input(Tensor::from(pixels, shape)), input(Tensor::from(samples, {shape[0]})),
                                         input(Tensor::from(std::vector<int32_t>{epoch}, {})),
                                         {.shift = 2, .rotate = 180, .cutout = 3, .flip = true}, seed);
                       return normalize_image(changed, {0, 1 / 255.0f});  // as f32
                     }},
                     // Positions are rounded to 1/256 of a pixel and results to integers: two half steps of a ramp of
                     // 255, half a step of the result, and one for everything else.
                     .forward = {0, 2.5, 0},
                     .reference = {[=](const std::vector<Numbers>&) {
                       Numbers y;
                       const int64_t bytes = shape[1] * shape[2] * shape[3];
                       for (int64_t n = 0; n < shape[0]; ++n) {
                         const ImageWarp warp =
                             draw_warp({2, 3, 1u << 31, true, seed}, samples[static_cast<size_t>(n)], epoch,
                                       static_cast<int32_t>(shape[1]), static_cast<int32_t>(shape[2]));
                         const Numbers image(pixels.begin() + n * bytes, pixels.begin() + (n + 1) * bytes);
                         for (const double value : naive_warp(image, {shape[1], shape[2], shape[3]}, warp)) {
                           y.push_back(value);
                         }
                       }
                       return y;
                     }},
                     .flops = 30 * count(shape),
                     .same_on_devices = true});
  }
});

}  // namespace hs::examples::augment_rows
