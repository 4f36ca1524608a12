// The op table: one row drives the gradient check, every variant against a reference, integer exactness, NaN
// propagation and thread independence. A kernel slot or a variant that no row reaches fails a test. `gemm`, `conv` and
// `ops` of halfstep-bench run rows too, at the sizes of a training step (bench/commands/kernel_commands.cpp), and time
// the slots that they call. To add an op, add a row (or a few: odd sizes, size 1, empty) to the function of its group
// in op_table.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "tests/op_table/compare.h"

namespace hs::test {

using Inputs = std::vector<Tensor>;
using Numbers = std::vector<double>;

// How inputs are filled.
enum class Fill {
  uniform,  // in [-1, 1)
  spaced,   // shuffled, in [-5, 5], at least 0.1 (or 10/size) apart and half of that from zero: no ties, no kinks near
};

struct OpCase {
  std::string name;
  std::vector<Shape> shapes;                 // of the inputs
  std::function<Tensor(const Inputs&)> run;  // all inputs have one dtype
  Tolerance forward = tolerance::exact;      // of f32 results
  Tolerance gradient = tolerance::exact;     // of f32 gradients
  // The definition of the op, written as plainly as possible in f64, from flat inputs; none: the f64 run stands in.
  std::function<Numbers(const std::vector<Numbers>&)> reference = nullptr;
  Fill fill = Fill::uniform;
  // The types and devices that the op has kernels for, beside f32 on the CPU. A slot without a CUDA kernel is legal if
  // every row that calls it says so here; a test names the rows that say less than there is.
  bool f64 = true;             // f64, on the CPU alone
  bool half = true;            // f16 and bf16, on every device
  bool cuda = true;            // the CUDA device
  bool differentiable = true;  // gradients flow to every input; needs f64
  bool integers = true;        // exact on small integers: only sums, products and selections
  bool nan = true;             // a NaN in any input element reaches the output
  // For sums of products: the number of terms in one element of the output and of each gradient; f32 results are then
  // held to tolerance::sum_allowance. The magnitudes come from a run on absolute values.
  std::vector<int64_t> terms = {};
  double flops = 0;  // of the forward pass
  // In 16 bits: how many roundings to the type lie behind an element of the output and of each gradient, where it is
  // not one; those before the last are held to u times the magnitude of the sum that they enter.
  std::vector<int> roundings = {};
  bool same_on_devices = false;       // CPU and CUDA give the same bits in f32
  std::vector<size_t> optional = {};  // inputs that may be undefined: a bias
};

// All rows, or those whose name holds the text in the environment variable HALFSTEP_ROWS.
const std::vector<OpCase>& op_table();
bool is_whole_table();  // without HALFSTEP_ROWS; else counts and "the table reaches" mean nothing

// Where rows put the tensors that they make themselves (labels, optimizer state); inputs come on it from the caller.
void set_test_device(Device device);
Device test_device();
Tensor on_test_device(const Tensor& tensor);

// Inputs of a row in the wanted dtype: the same numbers, representable in f32, whatever the dtype. `integers` gives
// whole numbers from -4 to 4 instead.
Inputs make_inputs(const OpCase& row, DType dtype, bool integers = false);

// All elements of a tensor as double.
Numbers to_numbers(const Tensor& tensor);

}  // namespace hs::test
