// What `train` does beside training, in parts that it walks through in one order: each has flags of its own and takes
// part in what a training consists of. A new one is a file of its own, a name here and one in train_command.cpp.
#pragma once

#include "bench/cli/interrupt.h"
#include "bench/measure/ranks.h"
#include "bench/measure/row.h"
#include "bench/measure/step_flags.h"
#include "bench/measure/target.h"
#include "bench/report/outputs.h"
#include "models/files/model_file.h"

namespace hs::bench::measure {

// What the parts know of it, and tell each other.
struct TrainJob : NonCopyable {
  StepFlags settings;
  Experiment& experiment = settings.experiment;
  Residency residency;
  Goal goal;
  Ranks ranks;
  int64_t repeat = 1, run = 0;             // how many runs, and which of them this is, from 1
  bool quiet = false, has_report = false;  // has_report: the record is written, not only shown
  bool is_saved = false;                   // a signal leaves a state that can be resumed
  bool saves_between_steps = false;        // in the middle of an epoch
  std::string vocabulary;                  // that a text's symbols must be of; empty: its own
  std::optional<cli::TrainingData> data;   // from fit() on
  std::vector<const OutputFile*> files;    // that are written, beside the record's
  report::EachOutput each;
  std::string left = "no results were written";  // of a run that was interrupted
};

class TrainPart : NonCopyable {
 public:
  explicit TrainPart(TrainJob& job) : job_(job) {}
  virtual ~TrainPart() = default;

  virtual void declare(cli::Flags&) {}
  // Before anything else. Throws Error (usage) if the flags contradict each other.
  virtual void check(const cli::Flags&) {}
  // With ranks and device known: opens what is read and written, so that a wrong path costs no training.
  virtual void open(const cli::Flags&) {}
  // With the data known, which --dry-run needs too.
  virtual void fit(const cli::Flags&) {}
  // Of what is really trained.
  virtual void start(const cli::Flags&) {}
  // Before each run: adds to what training calls.
  virtual void attach(TrainHooks&) {}
  // With the model of the last run.
  virtual void take(StagedModel&) {}
  // After each run.
  virtual void finish(RunRecord&) {}
  // After all runs, on all ranks; the record has no rows yet.
  virtual void end(const Json& /*record*/) {}
  // Adds its members to the row.
  virtual void add_to(Json& /*row*/) const {}

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
