// CapturedStep: a training step recorded as a CUDA graph and replayed (engine/captured_work.h), or several steps as one
// graph, which gathers their batches itself. GraphRunner: what runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/captured_work.h"
#include "models/training/step_runner.h"
#include "models/training/train_step.h"

namespace hs {

class CapturedStep {  // of one run; not thread safe
 public:
  // `step`, and what `parts` refers to, must outlive it. REQUIRES: config.graph
  CapturedStep(const RunParts& parts, TrainStep& step);

  // As TrainStep::run(). Inputs of the first step's shapes are copied to fixed tensors, which the recorded step reads;
  // the shorter ones at the end of an epoch run unrecorded. sizes: samples of each micro-batch of the step, on all
  // ranks, which all replay or none. before_replay: called when the inputs are there
  const std::vector<Tensor>& run(const std::vector<Batch>& inputs, const std::vector<int64_t>& sizes,
                                 StepSeconds& seconds, const std::function<void()>& before_replay = {});

  // The place from which the next group takes its batches, and the first entry that it logs. REQUIRES: before the first
  // group of another epoch, the device is done with the one before
  void begin_group(const ResidentSet& set, const BatchPlace& place, int64_t entry, StepSeconds& seconds);
  Batch gather(const ResidentSet& set, int64_t offset);  // the batch that begins `offset` samples after that place
  // `steps` steps in one launch. REQUIRES: config.graph_steps > 1; the same arguments in every call
  void run_group(const ResidentSet& set, int64_t steps, StepLogs& logs, StepSeconds& seconds);

 private:
  void copy_to_fixed(const std::vector<Batch>& inputs, StepSeconds& seconds);
  void copy_images(const Tensor& from, Tensor& to);
  DType image_type() const;  // of what the recorded step reads, in the caller's Autocast scope

  TrainStep& step_;
  ParameterArena& arena_;
  Optimizer& optimizer_;
  const TrainConfig& config_;
  CapturedWork captured_;
  std::optional<CapturedWork> captured_group_;
  std::vector<Batch> fixed_;
  std::vector<int64_t> fixed_sizes_;
  std::vector<Tensor> losses_, group_losses_;  // of the recorded step and group, which write to them
  Tensor place_;                               // of the group, see GroupPlace
  HostMemory places_;                          // what place_ is copied from: of each batch in an epoch, GroupPlace
};

class GraphRunner : public StepRunner {  // of one run; not thread safe
 public:
  // As StepRunner. Throws Error (usage) if there can be no graph of several steps.
  explicit GraphRunner(const RunParts& parts);

  NextStep next(const Position& at, TrainResult& result) override;
  void run(const NextStep& next, Losses& losses, StepSeconds& seconds) override;

 private:
  bool fits_group(const Position& at) const;
  void run_group(const NextStep& next, Losses& losses, StepSeconds& seconds);

  const ResidentSet* const set_;  // that a graph of several steps takes its batches from
  CapturedStep captured_;
};

}  // namespace hs
