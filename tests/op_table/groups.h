// The groups of rows, each defined in a file of its own. Internal to tests/op_table/.
#pragma once

#include <type_traits>
#include <vector>

#include "kernels/cast/cast.h"
#include "tests/op_table/op_table.h"

namespace hs::test {

using Table = std::vector<OpCase>;

inline double count(const Shape& shape) { return static_cast<double>(shape.size()); }

// The inputs of a row have one type; this is a parameter of an op that wants f32 where x has 16 bits.
inline Tensor parameter(const Tensor& input) {
  if (!input.defined() || input.dtype() == DType::f64) return input;
  return cast(input, DType::f32);
}

// Applies f to the inputs element by element (or pair by pair).
template <class F>
auto elementwise(F f) {
  return [f](const std::vector<Numbers>& in) {
    Numbers y(in[0].size());
    for (size_t i = 0; i < y.size(); ++i) {
      if constexpr (std::is_invocable_v<F, double, double>) {
        y[i] = f(in[0][i], in[1][i]);
      } else {
        y[i] = f(in[0][i]);
      }
    }
    return y;
  };
}

void add_elementwise(Table& table);
void add_reductions(Table& table);
void add_normalizations(Table& table);
void add_matrix_products(Table& table);
void add_convolutions(Table& table);
void add_pooling(Table& table);
void add_losses(Table& table);
void add_decided_losses(Table& table);
void add_optimizer_steps(Table& table);
void add_images(Table& table);
void add_recorded_steps(Table& table);
void add_sequences(Table& table);

}  // namespace hs::test
