#include "tests/op_table/op_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "engine/check.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "tests/op_table/groups.h"

namespace hs::test {

bool is_whole_table() { return std::getenv("HALFSTEP_ROWS") == nullptr; }

const std::vector<OpCase>& op_table() {
  static const Table table = [] {
    Table rows;
    add_elementwise(rows);
    add_reductions(rows);
    add_normalizations(rows);
    add_matrix_products(rows);
    add_convolutions(rows);
    add_pooling(rows);
    add_losses(rows);
    add_decided_losses(rows);
    add_optimizer_steps(rows);
    add_images(rows);
    add_recorded_steps(rows);
    add_sequences(rows);
    if (!is_whole_table()) {
      const std::string wanted = std::getenv("HALFSTEP_ROWS");
      std::erase_if(rows, [&](const OpCase& row) { return row.name.find(wanted) == std::string::npos; });
      if (rows.empty()) fail(ExitCode::usage, "HALFSTEP_ROWS={}: no row of the op table has this in its name", wanted);
    }
    return rows;
  }();
  return table;
}

namespace {
Device test_device_ = Device::cpu;
}

void set_test_device(Device device) { test_device_ = device; }
Device test_device() { return test_device_; }
Tensor on_test_device(const Tensor& tensor) { return tensor.to(test_device_); }

namespace {

// The first numbers of the k-th input's stream, kept: every run of every row asks for the same ones.
const std::vector<uint32_t>& first_bits(size_t k, uint64_t size, const RandomStream& stream) {
  static std::map<size_t, std::vector<uint32_t>> known;
  std::vector<uint32_t>& bits = known[k];
  for (uint64_t i = bits.size(); i < std::min<uint64_t>(size, 1 << 16); ++i) bits.push_back(random_bits(stream, i));
  return bits;
}

}  // namespace

Inputs make_inputs(const OpCase& row, DType dtype, bool integers) {
  Inputs inputs;
  for (size_t k = 0; k < row.shapes.size(); ++k) {
    const uint64_t size = static_cast<uint64_t>(row.shapes[k].size());
    const RandomStream stream{2026, RandomPurpose::init, static_cast<uint32_t>(k), 99, 0};
    const std::vector<uint32_t>& first = first_bits(k, size, stream);
    const Permutation shuffled(std::max<uint64_t>(size, 1), stream);
    Numbers values(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint32_t bits = i < first.size() ? first[i] : random_bits(stream, i);
      if (integers) {
        values[i] = static_cast<double>(bits % 9) - 4;
      } else if (row.fill == Fill::spaced) {
        const double place = static_cast<double>(shuffled(i));
        const double spacing = std::min(0.1, 10.0 / static_cast<double>(size));
        values[i] = (place - std::floor(static_cast<double>(size) / 2) + 0.5) * spacing;
      } else {
        values[i] = 2.0 * to_unit_float(bits) - 1;
      }
    }
    std::vector<float> floats(values.begin(), values.end());
    if (dtype == DType::f64) {
      inputs.push_back(Tensor::from(std::vector<double>(floats.begin(), floats.end()), row.shapes[k]));
    } else {
      inputs.push_back(Tensor::from(floats, row.shapes[k]));
    }
  }
  return inputs;
}

Numbers to_numbers(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  if (tensor.dtype() == DType::i32) {
    const auto values = tensor.to_vector<int32_t>();
    return {values.begin(), values.end()};
  }
  const auto values = cast(tensor, DType::f32).to_vector<float>();
  return {values.begin(), values.end()};
}

}  // namespace hs::test
