#include "kernels/mse_loss/mse_loss.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/register.h"

namespace hs::examples::mse_loss_rows {

// `factor`, a power of two: of the inputs. With 256 the squares do not fit into f16.
OpCase row_of(const Shape& shape, double factor = 1) {
  constexpr double u32 = tolerance::u32;
  return {.name = (factor == 1 ? "mse_loss " : "mse_loss, large, ") + shape.to_string(),
          .shapes = {shape, shape},
          .run = [=](const Inputs& in) { return mse_loss(scale(in[0], factor), scale(in[1], factor)); },
          .forward = {16 * u32, 0, 0},  // squares, which are added in f32 on CUDA
          .gradient = {8 * u32, 0, 0},
          .reference = {[=](const std::vector<Numbers>& in) {
            double sum = 0;
            for (size_t i = 0; i < in[0].size(); ++i) sum += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
            return Numbers{sum * factor * factor / static_cast<double>(in[0].size())};
          }},
          .integers = false,
          .flops = 3 * count(shape)};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : {Shape{5, 3}, Shape{1}, Shape{257, 3}}) table.push_back(row_of(shape));
  table.push_back(row_of({64, 1}, 256));
});

const Examples drawn([](Draw& draw) { return row_of({draw.positive(1000), draw.pick<int64_t>({1, 3})}); });

}  // namespace hs::examples::mse_loss_rows
