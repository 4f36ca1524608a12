// Times kernels in isolation: every variant of a slot is verified, then timed, for `bench gemm` and its kind.
#pragma once

#include "bench/measure/timed_case.h"
#include "bench/report/table.h"

namespace hs::bench::measure {

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
  std::string wrong = "";         // the row, or the bound of a call, that it fails: it is not timed
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

// While it is alive, the variants of plug-ins are on no device, but for those of one slot: what the project's own
// kernels say must not come from them. A slot that a plug-in has brought keeps its own.
class HiddenPlugins : NonCopyable {
 public:
  explicit HiddenPlugins(const KernelSlot* shown = nullptr);
  ~HiddenPlugins();

 private:
  std::vector<std::pair<VariantBase*, Device>> variants_;  // where they are else
};

struct TimingOptions {
  int64_t rounds = 15;
  double seconds = 2;  // no new round after this time, of those beyond the least
  bool tf32 = false;   // f32 factors may be rounded
  // These variants alone, whatever they keep, each in every round; whether they pass their rows was asked before.
  std::vector<std::string> only = {};
};

// Returns one timing per call. Variants that do not support the type on this device are omitted. A variant is wrong if
// it fails a row of the op table in this type (row_failures()), or what it makes of this call is off by more than
// tolerance::call_in(). The others are interleaved, for at least three rounds. The reference is the f64 variant on the
// CPU, run on inputs rounded to `type`.
std::vector<CaseTiming> time_kernels(const examples::TimedCase& kernel, DType type, Device device,
                                     const TimingOptions& options);

// The same for one call with the tensors that it has, warm only, at least seven rounds: the reference is the slot's
// simplest variant that supports the call. Omits variants whose kept layout differs from the chosen variant's, so that
// backward can read what forward kept. Afterwards the call has been made once.
CaseTiming time_call(const SlotSpy::Seen& seen, const TimingOptions& options);

// By the medians of warm calls, of those that are right; nullptr if there is none.
const VariantTiming* fastest(const CaseTiming& timing);

// The record's list of those whose chosen variant takes over 5 % more time than the fastest, `ratio` being that of
// their medians; and a sentence of each.
Json slower_choices(const std::vector<CaseTiming>& timings, std::vector<std::string>& sentences);

// Adds the ladder to the table of `rows`, whose JSON becomes this one: the slowest variant first.
Json to_json(const CaseTiming& timing, const Peaks& peaks, report::Rows& rows);

}  // namespace hs::bench::measure
