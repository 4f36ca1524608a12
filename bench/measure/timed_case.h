// Runs an op at a size of the op table's timed cases, and shows the calls that it makes of its slots.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/measure/slot_spy.h"
#include "kernels/examples/op_table.h"

namespace hs::bench::measure {

// Runs the op and passes the calls of the case's slots to look(). Inputs are representable in `rounded`, and others for
// each seed; without `rounded` they are uninitialised.
void run_case(const examples::TimedCase& kernel, DType type, std::optional<DType> rounded, Device device, uint64_t seed,
              const SlotSpy::Look& look);

// Whether results of this tensor are compared: not positions that pooling saves, where rounding can create ties.
bool is_measured(const Tensor& tensor);

// A tensor that a call wrote: its index among the call's tensors, and its values.
struct Output {
  size_t tensor;
  std::vector<double> numbers;
};
std::vector<double> numbers_of(const Tensor& tensor);
// Makes the call and returns what it wrote, of the tensors that are measured.
std::vector<Output> outputs_of(const SlotSpy::Seen& seen);

}  // namespace hs::bench::measure
