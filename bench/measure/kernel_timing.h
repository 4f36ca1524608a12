// Kernels by themselves: every variant of a slot, verified first and then timed. What `gemm`, `conv` and `ops` share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/report/table.h"
#include "engine/kernel.h"

namespace hs::bench::measure {

// One call of a slot. The tensors are made by whoever measures, in each type.
struct KernelCase {
  using Tensors = std::vector<Tensor>;

  std::string what;  // its sizes
  KernelSlot* slot;
  std::vector<Shape> inputs;
  std::vector<Shape> outputs;
  std::function<void(Tensors& in, Tensors& out)> call;
  double flops = 0;               // of one call; 0: what it does is move bytes
  std::vector<bool> is_sum = {};  // outputs that stay f32 where the type has 16 bits (gradients of parameters)
  double zeros = 0;               // share of zeros in the last input
};

// What the machine can do at best, measured here.
struct Peaks {
  double flops = 0;           // per second: f32 multiply-adds on every thread (CPU), the fastest large gemm (CUDA)
  double bytes = 0;           // per second: a copy far larger than any cache, bytes read and written
  std::string flops_of = "";  // in words
};
Peaks measure_peaks(Device device);

struct VariantTiming {
  std::string variant;
  double error = 0;          // ||got - reference|| / ||reference||, the norms over all outputs
  bool wrong = false;        // above the tolerance: not timed
  std::vector<double> warm;  // seconds of a call, one for each round: inputs as the call before left the caches
  std::vector<double> cold;  // the same after more memory than the caches hold was written
};

struct CaseTiming {
  std::string what, slot;
  DType type = DType::f32;
  double flops = 0, bytes = 0;  // of one call: operations, and every tensor moved once
  std::string chosen = {};      // the variant that a call takes by itself
  std::vector<VariantTiming> variants = {};
};

// Variants that do not support the type on this device are left out. They take turns, `rounds` times, or until
// `seconds` have passed and each had three. The reference is the f64 variant on the CPU, of inputs already rounded.
CaseTiming time_kernel(const KernelCase& kernel, DType type, Device device, int64_t rounds, double seconds);

// Largest accepted error of a result in this type.
double largest_error(DType type);

Json to_json(const CaseTiming& timing, const Peaks& peaks);
// The ladder: the slowest variant of each case first.
report::Table to_table(const std::vector<CaseTiming>& timings, const Peaks& peaks);

}  // namespace hs::bench::measure
