// The parts of the judge, in the process that the kernel runs in.
#pragma once

#include <functional>
#include <stdexcept>

#include "bench/cli/plugins.h"
#include "bench/judge/judge.h"
#include "engine/kernel.h"
#include "kernels/examples/op_table.h"

namespace hs::bench::judge {

inline constexpr unsigned patience = 20, own_patience = 600;  // seconds: for the kernel, and for what is done between

// Why a kernel is refused: the name of the check, as docs/judge.md lists them, and what was found.
struct Refusal : std::runtime_error {
  Refusal(std::string check_, const std::string& reason) : std::runtime_error(reason), check(std::move(check_)) {}
  std::string check;
};

// The variant that is judged. While it does not run, those of plug-ins are on no device: what the project's own kernels
// say is right must not come from them.
class Judged : NonCopyable {
 public:
  const cli::Plugin::Registered registered;
  KernelSlot& slot;
  const std::function<void(const Json&)> tell;  // the judge: the verdict so far, or what the kernel runs now
  Json verdict;

  Judged(const cli::Plugin::Registered& registered_, Json verdict_, std::function<void(const Json&)> tell_);
  bool is_plugins(const VariantBase* variant) const;
  void passed(const std::string& check, int64_t runs);
  // Runs `work` with the variant forced. Throws Refusal: of `work`, by `check` if it has thrown; Error: forced_variant
  // (it does not take a call), out_of_memory.
  void run(const std::string& check, const std::string& what, const std::function<void()>& work) const;

 private:
  std::vector<std::pair<VariantBase*, Device>> plugins_;  // where they are while it runs
  void show(bool shown) const;
};

// What the tensors of a call hold before it is made.
class Snapshot {
 public:
  using Bytes = std::vector<unsigned char>;
  explicit Snapshot(CallTensors tensors);
  // After the call, of each tensor: its bytes, if the call has written to it, else none. Throws Refusal: it has put
  // another tensor into the call (tensors), or changed one that it only reads (inputs).
  std::vector<Bytes> written() const;
  void restore() const;  // all tensors

 private:
  struct Before {
    Tensor tensor;  // keeps the storage
    uint64_t version;
    Bytes bytes;
  };
  const CallTensors tensors_;
  std::vector<Before> before_;
};

// Checks the rows of the op table that the variant takes, and drawn ones. Returns in which types it has run. Throws
// Refusal.
std::vector<DType> check_rows(Judged& judged, const JudgeOptions& options);
// Then the calls at the sizes of the slot's timed cases, and their times. Throws Refusal.
void check_timed(Judged& judged, const JudgeOptions& options, const std::vector<DType>& types);

// At most so many, from the first to the last.
template <class T>
std::vector<T> spread(const std::vector<T>& all, size_t most) {
  std::vector<T> some;
  const size_t count = std::min(most, all.size());
  for (size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

}  // namespace hs::bench::judge
