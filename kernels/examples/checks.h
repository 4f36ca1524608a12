// Runs rows of the op table and checks them, for the tests of kernels and for what judges one: a row on a device, in a
// type, with every variant of every slot that it reaches forced in turn, or with one that is judged.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "kernels/examples/op_table.h"

namespace hs::examples {

// Gets one line for each failed check: what ran, which result, and by how much it is off. If it returns, the checks go
// on. The default throws Error (internal).
void set_failure_handler(std::function<void(const std::string& line)> handler);

// Whether the processor, or HALFSTEP_ISA, rules the variant of this name out.
bool is_ruled_out(const std::string& variant);

// One way to run a row. Inputs are leaves in f32 (or f64) on the device; for 16 bits they are cast, and their gradients
// come back through the cast.
struct RowRun {
  Device device = Device::cpu;
  DType dtype = DType::f32;
  DType numbers = DType::f32;  // inputs and dy are representable in this type
  bool integers = false;
  bool absolute = false;                     // absolute values of inputs and dy
  bool forward_only = false;                 // even if the row has gradients
  bool nan_gradient = false;                 // dy is NaN everywhere
  bool unaligned = false;                    // tensors start one element into their memory; in 16 bits forward only
  DType autocast = DType::f32;               // the ambient type of matrix products; vectors beside a matrix stay f32
  std::optional<float> held = std::nullopt;  // initial value of every element of the leaves' gradients
  std::set<size_t> frozen = {};              // inputs that need no gradient
  std::set<size_t> missing = {};             // inputs that are undefined
  double zeros = 0;                          // fraction of dy that is zero, as it is after ReLU and pooling
};

// A run on a device in a type, with numbers representable in that type.
RowRun run_on(Device device, DType dtype);
// The f64 run on the CPU with the same numbers.
RowRun reference_run(const RowRun& how);

// The run of row_of(timed) that is timed: in 16 bits the op may cast its inputs itself.
RowRun timed_run(const TimedCase& timed, Device device, DType dtype);

// The run's inputs, in f32 (or f64) on the CPU.
Inputs inputs_of(const OpCase& row, const RowRun& how);

// Calls body(). Returns "", or one line that names the row and the exception thrown.
std::string failure_of(const OpCase& row, const RowRun& how, const std::function<void()>& body);
// The same, but reports an exception as a failed check, so that later rows still run.
void guard_row(const OpCase& row, const RowRun& how, const std::function<void()>& body);

// Returns the output and then the gradient of each input (for dy from a fixed stream), all on the CPU; undefined for a
// frozen or missing input.
std::vector<Tensor> run_row(const OpCase& row, const Inputs& inputs, const RowRun& how);
std::vector<Tensor> run_row(const OpCase& row, const RowRun& how);

// Calls body(description) with the default variants, and then with each other variant of each slot of the row forced in
// turn; skips variants that do not support the row (another row must reach them: reached_variants()). An Error of a
// forced variant is a failed check. only: with the variants of this slot, all forced.
void for_each_variant(const OpCase& row, const RowRun& how, const std::function<void(const std::string&)>& body,
                      const KernelSlot* only = nullptr);

// A variant that is judged takes the place of all others.
struct Candidate {
  std::string slot, variant;
  Device device = Device::cpu;
  double error_growth = 1;  // of the variant
  // Runs the row with the variant forced, as run_row() does. Throws what run_row() throws: Error of kind forced_variant
  // if the variant does not support the row.
  std::function<std::vector<Tensor>(const OpCase& row, const Inputs& inputs, const RowRun& how)> run;
};
// While there is one, for_each_variant() calls its body for the candidate alone, if the run is on its device and the
// row calls its slot, and run_row() within the body is the candidate's. nullptr: none. It must outlive its use.
void set_candidate(const Candidate* candidate);
int runs_of_candidate();  // how many bodies have completed since set_candidate()

// The slots that a row calls on the run's device.
const std::vector<KernelSlot*>& slots_of(const OpCase& row, const RowRun& how);

// The variants that completed bodies of for_each_variant have called so far in this program, with the runs' dtypes.
const std::map<const VariantBase*, std::set<DType>>& reached_variants();

// The expected results of a row, from the f64 run, or from the row's definition if the op has no f64.
struct Reference {
  std::vector<Numbers> values;
  std::vector<Numbers> allowance;  // on top of the row's tolerances, by element; may be empty
  std::vector<Numbers> sums;       // the part of it that sums may have; a variant's error_growth multiplies it
  bool is_near_kink = false;  // of a kinked row, at these inputs: rounding may move a gradient, and none is checked
};
Reference reference_of(const OpCase& row, const RowRun& how);
// Checks each result of run_row().
void check_close(const OpCase& row, const RowRun& how, const Reference& reference, const std::vector<Tensor>& results,
                 const std::string& description);
// reference_of(), and check_close() for every variant.
void check_row(const OpCase& row, const RowRun& how);

// Of the slot's variants on the device that a row of the table refuses in this type, by name, the first failed check:
// what the tests say of them. Looked for once in a program; the failure handler sees nothing of it.
using RowFailures = std::map<std::string, std::string>;
const RowFailures& row_failures(const KernelSlot& slot, Device device, DType dtype);

// Checks that on small integers every variant gives the exact result, rounded once to the type that it is stored in; or
// nearly, if its error_growth says that its sums are not those of the integers.
// Runs with new gradients, with gradients added to existing ones and, in 16 bits, under Autocast, where parameters and
// their gradients stay f32. REQUIRES: row.integers and row.f64
void check_integers(const OpCase& row, RowRun how);
// Checks that with every variant gradients are added to what the leaves hold: check_integers sees it for rows with
// integers. REQUIRES: row.differentiable
void check_added(const OpCase& row, RowRun how);
// check_close for every variant, and check_integers if the row has integers, for every combination of inputs that need
// a gradient, need none and, if the row allows it, are undefined; except the one where all inputs need a gradient,
// which every other check runs. Most of dy is zero. Returns the number of runs, not counting those on integers.
int check_combinations(const OpCase& row, RowRun how);

// Checks with every variant that a NaN anywhere in any input reaches the output, or, if the row says so, just the
// places that it reaches in f64 (and others, with an error_growth), as then an infinity does; and that a dy of all NaN
// reaches every gradient (all that are not 0, because ReLU rightly stops some). REQUIRES: row.nan or row.nan_in_place >
// 0
void check_nan(const OpCase& row, const RowRun& how);

// Checks that every variant gives the same bits on any number of threads; leaves the default number of them.
void check_threads(const OpCase& row, const RowRun& how);

// Fixed "random" weights in (-1, 1), never zero, that turn the output into one number: L = sum_i weight_i * y_i.
double output_weight(size_t i);
// The gradients of all inputs in f64, of L times a factor.
std::vector<Numbers> gradients_in_f64(const OpCase& row, const Inputs& inputs, double factor = 1);
// Checks them against central differences in f64. REQUIRES: row.differentiable
void check_gradients(const OpCase& row);
// Checks the f64 run against the row's definition, also without what is optional. REQUIRES: row.f64 and row.reference
void check_definition(const OpCase& row);

// The numbers rounded once to the type.
Numbers rounded_to(DType dtype, const Numbers& numbers);
std::vector<Numbers> as_numbers(const std::vector<Tensor>& tensors);
bool same_bytes(const Tensor& a, const Tensor& b);  // both on the CPU

// While one is alive, outputs that a kernel fails to write are NaN.
class Poisoned {
 public:
  Poisoned();
  ~Poisoned();
};

}  // namespace hs::examples
