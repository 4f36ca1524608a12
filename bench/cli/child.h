// Runs other programs: the trainings that need a process of their own, and what may end the process that it is in.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hs::bench::cli {

struct ChildEnd {
  bool late;               // it was ended because its time was over
  int code, signal;        // exit code; or the signal that ended it, else 0
  std::string out;         // its stdout
  std::string err;         // the end of its stderr
  std::string last_words;  // the last line of that with a letter or digit, without the program's name

  std::string text() const;  // "exit code 6: the loss is nan"
};

// Runs a program in a session of its own to its end, or for `seconds`. What is left of its process group then is
// killed. A command that uses it calls allow_to_finish(). Throws Error: io (it cannot be started, or prints too much),
// and as check_signals(where).
ChildEnd run_program(const std::vector<std::string>& words, double seconds, const std::string& where);
// The same for a function, in a copy of this process that no signal handler of the program is left in. Its exit code is
// 0 if it returns. REQUIRES: this process has one thread
ChildEnd run_function(const std::function<void()>& work, double seconds, const std::string& where);

}  // namespace hs::bench::cli
