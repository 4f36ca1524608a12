// What `train` does beside training, in parts. A new one is a file of its own, a name here and one in
// train_command.cpp. Of all parts it calls, in this order:
//
//   declare, check_flags, with_device, with_data, (--dry-run ends here) before_training,
//   for each run: before_run, with_model (of the last one), after_run,
//   after_runs, add_to_row
//
// If runs diverge, with_model, after_run and after_runs are left out for them, and the row is written all the same.
#pragma once

#include "bench/cli/interrupt.h"
#include "bench/measure/ranks.h"
#include "bench/measure/row.h"
#include "bench/measure/step_flags.h"
#include "bench/measure/target.h"
#include "bench/report/outputs.h"
#include "models/files/model_file.h"

namespace hs::bench::measure {

// What the parts know of the training, and tell each other.
struct TrainJob : NonCopyable {
  StepFlags settings;
  Experiment& experiment = settings.experiment;
  Residency residency;
  Goal goal;
  Ranks ranks;
  int64_t repeat = 1, run = 0;             // how many runs, and which of them this is, from 1
  int64_t epoch = 0, step = 0;             // this run's last whole step; 0: it has taken none
  bool quiet = false, has_report = false;  // has_report: the record is written, not only shown
  bool is_saved = false;                   // by saving: a signal leaves a state that can be resumed
  bool saves_between_steps = false;        // by saving: in the middle of an epoch
  TextOptions text;                        // by fine tuning: the model's vocabulary, and what is not in it
  std::optional<cli::TrainingData> data;   // from with_data() on
  std::vector<const OutputFile*> files;    // of each part that writes one; the record's are not among them
  report::EachOutput each;
  std::string left = "no results were written";  // by the model's output: what an interrupted run leaves
};

class TrainPart : NonCopyable {
 public:
  explicit TrainPart(TrainJob& job) : job_(job) {}
  virtual ~TrainPart() = default;

  virtual void declare(cli::Flags&) {}
  // Throws Error (usage) if the flags contradict each other.
  virtual void check_flags(const cli::Flags&) {}
  // The ranks are known, too. Opens what is read and written, so that a wrong path costs no training.
  virtual void with_device(const cli::Flags&) {}
  // Settles what follows from the data.
  virtual void with_data(const cli::Flags&) {}
  virtual void before_training(const cli::Flags&) {}
  // Adds to what training calls.
  virtual void before_run(TrainHooks&) {}
  virtual void with_model(StagedModel&) {}
  virtual void after_run(RunRecord&) {}
  // On all ranks; the record has no rows yet.
  virtual void after_runs(const Json& /*record*/) {}
  // Adds its members to the row.
  virtual void add_to_row(Json& /*row*/) const {}

 protected:
  TrainJob& job_;
};

// Calls `more` after what the hook calls already.
template <class... Arguments>
void then(std::function<void(Arguments...)>& hook, std::type_identity_t<std::function<void(Arguments...)>> more) {
  hook = [before = std::move(hook), more = std::move(more)](Arguments... arguments) {
    if (before) before(arguments...);
    more(arguments...);
  };
}

// A signal then ends training, not the program, which writes what there is.
inline void end_when_interrupted(TrainHooks& hooks) {
  cli::allow_to_finish();
  hooks.is_interrupted = cli::stop_requested;
}

using MadePart = std::unique_ptr<TrainPart>;
MadePart make_curves(TrainJob&), make_fine_tuning(TrainJob&), make_memory_budget(TrainJob&),
    make_model_output(TrainJob&), make_run_flags(TrainJob&), make_saving(TrainJob&), make_trace_output(TrainJob&);

}  // namespace hs::bench::measure
