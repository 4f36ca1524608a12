// What conv2d's gradients make of inf and NaN (kernels/conv2d/conv2d.h says it), for the tests on both devices: an
// overflow that the loss depends on must reach the gradients that the scaler looks at, in every variant and type.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/autograd.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d/conv2d.h"
#include "tests/support/checks.h"

namespace hs::test {

struct Convolution {
  Shape x;
  int64_t OC;
  Conv2dOptions options = {};
};

inline void put(const Tensor& target, int64_t at, float value) {
  target.slice(at, {1}).copy_from(cast(Tensor::from(std::vector<float>{value}, {1}), target.dtype()));
}

// A convolution whose dy is changed by `change` before it gets there.
template <class Change>
OpCase row_with_gradient(const Convolution& c, const Change& change) {
  const int64_t K = c.options.kernel_h * c.options.kernel_w * c.x[3];
  return {.name = "conv2d " + c.x.to_string(),
          .shapes = {c.x, {K, c.OC}, {c.OC}},
          .run = [options = c.options, change](const Inputs& in) {
            const Tensor y = conv2d(in[0], in[1], in[2], options);
            return record("change_gradient", y.clone(), {y}, [change](const Tensor& dy) -> Gradients {
              Tensor changed = dy.clone();
              change(changed);
              return {changed};
            });
          }};
}

// Inputs of the row, of whose x every third number is zero, as a ReLU leaves them, and the middle one is `bad`.
inline Inputs inputs_with(const OpCase& row, const RowRun& how, float bad) {
  const Inputs inputs = inputs_of(row, how);
  Tensor x = inputs[0];
  for (int64_t i = 0; i < x.size(); i += 3) x.mutable_data<float>()[i] = 0;
  put(x, x.size() / 2, bad);
  return inputs;
}

inline bool is_finite(const Tensor& x) {
  const Numbers values = to_numbers(x);
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

// One inf or NaN, in dy, or in an x that dy needs.
inline void check_not_finite(const Convolution& c, Device device) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const bool in_dy : {true, false}) {
      int64_t at = -1;
      const OpCase row = row_with_gradient(c, [&, in_dy](Tensor& dy) {
        at = dy.size() / 3;
        if (in_dy) put(dy, at, bad);
      });
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const RowRun how = run_on(device, dtype);
        const Inputs inputs = inputs_with(row, how, in_dy ? 0.5f : bad);
        for_each_variant(row, how, [&](const std::string& description) {
          INFO(description, ": ", bad, in_dy ? " in dy" : " in x");
          const auto results = run_row(row, inputs, how);  // y, dx, dweight, dbias
          CHECK(is_finite(results[1]) == !in_dy);
          CHECK_FALSE(is_finite(results[2]));
          CHECK(is_finite(results[3]) == !in_dy);
          // Of dy's channel every tap; a kernel may leave out those that lie in the padding.
          const Numbers of_weight = to_numbers(results[2]);
          int64_t wrong = 0;
          for (int64_t i = 0; in_dy && i < std::ssize(of_weight); ++i) {
            const bool same_channel = i % c.OC == at % c.OC, finite = std::isfinite(of_weight[static_cast<size_t>(i)]);
            wrong += same_channel ? finite && c.options.padding == 0 : !finite;
          }
          CHECK(wrong == 0);
        });
      }
    }
  }
}

}  // namespace hs::test
