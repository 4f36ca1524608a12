// For LD_PRELOAD: lets calls of the operating system fail in a program that knows nothing of it. HALFSTEP_FAULT is
// "CALL N HOW": the N-th call fails (HOW is fails), or that one and all later ones take half a second (late) or never
// return (blocks). Then the file that HALFSTEP_FAULT_MARK names appears. tests/bench/fault_table.cpp uses it.
#include <fcntl.h>

#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/support/interposed_calls.h"

namespace {

struct Plan {
  std::string call, how;
  int at = 0;
  Plan() {
    if (const char* text = std::getenv("HALFSTEP_FAULT")) std::istringstream(text) >> call >> at >> how;
  }
};

bool fails(const char* name) {
  static const Plan plan;
  static std::atomic<int> made = 0;
  if (plan.call != name) return false;
  const int number = ++made;
  if (number < plan.at || (plan.how == "fails" && number != plan.at)) return false;
  if (const char* mark = std::getenv("HALFSTEP_FAULT_MARK")) {
    static_cast<void>(::open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
  }
  while (plan.how == "blocks") ::pause();
  if (plan.how == "late") ::usleep(500'000);
  errno = EIO;
  return plan.how == "fails";
}

}  // namespace
