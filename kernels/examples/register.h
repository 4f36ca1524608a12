// What a file kernels/OP/rows.cpp includes to put its rows into the op table, and what such files share. The fields of
// a row are in kernels/examples/op_table.h.
#pragma once

#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/op_table.h"

namespace hs::examples {

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

// All numbers of these tensors in one of f32: the result of a row whose op writes several.
Tensor join(const std::vector<Tensor>& parts);

// The shapes of ops that work element by element.
inline const Shape elementwise_shapes[] = {{3, 5}, {1}, {0, 4}, {17, 33, 2}, {40001}};

// Adds a row again, with a mean far from 0, for an op that normalises or reduces: where a mean is subtracted that is
// rounded in another place than the reference's, it shows. A mean that is stored in f32 is off by up to 2^-18, which is
// 111 u of the deviation, 0.58; sums over rows, of the gradients, add that up. `forward` and `gradient` are added to
// the row's absolute tolerances.
void add_far_from_0(Table& table, std::string_view name, double forward = 0, double gradient = 0);

// Draws the sizes of a row, those at which kernels go wrong more often than others: the same in another process.
class Draw {
 public:
  Draw(uint64_t seed, uint32_t which);  // of row `which` of drawn_rows(seed)
  // `least` and 1, an odd number, a number beside a multiple of 8, or `most`; now and then `least` alone.
  int64_t size(int64_t most, int64_t least = 0);
  int64_t positive(int64_t most);  // the same without 0
  Shape shape(int64_t most);       // of one to three dimensions, at most so many elements; only the first may be 0
  bool coin() { return below(2) == 1; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<uint32_t>(choices.size()))];
  }

 private:
  uint32_t below(uint32_t n) { return numbers_.next() % n; }
  RandomSequence numbers_;
};

// A namespace-scope object of a file kernels/OP/rows.cpp brings its rows, its sizes to time, or what draws a row, into
// the table. As all of these files compile as one, each has a namespace of its own, called as its folder.
struct Examples {
  explicit Examples(void (*add_rows)(Table& table));
  explicit Examples(std::vector<TimedCase> (*timed)(int64_t batch));
  explicit Examples(OpCase (*drawn)(Draw& draw));
};

}  // namespace hs::examples
