// SlotSpy: intercepts an op's calls of its kernel slots while their tensors are alive, so that a slot can be timed in
// isolation on the arguments that the op really passes; and run_case(), which has an op of the op table's timed cases
// make such calls.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
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

// Runs the op and passes the calls of the case's slots to look(). Inputs are representable in `rounded`.
void run_case(const examples::TimedCase& kernel, DType type, DType rounded, Device device, const SlotSpy::Look& look);

// Whether results of this tensor are compared: not positions that pooling saves, where rounding can create ties.
bool is_measured(const Tensor& tensor);

// Why a kernel is refused: the name of the check, as docs/judge.md lists them, and what was found.
struct Refusal : std::runtime_error {
  Refusal(std::string check_, const std::string& reason) : std::runtime_error(reason), check(std::move(check_)) {}
  std::string check;
};

// What the tensors of a call hold before it is made.
class Snapshot {
 public:
  using Bytes = std::vector<unsigned char>;
  explicit Snapshot(CallTensors tensors);
  // After the call, of each tensor: its bytes, if the call has written to it, else none. Throws Refusal: it has put
  // another tensor into the call (tensors), or changed one that it only reads (inputs).
  std::vector<Bytes> written() const;
  void restore() const;  // all tensors, past their count of modifications: what the op has saved stays as it was

 private:
  struct Before {
    Tensor tensor;  // keeps the storage
    uint64_t version;
    Bytes bytes;
  };
  const CallTensors tensors_;
  std::vector<Before> before_;
};

// A tensor that a call wrote: its index among the call's tensors, and its values.
struct Output {
  size_t tensor;
  std::vector<double> numbers;
};
// Makes the call and returns what it wrote, of the tensors that are measured.
std::vector<Output> outputs_of(const SlotSpy::Seen& seen);
// Compares what two calls wrote, all tensors together, within tolerance::call_in(type). Where neither is finite, as
// gradients in f16 may have overflowed, they are equal.
examples::Comparison compare(const std::vector<Output>& got, const std::vector<Output>& reference, DType type);

}  // namespace hs::bench::measure
