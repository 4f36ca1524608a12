// Every differentiable row of the op table against central differences in f64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/autograd.h"
#include "engine/error.h"
#include "engine/random.h"
#include "tests/support/checks.h"
#include "tests/support/sanitized.h"

namespace hs::test {
namespace {

const RowRun in_f64 = run_on(Device::cpu, DType::f64);

// Fixed "random" weights in (-1, 1), never zero, that turn the output into one number: L = sum_i weight_i * y_i.
double output_weight(size_t i) {
  return 2 * to_unit_float(random_bits({5, RandomPurpose::init, 77, 0, 0}, i)) - 1 + 0x1p-30;
}

double weighted_output(const OpCase& row, const Inputs& inputs) {
  const NoGrad no_grad;
  const Numbers y = to_numbers(row.run(inputs));
  double total = 0;
  for (size_t i = 0; i < y.size(); ++i) total += output_weight(i) * y[i];
  return total;
}

std::vector<Numbers> gradients(const OpCase& row, const Inputs& inputs, double factor = 1) {
  Inputs leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.clone());
    leaves.back().set_requires_grad(true);
  }
  const Tensor y = row.run(leaves);
  Numbers dy(static_cast<size_t>(y.size()));
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = factor * output_weight(i);
  backward(y, Tensor::from(dy, y.shape()));
  std::vector<Numbers> result;
  for (const Tensor& leaf : leaves) {
    REQUIRE(leaf.grad().defined());
    REQUIRE(leaf.grad().shape() == leaf.shape());
    REQUIRE(leaf.grad().dtype() == leaf.dtype());
    result.push_back(to_numbers(leaf.grad()));
  }
  return result;
}

// dL along `direction` of input k, by central differences: (L(x + h d) - L(x - h d)) / 2h.
double difference(const OpCase& row, const Inputs& inputs, size_t k, const Numbers& direction) {
  const double h = 6e-6;  // balances rounding, about 2e-11 |L|, against the third derivative (reliability of f64)
  const Numbers x = to_numbers(inputs[k]);
  const auto at = [&](double step) {
    Numbers moved = x;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
    Inputs changed = inputs;
    changed[k] = Tensor::from(moved, inputs[k].shape());
    return weighted_output(row, changed);
  };
  return (at(h) - at(-h)) / (2 * h);
}

// The whole gradient of a small input, four random +-1 directions of a large one.
void check_input(const OpCase& row, const Inputs& inputs, size_t k, const Numbers& analytic) {
  const size_t size = analytic.size();
  Numbers measured, from_backward;
  const bool whole = size <= 64;
  for (size_t n = 0; n < (whole ? size : 4); ++n) {
    Numbers direction(size);
    double along = 0;
    for (size_t i = 0; i < size; ++i) {
      const uint32_t draw = random_bits({6, RandomPurpose::init, static_cast<uint32_t>(n), 0, 0}, i);
      direction[i] = whole ? (i == n ? 1 : 0) : (draw & 1 ? 1 : -1);
      along += direction[i] * analytic[i];
    }
    measured.push_back(difference(row, inputs, k, direction));
    from_backward.push_back(along);
  }
  const Comparison result = compare(from_backward, measured, tolerance::gradient_check);
  INFO(row.name, ", gradient of input ", k, ": ", result.summary);
  CHECK(result.passed);
}

}  // namespace

TEST_CASE("every op's gradient matches central differences in f64" * doctest::skip(with_address_sanitizer)) {
  int checked = 0;
  for (const OpCase& row : op_table()) {
    if (!row.differentiable) continue;
    guard_row(row, in_f64, [&] {
      const Inputs inputs = make_inputs(row, DType::f64);
      const auto analytic = gradients(row, inputs);
      for (size_t k = 0; k < inputs.size(); ++k) check_input(row, inputs, k, analytic[k]);
      ++checked;
    });
  }
  CHECK((checked >= 60 || !is_whole_table()));  // the table shrank if this fails
}

TEST_CASE("a gradient of zero gives zero gradients, and twice the gradient gives twice the bits") {
  for (const OpCase& row : op_table()) {
    if (!row.differentiable) continue;
    guard_row(row, in_f64, [&] {
      CAPTURE(row.name);
      const Inputs inputs = make_inputs(row, DType::f64);
      const auto once = gradients(row, inputs), again = gradients(row, inputs), twice = gradients(row, inputs, 2),
                 zero = gradients(row, inputs, 0);
      for (size_t k = 0; k < inputs.size(); ++k) {
        CHECK(once[k] == again[k]);
        for (size_t i = 0; i < once[k].size(); ++i) {
          REQUIRE(twice[k][i] == 2 * once[k][i]);
          REQUIRE(zero[k][i] == 0);
        }
      }
    });
  }
}

TEST_CASE("modifying a tensor between forward and backward is noticed, or changes nothing") {
  for (const OpCase& row : op_table()) {
    if (!row.differentiable) continue;
    guard_row(row, in_f64, [&] {
      const Inputs inputs = make_inputs(row, DType::f64);
      const auto expected = gradients(row, inputs);
      for (size_t touched = 0; touched <= inputs.size(); ++touched) {  // the last one is the output
        Inputs leaves;
        for (const Tensor& input : inputs) {
          leaves.push_back(input.clone());
          leaves.back().set_requires_grad(true);
        }
        Tensor y = row.run(leaves);
        Tensor& victim = touched < inputs.size() ? leaves[touched] : y;
        for (int64_t i = 0; i < victim.size(); ++i) victim.mutable_data<double>()[i] = 1e30;
        Numbers dy(static_cast<size_t>(y.size()));
        for (size_t i = 0; i < dy.size(); ++i) dy[i] = output_weight(i);
        bool noticed = false;
        try {
          backward(y, Tensor::from(dy, y.shape()));
        } catch (const Error& error) {
          noticed = std::string(error.what()).find("was modified before backward") != std::string::npos;
          CHECK(noticed);
        }
        if (noticed || victim.size() == 0) continue;
        for (size_t k = 0; k < inputs.size(); ++k) {
          INFO(row.name, ": tensor ", touched, " was modified after the forward pass, nothing threw, and gradient ", k,
               " is another one; does the closure capture it with saved()?");
          const bool unchanged = to_numbers(leaves[k].grad()) == expected[k];
          CHECK(unchanged);
        }
      }
    });
  }
}

}  // namespace hs::test
