#include "kernels/examples/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>

#include "engine/check.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/register.h"

namespace hs::examples {

bool is_whole_table() { return std::getenv("HALFSTEP_ROWS") == nullptr; }
bool is_chosen(std::string_view name) {
  return is_whole_table() || name.find(std::getenv("HALFSTEP_ROWS")) != std::string_view::npos;
}

namespace {

// What kernels/*/rows.cpp have registered.
struct Registered {
  std::vector<void (*)(Table& table)> rows;
  std::vector<std::vector<TimedCase> (*)(int64_t batch)> timed;
  std::vector<OpCase (*)(Draw& draw)> drawn;
};
Registered& registered() {
  static Registered all;  // exists before the first static object that registers
  return all;
}

// A row without inputs runs in f32 alone.
void complete(OpCase& row) {
  if (row.shapes.empty()) row.f64 = row.half = row.differentiable = row.integers = row.nan = false;
}

Device test_device_ = Device::cpu;
}  // namespace

void set_test_device(Device device) { test_device_ = device; }
Device test_device() { return test_device_; }
Tensor on_test_device(const Tensor& tensor) { return tensor.to(test_device_); }

namespace {

uint64_t input_seed_ = default_input_seed;

// What the values of an input depend on, besides the seed.
struct InputKey {
  size_t place;  // among the row's inputs
  uint64_t size;
  Fill fill;
  bool integers;
  auto operator<=>(const InputKey&) const = default;
};

std::vector<float> make_values(const InputKey& key) {
  const RandomStream stream{input_seed_, RandomPurpose::init, static_cast<uint32_t>(key.place), 99, 0};
  const Permutation shuffled(std::max<uint64_t>(key.size, 1), stream);
  std::vector<float> values(key.size);
  RandomSequence numbers(stream);
  for (uint64_t i = 0; i < key.size; ++i) {
    const uint32_t bits = numbers.next();
    if (key.integers) {
      values[i] = static_cast<float>(bits % 9) - 4;
    } else if (key.fill == Fill::spaced) {
      const double place = static_cast<double>(shuffled(i));
      const double spacing = std::min(0.1, 10.0 / static_cast<double>(key.size));
      values[i] = static_cast<float>((place - std::floor(static_cast<double>(key.size) / 2) + 0.5) * spacing);
    } else {
      const float mean = key.fill == Fill::positive ? 1.5f : key.fill == Fill::far && key.place == 0 ? 100.0f : 0.0f;
      values[i] = 2 * to_unit_float(bits) - 1 + mean;
    }
  }
  return values;
}

std::map<InputKey, std::vector<float>> known_values;  // every run of every row asks for the same ones
constexpr uint64_t largest_known = 1 << 20;           // those of timed cases take too much memory

}  // namespace

Examples::Examples(void (*add_rows)(Table& table)) { registered().rows.push_back(add_rows); }
Examples::Examples(std::vector<TimedCase> (*timed)(int64_t batch)) { registered().timed.push_back(timed); }
Examples::Examples(OpCase (*drawn)(Draw& draw)) { registered().drawn.push_back(drawn); }

Draw::Draw(uint64_t seed, uint32_t which)
    : numbers_({.seed = seed, .purpose = RandomPurpose::synthetic, .layer = which}) {}

int64_t Draw::positive(int64_t most) {
  const uint32_t lot = below(8);
  if (lot < 2) return lot == 0 ? 1 : most;
  if (lot < 5) return std::min<int64_t>(2 * below(static_cast<uint32_t>(most + 1) / 2) + 1, most);
  return std::clamp<int64_t>(8 * below(static_cast<uint32_t>(most) / 8 + 1) + pick({-1, 0, 1}), 1, most);
}

int64_t Draw::size(int64_t most, int64_t least) { return least + (below(16) == 0 ? 0 : positive(most)); }

Shape Draw::shape(int64_t most) {
  const uint32_t axes = 1 + below(3);
  if (axes == 1) return {size(most)};
  if (axes == 2) return {size(64), positive(most / 64)};
  return {size(16), positive(8), positive(most / 128)};
}

std::vector<OpCase> drawn_rows(uint64_t seed) {
  Table rows;
  for (const auto& drawn : registered().drawn) {
    Draw draw(seed, static_cast<uint32_t>(rows.size()));
    complete(rows.emplace_back(drawn(draw)));
    rows.back().name += ", drawn";
  }
  return rows;
}

void add_far_from_0(Table& table, std::string_view name, double forward, double gradient) {
  OpCase row = *std::ranges::find(table, name, &OpCase::name);
  row.name += ", far from 0";
  row.fill = Fill::far;
  row.forward.absolute += forward;
  row.gradient.absolute += gradient;
  table.push_back(std::move(row));
}

Tensor join(const std::vector<Tensor>& parts) {
  std::vector<float> all;
  for (const Tensor& part : parts) {
    for (const double value : to_numbers(part)) all.push_back(static_cast<float>(value));
  }
  return Tensor::from(all, {static_cast<int64_t>(all.size())});
}

std::vector<TimedCase> timed_cases(int64_t batch) {
  std::vector<TimedCase> all;
  for (const auto& timed : registered().timed) std::ranges::move(timed(batch), std::back_inserter(all));
  return all;
}

const std::vector<OpCase>& op_table() {
  static const Table table = [] {
    Table rows;
    for (const auto& add : registered().rows) add(rows);
    std::ranges::for_each(rows, complete);
    std::erase_if(rows, [](const OpCase& row) { return !is_chosen(row.name); });
    check(!rows.empty(), "HALFSTEP_ROWS={}: no row of the op table has this in its name", std::getenv("HALFSTEP_ROWS"));
    return rows;
  }();
  return table;
}

OpCase row_of(const TimedCase& timed) {
  const auto is_its = [&](const OpCase& each) { return each.name.starts_with(timed.op + " "); };
  const auto found = std::ranges::find_if(op_table(), is_its);
  check(found != op_table().end(), "{}: the op table has no row of this name", timed.op);
  OpCase row = *found;
  row.name = fmt::format("{} at the sizes of a step,", timed.op);
  row.shapes.clear();
  for (const Shape& shape : timed.shapes) {
    if (is_given(shape)) row.shapes.push_back(shape);
    row.name += fmt::format(" {}", shape);
  }
  row.run = [run = found->run, shapes = timed.shapes](const Inputs& inputs) {
    Inputs all;
    auto next = inputs.begin();
    for (const Shape& shape : shapes) all.push_back(is_given(shape) ? *next++ : Tensor());
    return run(all);
  };
  row.forward = row.gradient = tolerance::call;
  row.reference = nullptr;
  row.terms = {};
  row.name += timed.leaves > 0 ? "" : ", forward";
  return row;
}

void set_input_seed(uint64_t seed) {
  input_seed_ = seed;
  known_values.clear();
}
uint64_t input_seed() { return input_seed_; }

Inputs make_inputs(const OpCase& row, DType dtype, bool integers) {
  Inputs inputs;
  for (size_t k = 0; k < row.shapes.size(); ++k) {
    const InputKey key{k, static_cast<uint64_t>(row.shapes[k].size()), row.fill, integers};
    const auto found = known_values.find(key);
    const std::vector<float> values = found == known_values.end() ? make_values(key) : found->second;
    if (key.size <= largest_known) known_values.try_emplace(key, values);
    inputs.push_back(dtype == DType::f64
                         ? Tensor::from(std::vector<double>(values.begin(), values.end()), row.shapes[k])
                         : Tensor::from(values, row.shapes[k]));
  }
  return inputs;
}

Numbers to_numbers(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  if (tensor.dtype() == DType::i32) {
    const auto values = tensor.to_vector<int32_t>();
    return {values.begin(), values.end()};
  }
  if (tensor.dtype() == DType::u8) {
    const auto values = tensor.to_vector<uint8_t>();
    return {values.begin(), values.end()};
  }
  const auto values = cast(tensor, DType::f32).to_vector<float>();
  return {values.begin(), values.end()};
}

}  // namespace hs::examples
