// Every variant of every slot that a row reaches: against the f64 reference, on integers bit by bit, for any number of
// threads, and with NaN in the input. At the end: no slot and no variant that the table never reached.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "engine/autograd.h"
#include "engine/error.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "tests/support/op_table.h"

namespace hs::test {
namespace {

Inputs absolute_values(const Inputs& inputs) {
  Inputs result;
  for (const Tensor& input : inputs) {
    Numbers values = to_numbers(input);
    for (double& value : values) value = std::fabs(value);
    result.push_back(Tensor::from(values, input.shape()));
  }
  return result;
}

// One run of a row: the output, then the gradient of each input (for dy from a fixed stream).
std::vector<Tensor> run_row(const OpCase& row, const Inputs& inputs, bool integers = false, bool absolute = false) {
  if (!row.differentiable) return {row.run(inputs)};
  Inputs leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.clone());
    leaves.back().set_requires_grad(true);
  }
  const Tensor y = row.run(leaves);
  OpCase gradient_row{.name = "dy", .shapes = {y.shape()}, .run = nullptr};
  Inputs dy = make_inputs(gradient_row, y.dtype(), integers);
  backward(y, (absolute ? absolute_values(dy) : dy)[0]);
  std::vector<Tensor> results = {y.detach()};
  for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

std::map<const VariantBase*, uint64_t> calls_now() {
  std::map<const VariantBase*, uint64_t> calls;
  for (const KernelSlot* slot : kernel_slots()) {
    for (const VariantBase* v = slot->variants(); v; v = v->next) calls[v] = v->calls;
  }
  return calls;
}

// The slots that a row calls.
std::vector<KernelSlot*> slots_of(const OpCase& row) {
  const auto before = calls_now();
  run_row(row, make_inputs(row, DType::f32));
  std::vector<KernelSlot*> used;
  for (KernelSlot* slot : kernel_slots()) {
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->calls != before.at(v)) {
        used.push_back(slot);
        break;
      }
    }
  }
  return used;
}

// Calls body(description) with the defaults, and then with each variant of each slot of the row forced in turn; a
// variant that does not support the row is passed over (another row must reach it).
template <class Body>
void for_each_variant(const OpCase& row, const Body& body) {
  body(row.name + " with the default variants");
  for (KernelSlot* slot : slots_of(row)) {
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->device != Device::cpu) continue;
      slot->force(v->name);
      try {
        body(row.name + " with " + slot->name() + "=" + v->name);
      } catch (const Error& error) {
        const bool unsupported = std::string(error.what()).find(" takes (") != std::string::npos;
        if (!unsupported) FAIL(std::string(error.what()));
      }
      slot->force(nullptr);
    }
  }
}

std::vector<Numbers> as_numbers(const Inputs& inputs) {
  std::vector<Numbers> numbers;
  for (const Tensor& input : inputs) numbers.push_back(to_numbers(input));
  return numbers;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.bytes()) == 0);
}

struct Poisoned {
  Poisoned() { set_poison(true); }
  ~Poisoned() { set_poison(false); }
};

}  // namespace

TEST_CASE("the f64 run of every row equals its definition, written as plain loops") {
  for (const OpCase& row : op_table()) {
    if (!row.f64 || !row.reference) continue;
    const Inputs inputs = make_inputs(row, DType::f64);
    const Comparison result =
        compare(to_numbers(row.run(inputs)), row.reference(as_numbers(inputs)), {1e-12, 1e-12, 0});
    INFO(row.name, ": ", result.summary);
    CHECK(result.passed);
  }
}

TEST_CASE("every variant in f32 is within tolerance of the f64 reference") {
  const Poisoned poisoned;
  int runs = 0;
  for (const OpCase& row : op_table()) {
    std::vector<Numbers> expected, allowance;
    if (!row.terms.empty()) {  // |A| |B| and its like, from a run on absolute values
      const Inputs inputs = absolute_values(make_inputs(row, DType::f64));
      for (const Tensor& magnitude : run_row(row, inputs, false, true)) {
        allowance.push_back(to_numbers(magnitude));
        for (double& value : allowance.back()) {
          value = tolerance::sum_allowance(row.terms.at(allowance.size() - 1), std::fabs(value));
        }
      }
    }
    if (row.f64) {
      for (const Tensor& result : run_row(row, make_inputs(row, DType::f64))) expected.push_back(to_numbers(result));
    } else {
      expected.push_back(row.reference(as_numbers(make_inputs(row, DType::f32))));
    }
    for_each_variant(row, [&](const std::string& description) {
      const auto results = run_row(row, make_inputs(row, DType::f32));
      ++runs;
      REQUIRE(results.size() == expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        // dy was drawn in f32 for both runs, so the inputs of both are the same numbers.
        CompareOptions options;
        if (!allowance.empty()) options.allowance = allowance.at(i);
        const Comparison result =
            compare(to_numbers(results[i]), expected[i], i == 0 ? row.forward : row.gradient, options);
        INFO(description, i == 0 ? ", output: " : ", gradient " + std::to_string(i - 1) + ": ", result.summary);
        CHECK(result.passed);
      }
    });
  }
  CHECK(runs >= 200);
}

TEST_CASE("on small integers every variant is exact, bit for bit") {
  const Poisoned poisoned;
  for (const OpCase& row : op_table()) {
    if (!row.integers || !row.f64) continue;
    const auto exact = run_row(row, make_inputs(row, DType::f64, true), true);
    for_each_variant(row, [&](const std::string& description) {
      const auto results = run_row(row, make_inputs(row, DType::f32, true), true);
      for (size_t i = 0; i < results.size(); ++i) {
        INFO(description, ", result ", i);
        if (results[i].dtype() != DType::f32) {
          CHECK(same_bytes(results[i], exact[i]));
          continue;
        }
        const Numbers wanted = to_numbers(exact[i]);
        std::vector<float> rounded(wanted.begin(), wanted.end());
        for (float& value : rounded) value += 0.0f;  // -0 and 0 are the same integer
        Tensor got = results[i].clone();
        for (int64_t j = 0; j < got.size(); ++j) got.mutable_data<float>()[j] += 0.0f;
        CHECK(same_bytes(got, Tensor::from(rounded, got.shape())));
      }
    });
  }
}

TEST_CASE("one, two and five threads give the same bits") {
  for (const OpCase& row : op_table()) {
    for_each_variant(row, [&](const std::string& description) {
      set_threads(1);
      const auto one = run_row(row, make_inputs(row, DType::f32));
      for (const int count : {2, 5}) {
        set_threads(count);
        const auto several = run_row(row, make_inputs(row, DType::f32));
        for (size_t i = 0; i < one.size(); ++i) {
          INFO(description, ", ", count, " threads, result ", i);
          CHECK(same_bytes(one[i], several[i]));
        }
      }
      set_threads(0);
    });
  }
}

TEST_CASE("a NaN in the input reaches the output") {
  for (const OpCase& row : op_table()) {
    if (!row.nan) continue;
    for_each_variant(row, [&](const std::string& description) {
      const Inputs clean = make_inputs(row, DType::f32);
      for (size_t k = 0; k < clean.size(); ++k) {
        const int64_t size = clean[k].size();
        if (size == 0) continue;
        for (const int64_t place : std::set<int64_t>{0, size / 2, size - 1}) {
          Inputs inputs = clean;
          inputs[k] = clean[k].clone();
          inputs[k].mutable_data<float>()[place] = std::numeric_limits<float>::quiet_NaN();
          const Numbers y = to_numbers(row.run(inputs));
          INFO(description, ", NaN at element ", place, " of input ", k);
          CHECK(std::any_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }));
        }
      }
    });
  }
}

TEST_CASE("a NaN gradient reaches the gradients") {
  for (const OpCase& row : op_table()) {
    if (!row.differentiable || !row.nan) continue;
    for_each_variant(row, [&](const std::string& description) {
      Inputs leaves = make_inputs(row, DType::f32);
      for (Tensor& leaf : leaves) leaf.set_requires_grad(true);
      const Tensor y = row.run(leaves);
      if (y.size() == 0) return;
      // Every element, because ReLU rightly stops some of them.
      backward(y,
               Tensor::from(std::vector<float>(static_cast<size_t>(y.size()), std::numeric_limits<float>::quiet_NaN()),
                            y.shape()));
      for (size_t k = 0; k < leaves.size(); ++k) {
        const Numbers gradient = to_numbers(leaves[k].grad());
        INFO(description, ", gradient ", k);
        CHECK((gradient.empty() ||
               std::any_of(gradient.begin(), gradient.end(), [](double value) { return std::isnan(value); })));
      }
    });
  }
}

TEST_CASE("the table reaches every slot and every variant") {
  std::set<const VariantBase*> reached;
  const auto before = calls_now();
  for (const OpCase& row : op_table()) {
    for_each_variant(row, [&](const std::string&) { run_row(row, make_inputs(row, DType::f32)); });
  }
  for (const KernelSlot* slot : kernel_slots()) {
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->device != Device::cpu) continue;
      INFO("no row of tests/support/op_table.cpp reaches ", std::string(slot->name()), "=", std::string(v->name));
      CHECK(v->calls > before.at(v));
    }
  }
}

}  // namespace hs::test
