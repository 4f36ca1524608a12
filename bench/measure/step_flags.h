// The flags that describe a training step, declared once: every command that trains, profiles or tunes one takes them,
// with the same defaults.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/measure/experiment.h"
#include "engine/tuning.h"

namespace hs::bench::measure {

// The machine that a table is for.
std::string tuning_machine(Device device);

// --tuning FILE: the choices of kernel variants that `tune kernels` measured (engine/tuning.h).
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

// What a command takes of them, and does not decide itself.
struct StepParts {
  bool data = true, rate = true, tuning = true;
  bool step = true;  // what a step does beside its optimizer: --batch, --precision, ...
};

struct StepFlags {
  Experiment experiment;  // what they set
  cli::DataChoice data;
  int64_t context = default_context, threads = 0;
  std::string device = "auto";
  std::vector<std::string> plugins;
  TuningFile tuning;
  std::optional<Precision> precision;  // none: auto

  void declare(cli::Flags& flags, const StepParts& takes = {});

  // Loads the plug-ins, sets the threads, experiment.device and experiment.precision, and takes the tuning file.
  void use();

 private:
  void declare_optimizer(cli::Flags& flags);
  void declare_step(cli::Flags& flags);
};

}  // namespace hs::bench::measure
