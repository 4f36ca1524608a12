// The flags that describe a training step, declared once: every command that trains, profiles or tunes one takes them,
// with the same defaults.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/inputs.h"
#include "bench/measure/experiment.h"
#include "bench/measure/tuning_file.h"

namespace hs::bench::measure {

struct StepFlags {
  Experiment experiment;  // what they set; kernels are forced by the command, not by run_experiment()
  std::vector<std::string> kernels;
  cli::DataChoice data;
  int64_t context = default_context, seed = 1, threads = 0;
  std::string device = "auto";
  TuningFile tuning;

  void declare_data(cli::Flags& flags);       // --model, --blocks, --data, --context
  void declare_optimizer(cli::Flags& flags);  // its name and parameters, without --lr
  void declare_step(cli::Flags& flags);       // --batch, --precision and what else a step does
  void declare_machine(cli::Flags& flags);    // --seed, --threads, --device, --recipe
  // All of them, with --lr and --tuning.
  void declare(cli::Flags& flags);

  // Sets the threads and experiment.device, and takes the tuning file. Throws Error (usage) for flags that do not go
  // together.
  void use(const cli::Flags& flags);
  void check(const cli::Flags& flags) const;  // use() without its effects
};

}  // namespace hs::bench::measure
