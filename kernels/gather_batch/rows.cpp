// Rows of gather_batch: three samples from position 2 + 4 of epoch 3 on, of a set of ten images. Labels, indices, the
// epoch, then the pixels.
#include <fmt/format.h>

#include "engine/random.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/gather_batch/gather_batch.h"

namespace hs::examples::gather_batch_rows {

// numbers: the set is f32, and so are its labels, which arrive as they are.
OpCase row_of(int64_t size, DType type, bool shuffle, bool numbers = false) {
  constexpr int64_t count = 10, N = 3, position = 6;
  constexpr int32_t epoch = 3;
  constexpr uint64_t seed = 9;
  const PixelScale scale{0.25f, 0.5f};
  const auto pixel = [size](int64_t sample, int64_t i) { return static_cast<uint8_t>((sample * size + i) * 7); };
  return {.name = fmt::format("gather_batch, {} of {} pixels in {}{}", numbers ? "numbers" : "images", size, name(type),
                              shuffle ? ", shuffled" : ""),
          .run = {[=](const Inputs&) {
            std::vector<uint8_t> pixels;
            std::vector<int32_t> labels;
            std::vector<float> values, targets;
            for (int64_t n = 0; n < count; ++n) {
              for (int64_t i = 0; i < size; ++i) pixels.push_back(pixel(n, i));
              labels.push_back(static_cast<int32_t>(100 + n));
              targets.push_back(static_cast<float>(100 + n));
            }
            values.assign(pixels.begin(), pixels.end());
            const Shape all{count, 1, size, 1};
            const Tensor set = on_test_device(numbers ? Tensor::from(values, all) : Tensor::from(pixels, all));
            const auto integers = [](const std::vector<int32_t>& values) {
              return on_test_device(Tensor::from(values, {static_cast<int64_t>(values.size())}));
            };
            Tensor images = on_test_device(Tensor::zeros({N, 1, size, 1}, type));
            const Tensor set_labels = numbers ? on_test_device(Tensor::from(targets, {count})) : integers(labels);
            Tensor label = on_test_device(Tensor::zeros({N}, set_labels.dtype())), samples = integers({0, 0, 0});
            Tensor epoch_out = on_test_device(Tensor::zeros({}, DType::i32));
            gather_batch(
                {set, set_labels, integers({epoch, 2, 0}), scale, shuffle, seed, 4, images, label, samples, epoch_out});
            return join({label, samples, epoch_out, images});
          }},
          .reference = {[=](const std::vector<Numbers>&) {
            const Permutation order(count, {seed, RandomPurpose::shuffle, 0, epoch, 0});
            Numbers labels, samples, pixels;
            for (int64_t p = position; p < position + N; ++p) {
              const auto n = shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(p))) : p;
              labels.push_back(static_cast<double>(100 + n));
              samples.push_back(static_cast<double>(n));
              for (int64_t i = 0; i < size; ++i) {
                const uint8_t value = pixel(n, i);
                pixels.push_back(type == DType::u8 || numbers ? value : normalized_to(type, value, scale));
              }
            }
            labels.insert(labels.end(), samples.begin(), samples.end());
            labels.push_back(epoch);
            labels.insert(labels.end(), pixels.begin(), pixels.end());
            return labels;
          }}};
}

const Examples rows([](Table& table) {
  for (const auto& [size, type] : {std::pair{15, DType::u8},
                                   {16, DType::u8},
                                   {15, DType::f16},
                                   {16, DType::f16},
                                   {16, DType::bf16},
                                   {16, DType::f32}}) {
    for (const bool shuffle : {true, false}) {
      table.push_back(row_of(size, type, shuffle));
    }
  }
  for (const int64_t size : {3, 4}) table.push_back(row_of(size, DType::f32, true, true));
});

const Examples drawn([](Draw& draw) {
  const auto type = draw.pick({DType::u8, DType::f16, DType::bf16, DType::f32});
  return row_of(draw.positive(800), type, draw.coin());
});

}  // namespace hs::examples::gather_batch_rows
