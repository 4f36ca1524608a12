// --tuning FILE: the choices of kernel variants that `tune kernels` measured (engine/tuning.h).
#pragma once

#include <optional>
#include <string>

#include "bench/cli/command_line.h"
#include "engine/tuning.h"

namespace hs::bench::measure {

// The machine that a table is for, and the program that makes it.
std::string tuning_machine(Device device);
std::string tuning_program();

class TuningFile {
 public:
  // Declares the flag and records it as "tuning": null without it, else "file", "sha256" and "machine".
  void declare(cli::Flags& flags);
  // From now on kernel calls take the file's choices; nothing without the flag. Throws Error: io, bad_input.
  void use(Device device);
  // To be called after the calls: says so if the file decided none of them.
  void check_used() const;

 private:
  std::string path_, sha256_, machine_;
  std::optional<TuningInUse> in_use_;
};

}  // namespace hs::bench::measure
