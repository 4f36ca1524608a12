// StepRunner: gets the batches of a run's next step and runs it. Steps that ranks share, and steps that are recorded
// as a CUDA graph, have runners of their own: models/training/rank_step.h, models/training/captured_step.h.
#pragma once

#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "models/training/step_phases.h"
#include "models/training/train_step.h"
#include "models/training/training_run.h"

namespace hs {

// What runs next: a step, or several as one.
struct NextStep {
  std::vector<Batch> batches;  // this process's micro-batches, on the device; empty if several steps run as one
  std::vector<int64_t> sizes;  // samples of each micro-batch, of all processes
  int64_t steps = 1;

  int64_t samples() const { return std::reduce(sizes.begin(), sizes.end()); }
  Batch last_batch() const { return batches.empty() ? Batch{} : batches.back(); }
};

class StepRunner {  // of one run; not thread safe
 public:
  // What `parts` refers to must outlive it. step: nullptr is a TrainStep
  explicit StepRunner(const RunParts& parts, std::unique_ptr<TrainStep> step = nullptr);
  virtual ~StepRunner() = default;

  // What comes after this place; adds its times to result.parts. Throws Interrupted, as run() does.
  virtual NextStep next(const Position& at, TrainResult& result);
  // Adds the losses of its micro-batches, and the loss scale.
  virtual void run(const NextStep& next, Losses& losses, StepSeconds& seconds);
  virtual void end_epoch(const Position&) {}  // after its last step

  const TrainStep& step() const { return *step_; }  // the one that is run
  virtual bool time_is_up(double seconds) const;    // whether it has taken config.max_seconds

 protected:
  int64_t micro_batches(const Position& at) const;    // of the next step
  void upload(NextStep& next, StepSeconds& seconds);  // to the device, and shows the first batch
  void keep_losses(const std::vector<Tensor>& step_losses, const std::vector<int64_t>& sizes, Losses& losses) const;
  bool is_interrupted() const { return parts_.hooks.is_interrupted && parts_.hooks.is_interrupted(); }
  bool wants_first_batch() const { return parts_.hooks.before_first_step && !has_shown_; }
  void show_first_batch(const Batch& batch);  // to before_first_step

  const RunParts parts_;
  const std::unique_ptr<TrainStep> step_;  // see step()

 private:
  std::optional<StepPhases> phases_;  // if a hook looks into a step
  bool has_shown_ = false;
};

// The one that the configuration asks for. Throws Error (usage), if it asks for what cannot be.
std::unique_ptr<StepRunner> make_step_runner(const RunParts& parts);

}  // namespace hs
