// The judge's side of a subject: starts the process, asks it, times it, and stops it while it looks at what it wrote.
#pragma once

#include <sys/types.h>

#include <span>
#include <stdexcept>

#include "bench/cli/json_file.h"
#include "engine/device.h"
#include "engine/non_copyable.h"

namespace hs::bench::judge {

// Why a plug-in is refused: the name of the check, as docs/judge.md lists them, and what was found.
struct Refusal : std::runtime_error {
  Refusal(std::string check_, const std::string& reason) : std::runtime_error(reason), check(std::move(check_)) {}
  std::string check;
};

class Examiner : NonCopyable {
 public:
  enum class Memory : bool { plain, guarded };  // guarded: every storage of the CPU lies between guard pages
  // plugin: a shared object, and what messages call it; "": the subject runs what the program itself has. Throws Error:
  // io (the process cannot be started), and what loading the plug-in throws; Refusal: it ended while it was loaded.
  // device: what it is to run on; the emulated one needs more than a process has that only computes.
  Examiner(const std::string& plugin, const std::string& shown, Memory memory, int threads,
           Device device = Device::cpu);
  ~Examiner();  // ends the process

  const Json& variants() const { return variants_; }       // that the plug-in has registered
  std::span<std::byte> memory() const { return memory_; }  // shared with the subject

  // What the subject answers. Throws Refusal: it ended, or says nothing for too long, or nothing sensible, or the
  // emulator has found a mistake in a kernel.
  Json ask(const Json& question);

  // Between ask() of a case and the next: runs these calls, and returns the seconds by this process's clock. All
  // threads of the subject are stopped before and after. Throws Refusal, as ask() does.
  double run_calls(const std::vector<size_t>& order);
  void end_calls();  // of this case

  // Throws Refusal (leftover) if the process has more threads than this one's threads(), which it was given.
  void check_threads() const;

 private:
  Examiner() = default;
  void wait_for_message();
  void stop();
  void go_on();
  std::string printed();  // by the subject since the last call
  [[noreturn]] void refuse_dead();

  pid_t process_ = -1;
  int socket_ = -1, memory_file_ = -1, output_ = -1;
  std::span<std::byte> memory_;
  Json variants_ = Json::array();
  off_t printed_ = 0;  // bytes that have been looked at
  bool stopped_ = false;
};

}  // namespace hs::bench::judge
