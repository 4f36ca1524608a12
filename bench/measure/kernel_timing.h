// Times kernels in isolation: every variant of a slot is verified, then timed, for `bench gemm` and its kind.
#pragma once

#include "bench/measure/timed_case.h"
#include "bench/report/table.h"

namespace hs::bench::measure {

// A call that a case makes of one of its slots.
struct SlotCall {
  std::string what, slot;                  // its sizes
  double flops = 0;                        // operations; 0: it only moves bytes
  double elements = 0;                     // of all its tensors
  std::vector<std::string> variants = {};  // on the device
};
std::vector<SlotCall> calls_of(const examples::TimedCase& kernel, Device device);  // runs none of them

// Peak rates of this machine, measured.
struct Peaks {
  double flops = 0;           // per second: f32 multiply-adds on every thread (CPU), the fastest large gemm (CUDA)
  double bytes = 0;           // per second: a copy far larger than any cache, bytes read and written
  std::string flops_of = "";  // in words

  // Whether work at best takes longer for its arithmetic than for its bytes. (Williams, Waterman and Patterson,
  // "Roofline", 2009.)
  bool limits_by_arithmetic(double its_flops, double its_bytes) const { return its_flops / flops > its_bytes / bytes; }
};
Peaks measure_peaks(Device device);
double peak_flops_of_cpu();  // f32 multiply-adds a second on every thread

struct VariantTiming {
  std::string variant;
  double error = 0;               // ||got - reference|| / ||reference||, the norms over all outputs
  bool wrong = false;             // error above the tolerance: not timed
  std::vector<double> warm = {};  // seconds per call, one per round, with the caches as the previous call left them
  std::vector<double> cold = {};  // the same after writing more memory than the caches hold
};

struct CaseTiming {
  std::string what, slot;
  DType type = DType::f32;
  double flops = 0, bytes = 0;  // of one call: operations, and every tensor moved once
  std::string chosen = {};      // the variant that a call runs by default
  Device device = Device::cpu;
  std::vector<VariantTiming> variants = {};
};

// Returns one timing per call. Variants that do not support the type on this device are omitted. The variants are
// interleaved for `rounds` rounds, or until `seconds` have passed and each had three rounds. The reference is the f64
// variant on the CPU, run on inputs rounded to `type`.
std::vector<CaseTiming> time_kernels(const examples::TimedCase& kernel, DType type, Device device, int64_t rounds,
                                     double seconds);

// The same for one call with the tensors that it has, warm only, at least seven rounds: the error is the distance to
// the slot's simplest variant that supports the call. Omits variants whose kept layout differs from the chosen
// variant's, so that backward can read what forward kept. Afterwards the call has been made once. tf32: f32 factors may
// be rounded.
CaseTiming time_call(const SlotSpy::Seen& seen, bool tf32, int64_t rounds, double seconds);

// By the medians of warm calls, of those that are right; nullptr if there is none.
const VariantTiming* fastest(const CaseTiming& timing);

// The record's list of those whose chosen variant takes over 5 % more time than the fastest, `ratio` being that of
// their medians; and a sentence of each.
Json slower_choices(const std::vector<CaseTiming>& timings, std::vector<std::string>& sentences);

// The largest accepted error of a result of this type.
double largest_error(DType type);

// Adds the ladder to the table of `rows`, whose JSON becomes this one: the slowest variant first.
Json to_json(const CaseTiming& timing, const Peaks& peaks, report::Rows& rows);

}  // namespace hs::bench::measure
