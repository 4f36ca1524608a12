#include "kernels/examples/register.h"
#include "kernels/reduce/reduce.h"

namespace hs::examples::reduce_rows {

Numbers total(const std::vector<Numbers>& in) {
  double sum = 0;
  for (const double x : in[0]) sum += x;
  return {sum};
}

OpCase sum_row(const Shape& shape) {
  return {.name = "sum " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& in) { return sum(in[0]); },
          .forward = tolerance::sum,
          .reference = total,
          .terms = {1, 1},
          .flops = count(shape)};
}

OpCase mean_row(const Shape& shape) {
  OpCase row = sum_row(shape);
  row.name = "mean " + shape.to_string();
  row.run = [](const Inputs& in) { return mean(in[0]); };
  row.gradient = tolerance::two_roundings;
  row.reference = [](const std::vector<Numbers>& in) {
    return Numbers{total(in)[0] / static_cast<double>(in[0].size())};
  };
  row.integers = false;
  return row;
}

const Examples rows([](Table& table) {
  // On CUDA 16384 numbers are the first that two blocks sum.
  for (const Shape& shape : {Shape{1}, Shape{3}, Shape{8}, Shape{255}, Shape{1025}, Shape{4099}, Shape{16383},
                             Shape{16384}, Shape{7, 10007}}) {
    table.push_back(sum_row(shape));
    table.push_back(mean_row(shape));
  }
  for (const char* name : {"sum (3)", "mean (1025)"}) add_far_from_0(table, name);
});

const Examples drawn_sum([](Draw& draw) { return sum_row({draw.positive(20000), draw.pick<int64_t>({1, 3})}); });
const Examples drawn_mean([](Draw& draw) { return mean_row({draw.positive(20000), draw.pick<int64_t>({1, 3})}); });

}  // namespace hs::examples::reduce_rows
