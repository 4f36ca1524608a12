// CapturedStep: a training step recorded as a CUDA graph and replayed (engine/captured_work.h), or several steps as one
// graph, which gathers their batches itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/captured_work.h"
#include "models/training/train_step.h"

namespace hs {

// Where the steps of a group log, by index; scales are undefined without loss scaling.
struct StepLogs {
  Tensor losses, scales;  // f32, one element per step
};

class CapturedStep {  // of one run; not thread safe
 public:
  // All arguments must outlive it. REQUIRES: config.graph
  CapturedStep(TrainStep& step, ParameterArena& arena, Optimizer& optimizer, const TrainConfig& config);

  // As TrainStep::run(). Inputs of the first step's shapes are copied to fixed tensors, which the recorded step reads;
  // the shorter ones at the end of an epoch run unrecorded. sizes: samples of each micro-batch of the step, on all
  // ranks, which all replay or none.
  const std::vector<Tensor>& run(const std::vector<Batch>& inputs, const std::vector<int64_t>& sizes,
                                 StepSeconds& seconds);

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

}  // namespace hs
