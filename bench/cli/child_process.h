// Another program, run to its end: for measurements that want a process each. No shell reads its words.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hs::bench::cli {

struct Finished {
  int code = -1;           // exit code, if it ended by itself
  int signal = 0;          // that ended it
  bool too_late = false;   // it was ended because its time was over
  std::string out;         // all of stdout
  std::string last_words;  // the last line of stderr that is not empty
};

// Runs words[0], looked for in PATH if it has no slash, with an empty stdin and a process group of its own. Calls
// `check` ten times a second. If that throws, or after `seconds`, the group is asked to end (SIGTERM) and after a
// second made to; what the program leaves behind in its group ends with it.
// Throws Error: io (it cannot be started, or writes more than 64 MiB), and what `check` throws.
Finished run_process(const std::vector<std::string>& words, double seconds, const std::function<void()>& check);

// Kills the group of the program that is running, if there is one. For signal handlers.
void kill_running_process() noexcept;

// As one types them: words with blanks or quotes in quotes.
std::string command_line(const std::vector<std::string>& words);

}  // namespace hs::bench::cli
