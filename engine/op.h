// Which op is running on this thread: the first line of every op, `const Op op("relu");`. Errors, the allocator's
// records and the profiler read it, so that "out of memory" comes with the name of who asked.
#pragma once

#include "engine/profiler.h"

namespace hs {

class Op {
 public:
  explicit Op(const char* name) : range_(name), before_(current_) { current_ = name; }
  ~Op() { current_ = before_; }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  // "" outside of any op. The variable itself, because a signal handler wants that of another thread.
  static const char* const& current() { return current_; }

 private:
  static inline thread_local const char* current_ = "";
  const Range range_;
  const char* before_;
};

}  // namespace hs
