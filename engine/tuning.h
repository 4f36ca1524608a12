// A tuning table: measured choices of variants, which replace those by rank for calls whose tensors have the types and
// shapes of a line. The same table gives the same choices: nothing is measured while it is in use. `halfstep-bench
// tune kernels` makes one. As text:
//
//   halfstep-tuning 1; AMD EPYC 9B14; halfstep 0.1.0 (35d0582950bc)
//   # mnist_cnn, batch 64, f32, 2 threads
//   conv2d_forward cpu f32(64,28,28,1) f32(9,32) f32(32) f32(64,26,26,32) = direct
//   end
//
// The machine is the CPU's or the GPU's name, or "any"; "-" is an undefined tensor; lines from # are comments.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/kernel.h"

namespace hs {

// What parse_tuning() reads.
struct TuningTable {
  std::string machine;          // the CPU's or the GPU's name, or "any"
  std::deque<TunedCall> calls;  // at most one per slot, device and signature
};

// The part of a line before " = ".
std::string to_text(std::string_view slot, std::string_view device, const std::vector<int64_t>& signature);
// choices: that part, and the variant.
std::string tuning_text(std::string_view machine, std::string_view made_by, std::string_view comment,
                        const std::vector<std::pair<std::string, std::string>>& choices);

// `source` names the text in messages. Throws Error (bad_input) that names the line: it is damaged, the table is of
// another machine than this one, or it has a slot or variant that this build does not have.
TuningTable parse_tuning(const std::string& text, const std::string& source, const std::string& machine);

// Kernel calls take the table's variants while it is alive; a forced variant comes first, and a call that the variant
// does not support, or whose layout it cannot read, goes by rank. At most one at a time.
class TuningInUse : NonCopyable {
 public:
  explicit TuningInUse(TuningTable table);  // puts the table to use
  ~TuningInUse();

  uint64_t calls() const;  // that the table decided so far

 private:
  TuningTable table_;
};

}  // namespace hs
