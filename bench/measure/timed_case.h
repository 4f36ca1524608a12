// SlotSpy: intercepts an op's calls of its kernel slots while their tensors are alive, so that a slot can be timed in
// isolation on the arguments that the op really passes; and run_case(), which has an op of the op table's timed cases
// make such calls.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "kernels/examples/op_table.h"

namespace hs::bench::measure {

// While one is alive, kernel calls of ops call look() instead of running a kernel; calls within look() run a kernel. An
// op gets what the last call within look() returned, or if there is none the slot's first variant. At most one at a
// time; not thread safe, like kernels.
class SlotSpy {
 public:
  struct Seen {
    const KernelSlot& slot;
    std::string sizes;                          // of the call, in words
    CallTensors tensors;                        // inputs and outputs
    std::function<const VariantBase&()> again;  // makes the same call; returns the variant that ran
  };
  using Look = std::function<void(const Seen&)>;

  explicit SlotSpy(Look look);

 private:
  const KernelSpy spy_;
  const SpyScope scope_{&spy_};
};

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
