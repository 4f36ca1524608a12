// --save, --save-every, --keep and --resume: a run that survives its process (models/files/run_folder.h). A state has
// the flags of its run, so --resume alone continues it.
#pragma once

#include <map>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/measure/ranks.h"
#include "models/files/run_folder.h"
#include "models/training/train.h"

namespace hs::bench::measure {

class Saving {
 public:
  void declare(cli::Flags& flags);
  // Throws Error (usage) if the flags contradict each other.
  void check(const cli::Flags& flags, int64_t repeat);
  bool is_on() const { return !save_.empty() || !resume_.empty(); }
  bool counts_steps() const { return is_on() && every_.steps > 0; }  // to save in the middle of an epoch

  // Opens the folder and, to resume, reads its newest state. A state of a run with other settings is refused, unless
  // their flags keep the bits; so is a rank with other settings or data. Only
  // rank 0 opens the folder. Throws Error: io; checkpoint (no valid state, or of another run); rank.
  void open(const cli::Flags& flags, Device device, const cli::TrainingData& data, bool quiet, const Ranks& ranks);
  // Adds what saves and resumes to the hooks, which must not outlive this. A signal then ends training with a state.
  void attach(TrainHooks& hooks);
  // After training: waits for the last state. Throws Error: io; the signal's, if training was interrupted, which says
  // what is left of a run that was not saved. Says so if saving held up training too much.
  void finish(const TrainResult& result, const std::string& left);
  Json to_json(const TrainResult& result) const;  // the row's member "saving"; null if not is_on()

 private:
  void open_folder(int64_t epochs, bool quiet);
  void check_same_run(const std::string& folder) const;

  std::string save_, resume_, every_text_ = "10m";
  Cadence every_;
  int64_t keep_ = 2;
  std::map<std::string, std::string> identity_;  // of the run, by name
  Json settings_;                                // Flags::settings(), for the run's states
  std::string hint_;                             // the command that continues the run
  std::unique_ptr<RunFolder> folder_;
  std::optional<TrainingState> from_;
  Clock::time_point last_;
};

}  // namespace hs::bench::measure
