// The op table: each row drives the gradient check, the comparison of every variant with a reference, integer
// exactness, NaN propagation and thread independence. A kernel slot or variant that no row reaches fails a test.
// `halfstep-bench bench` runs rows too, at the sizes of a training step (TimedCase), and times
// the slots that they call. An op's rows (a few: odd sizes, size 1, empty) are in its folder: kernels/OP/rows.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel.h"
#include "engine/tensor.h"
#include "kernels/examples/compare.h"

namespace hs::examples {

using Inputs = std::vector<Tensor>;
using Numbers = std::vector<double>;

// How inputs are filled.
enum class Fill {
  uniform,   // in [-1, 1)
  far,       // as uniform, but the first input in [99, 101): its mean is far from 0
  positive,  // in [0.5, 2.5)
  spaced,    // shuffled, in [-5, 5], at least 0.1 (or 10/size) apart and half of that from zero: no ties, no kinks near
};

struct OpCase {
  std::string name;
  std::vector<Shape> shapes = {};            // of the inputs; none: f32 alone, and nothing to differentiate
  std::function<Tensor(const Inputs&)> run;  // all inputs have one dtype
  Tolerance forward = tolerance::exact;      // of f32 results
  Tolerance gradient = tolerance::exact;     // of f32 gradients
  // The definition of the op, written as plainly as possible in f64, on flat inputs; nullptr: the f64 run is used.
  std::function<Numbers(const std::vector<Numbers>&)> reference = nullptr;
  Fill fill = Fill::uniform;
  // The types and devices that the op has kernels for, besides f32 on the CPU. A slot may lack a CUDA kernel if every
  // row that calls it says so here; a test fails for rows that deny an existing kernel.
  bool f64 = true;             // f64, only on the CPU
  bool half = true;            // f16 and bf16, on every device
  bool cuda = true;            // the CUDA device
  bool differentiable = true;  // gradients flow to every input; needs f64
  bool integers = true;        // exact on small integers: only sums, products and selections
  bool kinked = false;         // gradients, or a mask, jump where a sum is 0, or two are equal
  bool nan = true;             // a NaN in any input element reaches the output
  // For sums of products: the number of terms in one element of the output and of each gradient; f32 results must then
  // be within tolerance::sum_allowance. The magnitudes come from a run on absolute values.
  std::vector<int64_t> terms = {};
  double flops = 0;  // of the forward pass
  // In 16 bits: the number of roundings to the type that enter an element of the output and of each gradient, if not
  // one; each before the last may contribute u times the magnitude of the sum that it enters.
  std::vector<int> roundings = {};
  bool same_on_devices = false;       // CPU and CUDA give the same bits in f32
  std::vector<size_t> optional = {};  // inputs that may be undefined: a bias
  // A NaN or an infinity in one of the first so many inputs reaches what uses it, and nothing else.
  size_t nan_in_place = 0;
};

// A size at which halfstep-bench times an op, and the slots of it to measure.
struct TimedCase {
  std::string op;             // the first row of the table with this name
  std::vector<Shape> shapes;  // of its inputs; {0}: left out
  std::vector<const KernelSlot*> slots;
  size_t leaves = 0;        // the last `leaves` inputs get a gradient; 0: only forward
  bool autocast = false;    // the op casts its inputs, as in mixed precision: parameters and their gradients are f32
  double zeros = 0;         // fraction of zeros in the gradient of the result
  std::string remark = {};  // after the sizes
};

// The cases of all ops, at the largest tensors of a training step with this batch.
std::vector<TimedCase> timed_cases(int64_t batch);

// All rows, or those whose name contains the value of the environment variable HALFSTEP_ROWS.
const std::vector<OpCase>& op_table();
// The case as a row: the op's first one, with the inputs that are not left out. At these sizes it holds results to
// tolerance::call.
OpCase row_of(const TimedCase& timed);
inline bool is_given(const Shape& shape) { return shape != Shape{0}; }  // of a case's input: it is not left out
// One row for each op that can be drawn, at sizes that follow the seed: the same ones in another process.
std::vector<OpCase> drawn_rows(uint64_t seed);
bool is_whole_table();                  // false with HALFSTEP_ROWS; counts and "the table reaches" then mean nothing
bool is_chosen(std::string_view name);  // the whole table is, or what HALFSTEP_ROWS says is in this name

// The device for tensors that rows create themselves (labels, optimizer state); the caller provides inputs on it.
void set_test_device(Device device);
Device test_device();
Tensor on_test_device(const Tensor& tensor);

// Inputs of a row in the given dtype: the same numbers, representable in f32, for every dtype; with `integers`,
// integers from -4 to 4.
Inputs make_inputs(const OpCase& row, DType dtype, bool integers = false);

// From which the inputs of rows are drawn: other ones for each seed, the same ones in another process with it. The
// default is 2026.
inline constexpr uint64_t default_input_seed = 2026;  // with which every tolerance of the table was tried
void set_input_seed(uint64_t seed);
uint64_t input_seed();

// All elements of a tensor as double.
Numbers to_numbers(const Tensor& tensor);

}  // namespace hs::examples
