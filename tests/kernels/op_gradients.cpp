// Every differentiable row of the op table against central differences in f64.
#include "engine/autograd.h"
#include "engine/error.h"
#include "engine/random.h"
#include "tests/support/checks.h"
#include "tests/support/sanitized.h"

namespace hs::test {
namespace {

const RowRun in_f64 = run_on(Device::cpu, DType::f64);

}  // namespace

TEST_CASE("every op's gradient matches central differences in f64" * doctest::skip(with_address_sanitizer)) {
  int checked = 0;
  for (const OpCase& row : op_table()) {
    if (!row.differentiable) continue;
    guard_row(row, in_f64, [&] { check_gradients(row); });
    ++checked;
  }
  CHECK((checked >= 60 || !is_whole_table()));  // the table shrank if this fails
}

TEST_CASE("a gradient of zero gives zero gradients, and twice the gradient gives twice the bits") {
  for (const OpCase& row : op_table()) {
    if (!row.differentiable) continue;
    guard_row(row, in_f64, [&] {
      CAPTURE(row.name);
      const Inputs inputs = make_inputs(row, DType::f64);
      const auto once = gradients_in_f64(row, inputs), again = gradients_in_f64(row, inputs),
                 twice = gradients_in_f64(row, inputs, 2), zero = gradients_in_f64(row, inputs, 0);
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
      const auto expected = gradients_in_f64(row, inputs);
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
