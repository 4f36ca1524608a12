// Rows of what happens to images before the first layer, and of steps that read and log by themselves.
#include <fmt/format.h>

#include <numeric>

#include "engine/random.h"
#include "engine/slots.h"
#include "kernels/augment/augment.h"
#include "kernels/cast/cast.h"
#include "kernels/gather_batch/gather_batch.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/split_windows/split_windows.h"
#include "tests/op_table/groups.h"
#include "tests/op_table/naive.h"

namespace hs::test {
namespace {

std::vector<uint8_t> every_byte() {
  std::vector<uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

// A pixel as normalize_image() has it: rounded once, as by a cast of the f32 result.
double normalized_to(DType type, uint8_t pixel, const PixelScale& scale) {
  const float value = normalized(pixel, scale);
  return type == DType::f16 ? to_float(to_half(value)) : type == DType::bf16 ? to_float(to_bfloat16(value)) : value;
}

}  // namespace
// Three samples from position 2 + 4 of epoch 3 on, of a set of ten images: labels, indices, the epoch, the pixels.
void add_recorded_steps(Table& table) {
  constexpr int64_t count = 10, N = 3, position = 6;
  constexpr int32_t epoch = 3;
  constexpr uint64_t seed = 9;
  const PixelScale scale{0.25f, 0.5f};
  for (const auto& [size, type] : {std::pair{15, DType::u8},
                                   {16, DType::u8},
                                   {15, DType::f16},
                                   {16, DType::f16},
                                   {16, DType::bf16},
                                   {16, DType::f32}}) {
    for (const bool shuffle : {true, false}) {
      const auto pixel = [size](int64_t sample, int64_t i) { return static_cast<uint8_t>((sample * size + i) * 7); };
      table.push_back(
          {.name =
               fmt::format("gather_batch, images of {} pixels in {}{}", size, name(type), shuffle ? ", shuffled" : ""),
           .shapes = {},
           .run =
               [=](const Inputs&) {
                 std::vector<uint8_t> pixels;
                 std::vector<int32_t> labels;
                 for (int64_t n = 0; n < count; ++n) {
                   for (int64_t i = 0; i < size; ++i) pixels.push_back(pixel(n, i));
                   labels.push_back(static_cast<int32_t>(100 + n));
                 }
                 const auto integers = [](const std::vector<int32_t>& values) {
                   return on_test_device(Tensor::from(values, {static_cast<int64_t>(values.size())}));
                 };
                 Tensor images = on_test_device(Tensor::zeros({N, 1, size, 1}, type));
                 Tensor label = integers({0, 0, 0}), samples = integers({0, 0, 0});
                 Tensor epoch_out = on_test_device(Tensor::zeros({}, DType::i32));
                 gather_batch({on_test_device(Tensor::from(pixels, {count, 1, size, 1})), integers(labels),
                               integers({epoch, 2, 0}), scale, shuffle, seed, 4, images, label, samples, epoch_out});
                 std::vector<float> all;
                 for (const Tensor& tensor : {label, samples, epoch_out}) {
                   for (const int32_t value : tensor.to_vector<int32_t>()) {
                     all.push_back(static_cast<float>(value));
                   }
                 }
                 if (type == DType::u8) {
                   for (const uint8_t value : images.to_vector<uint8_t>()) all.push_back(value);
                 } else {
                   for (const float value : cast(images, DType::f32).to_vector<float>()) all.push_back(value);
                 }
                 const auto values = static_cast<int64_t>(all.size());
                 return Tensor::from(all, {values});
               },
           .reference =
               [=](const std::vector<Numbers>&) {
                 const Permutation order(count, {seed, RandomPurpose::shuffle, 0, epoch, 0});
                 Numbers labels, samples, pixels;
                 for (int64_t p = position; p < position + N; ++p) {
                   const auto n = shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(p))) : p;
                   labels.push_back(static_cast<double>(100 + n));
                   samples.push_back(static_cast<double>(n));
                   for (int64_t i = 0; i < size; ++i) {
                     const uint8_t value = pixel(n, i);
                     pixels.push_back(type == DType::u8 ? value : normalized_to(type, value, scale));
                   }
                 }
                 labels.insert(labels.end(), samples.begin(), samples.end());
                 labels.push_back(epoch);
                 labels.insert(labels.end(), pixels.begin(), pixels.end());
                 return labels;
               },
           .f64 = false,
           .half = false,
           .differentiable = false,
           .integers = false,
           .nan = false});
    }
  }
}

void add_images(Table& table) {
  for (const auto& [N, T] : {std::pair<int64_t, int64_t>{3, 5}, {1, 1}, {2, 300}, {0, 4}}) {
    table.push_back(
        {.name = fmt::format("split_windows, {} of {} + 1 symbols", N, T),
         .shapes = {},
         .run =
             [=](const Inputs&) {
               std::vector<uint8_t> symbols;
               for (int64_t i = 0; i < N * (T + 1); ++i) symbols.push_back(static_cast<uint8_t>(i * 7));
               const auto [tokens, labels] = split_windows(on_test_device(Tensor::from(symbols, {N, 1, T + 1, 1})));
               std::vector<float> all;
               for (const Tensor& tensor : {tokens, labels}) {
                 for (const int32_t value : tensor.to_vector<int32_t>()) {
                   all.push_back(static_cast<float>(value));
                 }
               }
               return Tensor::from(all, {2, N * T});
             },
         .reference =
             [=](const std::vector<Numbers>&) {
               Numbers all;
               for (const int64_t first : {0, 1}) {
                 for (int64_t i = 0; i < N * T; ++i) {
                   all.push_back(static_cast<double>((i / T * (T + 1) + i % T + first) * 7 % 256));
                 }
               }
               return all;
             },
         .f64 = false,
         .half = false,
         .differentiable = false,
         .integers = false,
         .nan = false,
         .same_on_devices = true});
  }
  table.push_back(
      {.name = "normalize_image, all 256 values",
       .shapes = {},
       .run =
           [](const Inputs&) {
             return normalize_image(on_test_device(Tensor::from(every_byte(), {1, 16, 16, 1})), {0.1307f, 0.3081f});
           },
       .forward = {1e-6, 1e-7, 0},
       .reference =
           [](const std::vector<Numbers>&) {
             Numbers y;
             for (int i = 0; i < 256; ++i) y.push_back((i / 255.0 - double{0.1307f}) / double{0.3081f});
             return y;
           },
       .f64 = false,
       .half = false,
       .differentiable = false,
       .integers = false,
       .nan = false,
       .flops = 256 * 3,
       .same_on_devices = true});
  for (const DType type : {DType::f16, DType::bf16}) {
    table.push_back({.name = fmt::format("normalize_image to {}, all 256 values", name(type)),
                     .shapes = {},
                     .run =
                         [=](const Inputs&) {
                           const Tensor pixels = on_test_device(Tensor::from(every_byte(), {1, 16, 16, 1}));
                           return cast(normalize_image(pixels, {0.1307f, 0.3081f}, type), DType::f32);
                         },
                     .reference =
                         [=](const std::vector<Numbers>&) {
                           Numbers y;
                           for (const uint8_t pixel : every_byte()) {
                             y.push_back(normalized_to(type, pixel, {0.1307f, 0.3081f}));
                           }
                           return y;
                         },
                     .f64 = false,
                     .half = false,
                     .differentiable = false,
                     .integers = false,
                     .nan = false});
  }
  for (const Shape& shape : {Shape{5, 7, 11, 1}, Shape{3, 9, 6, 3}, Shape{2, 1, 1, 1}, Shape{0, 4, 4, 1}}) {
    std::vector<uint8_t> pixels;
    for (int64_t i = 0; i < shape.size(); ++i) {
      pixels.push_back(static_cast<uint8_t>(random_bits({.seed = 3}, static_cast<uint64_t>(i))));
    }
    std::vector<int32_t> samples;
    for (int32_t n = 0; n < shape[0]; ++n) samples.push_back(70000 * n + 1);
    constexpr int32_t epoch = 4;
    constexpr uint64_t seed = 9;
    table.push_back({.name = "augment_image " + shape.to_string(),
                     .shapes = {},
                     .run =
                         [=](const Inputs&) {
                           const auto input = [](const auto& tensor) { return on_test_device(tensor); };
                           const Tensor changed = augment_image(
                               input(Tensor::from(pixels, shape)), input(Tensor::from(samples, {shape[0]})),
                               input(Tensor::from(std::vector<int32_t>{epoch}, {})),
                               {.shift = 2, .rotate = 30, .cutout = 3, .flip = true}, seed);
                           return normalize_image(changed, {0, 1 / 255.0f});  // as f32
                         },
                     // Positions are rounded to 1/256 of a pixel and results to integers: two half steps of a ramp of
                     // 255, half a step of the result, and one for everything else.
                     .forward = {0, 2.5, 0},
                     .reference =
                         [=](const std::vector<Numbers>&) {
                           Numbers y;
                           const int64_t bytes = shape[1] * shape[2] * shape[3];
                           for (int64_t n = 0; n < shape[0]; ++n) {
                             const ImageWarp warp =
                                 draw_warp({2, 3, 357913941, true, seed}, samples[static_cast<size_t>(n)], epoch,
                                           static_cast<int32_t>(shape[1]), static_cast<int32_t>(shape[2]));
                             const Numbers image(pixels.begin() + n * bytes, pixels.begin() + (n + 1) * bytes);
                             for (const double value : naive_warp(image, {shape[1], shape[2], shape[3]}, warp)) {
                               y.push_back(value);
                             }
                           }
                           return y;
                         },
                     .f64 = false,
                     .half = false,
                     .differentiable = false,
                     .integers = false,
                     .nan = false,
                     .flops = 30 * count(shape),
                     .same_on_devices = true});
  }
  // Bytes per image: 1, 15, and 16, which a GPU moves at once.
  for (const int64_t bytes : {1, 15, 16}) {
    table.push_back({.name = "gather_samples, images of " + std::to_string(bytes),
                     .shapes = {},
                     .run =
                         [bytes](const Inputs&) {
                           std::vector<uint8_t> pixels;
                           for (int64_t i = 0; i < 10 * bytes; ++i) pixels.push_back(static_cast<uint8_t>(i * 7));
                           const Tensor set = on_test_device(Tensor::from(pixels, {10, 1, bytes, 1}));
                           const Tensor samples = on_test_device(Tensor::from(std::vector<int32_t>{9, 0, 4, 4}, {4}));
                           Tensor out = on_test_device(Tensor::zeros({4, 1, bytes, 1}, DType::u8));
                           gather_samples({set, samples, out});
                           return normalize_image(out, {0, 1.0f / 255});
                         },
                     .forward = {1e-6, 0, 0},
                     .reference =
                         [bytes](const std::vector<Numbers>&) {
                           Numbers y;
                           for (const int64_t sample : {9, 0, 4, 4}) {
                             for (int64_t i = 0; i < bytes; ++i)
                               y.push_back(static_cast<uint8_t>((sample * bytes + i) * 7));
                           }
                           return y;
                         },
                     .f64 = false,
                     .half = false,
                     .differentiable = false,
                     .integers = false,
                     .nan = false,
                     .same_on_devices = true});
  }
}

}  // namespace hs::test
