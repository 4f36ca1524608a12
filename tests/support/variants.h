// How the tests of kernels go through the op table: a row on a device, in a type, with every variant of every slot that
// it reaches forced in turn; and what its f64 reference allows.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "tests/op_table/op_table.h"

namespace hs::test {

// One way to run a row. Inputs are leaves in f32 (or f64) on the device; for 16 bits they are cast, and their gradients
// come back through the cast.
struct RowRun {
  Device device = Device::cpu;
  DType dtype = DType::f32;
  DType numbers = DType::f32;  // inputs and dy are numbers that this type can hold
  bool integers = false;
  bool absolute = false;                     // of inputs and dy
  bool forward_only = false;                 // even where the row has gradients
  bool nan_gradient = false;                 // dy is NaN everywhere
  bool unaligned = false;                    // tensors start one element into their memory; in 16 bits forward only
  DType autocast = DType::f32;               // the ambient type of matrix products
  std::optional<float> held = std::nullopt;  // what every element of the leaves' gradients holds before
  std::set<size_t> frozen = {};              // inputs that want no gradient
  std::set<size_t> missing = {};             // inputs that are undefined
  bool sparse = false;                       // most of dy is zero, as it is after ReLU and pooling
};

// On a device in a type, with numbers of that type.
RowRun run_on(Device device, DType dtype);
// The f64 run on the CPU with the same numbers.
RowRun reference_run(const RowRun& how);

// Its numbers, in f32 (or f64) on the CPU.
Inputs inputs_of(const OpCase& row, const RowRun& how);

// Calls body() and returns "", or the exception that it threw as one line that begins with the row.
std::string failure_of(const OpCase& row, const RowRun& how, const std::function<void()>& body);
// The same as a failed check: the rows after it still run.
void guard_row(const OpCase& row, const RowRun& how, const std::function<void()>& body);

// The output and then the gradient of each input (for dy from a fixed stream), all of them on the CPU; undefined for
// an input that is frozen or missing.
std::vector<Tensor> run_row(const OpCase& row, const Inputs& inputs, const RowRun& how);
std::vector<Tensor> run_row(const OpCase& row, const RowRun& how);

// Calls body(description) with the default variants, and then with each variant of each slot of the row forced in turn;
// a variant that does not support the row is passed over (another row must reach it: reached_variants()).
void for_each_variant(const OpCase& row, const RowRun& how, const std::function<void(const std::string&)>& body);

// The slots that a row calls on the run's device.
const std::vector<KernelSlot*>& slots_of(const OpCase& row, const RowRun& how);

// What bodies of for_each_variant that came to their end have called so far in this program, by the run's dtype.
const std::map<const VariantBase*, std::set<DType>>& reached_variants();

// What results of a row are held to: of the f64 run, or of the row's definition where the op has no f64.
struct Reference {
  std::vector<Numbers> values;
  std::vector<Numbers> allowance;  // beside the row's tolerances, by element; may be empty
};
Reference reference_of(const OpCase& row, const RowRun& how);
// doctest checks of each result of run_row().
void check_close(const OpCase& row, const RowRun& how, const Reference& reference, const std::vector<Tensor>& results,
                 const std::string& description);

// On small integers every variant gives the exact result, rounded once to the type it is stored in. Twice: with
// gradients that hold nothing yet, and added to what they hold; and, in 16 bits, under Autocast, where parameters and
// their gradients stay f32. REQUIRES: row.integers and row.f64
void check_integers(const OpCase& row, RowRun how);
// check_close of every variant, and check_integers where the row has them, for every combination of inputs that want a
// gradient, that want none and, where the row says so, that are undefined; but for the one that has them all, which
// every other check runs. Most of dy is zero. Returns the number of runs, without those on integers.
int check_combinations(const OpCase& row, RowRun how);

// A NaN in any place of any input reaches the output; a dy of NaN, because ReLU rightly stops some, reaches every
// gradient. REQUIRES: row.nan
void check_nan(const OpCase& row, const RowRun& how, const std::string& description);

// The numbers as the type holds them, rounded once.
Numbers rounded_to(DType dtype, const Numbers& numbers);
std::vector<Numbers> as_numbers(const std::vector<Tensor>& tensors);
bool same_bytes(const Tensor& a, const Tensor& b);  // both on the CPU

// Outputs that a kernel forgets to write are NaN while this lives.
class Poisoned {
 public:
  Poisoned();
  ~Poisoned();
};

}  // namespace hs::test
