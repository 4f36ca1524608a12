// The parts of the judge, in the process that the kernel runs in.
#pragma once

#include <functional>
#include <optional>

#include "bench/cli/plugins.h"
#include "bench/judge/judge.h"
#include "bench/measure/kernel_timing.h"
#include "engine/kernel.h"
#include "kernels/examples/op_table.h"

namespace hs::bench::judge {

inline constexpr unsigned patience = 20, own_patience = 600;  // seconds: for the kernel, and for what is done between

using measure::Refusal;

// The variant that is judged, and hidden as all of plug-ins while it does not run.
class Judged : NonCopyable {
 public:
  const cli::Plugin::Registered registered;
  KernelSlot& slot;
  const std::function<void(const Json&)> tell;  // the judge: the verdict so far, or what the kernel runs now
  Json verdict;

  Judged(const cli::Plugin::Registered& registered_, Json verdict_, std::function<void(const Json&)> tell_);
  void passed(const std::string& check, int64_t runs);
  // Runs `work` with the variant forced, for at most so long. Throws Refusal: of `work`, by `check` if it has thrown;
  // Error: forced_variant (it does not take a call), out_of_memory.
  void run(const std::string& check, const std::string& what, const std::function<void()>& work,
           unsigned seconds = patience);

 private:
  std::optional<measure::HiddenPlugins> hidden_;  // unless the variant runs
};

// Checks the rows of the op table that the variant takes, and drawn ones. Returns in which types it has run. Throws
// Refusal.
std::vector<DType> check_rows(Judged& judged, const JudgeOptions& options);
// Then times the calls of the slot's timed cases. Throws Refusal.
void check_timed(Judged& judged, const JudgeOptions& options, const std::vector<DType>& types);

// The cases that time the slot.
std::vector<examples::TimedCase> timed_cases(const KernelSlot& slot, int64_t batch);

// At most `most` of them, spread from the first to the last.
template <class T>
std::vector<T> spread(const std::vector<T>& all, size_t most) {
  std::vector<T> some;
  const size_t count = std::min(most, all.size());
  for (size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

}  // namespace hs::bench::judge
