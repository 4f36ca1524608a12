// One optimizer step over one or several micro-batches: forward, loss and backward of each, then the update. The body
// of the loop in models/train.cpp.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "engine/captured_work.h"
#include "engine/observe.h"
#include "models/gradient_sum.h"
#include "models/train.h"

namespace hs {

// A part of a step, until the end of the scope: adds its time to `seconds`, and is a range for profilers.
class StepPart {
 public:
  StepPart(const char* name, double& seconds) : range_(name), seconds_(seconds) {}  // name: a literal
  ~StepPart() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  StepPart(const StepPart&) = delete;
  StepPart& operator=(const StepPart&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  const Range range_;
  double& seconds_;
  const Clock::time_point start_ = Clock::now();
};

// Tensors that are already on the device are not copied.
Batch on_device(const Batch& batch, Device device);

// What a model reads, and what its logits are compared with, row by row.
struct NetworkInput {
  Tensor input;   // (N, H, W, C) or (N, T)
  Tensor labels;  // (N) or (N * T) i32
};

// Of images: the batch's, augmented if requested, and normalised here unless the loader did it. They are f32, or in an
// Autocast scope of its type: the first product or convolution would cast them. Of tokens: the first T symbols (N, T)
// of each window of T + 1, and as labels (N * T) the symbols that follow them.
NetworkInput prepare(InputKind kind, const Batch& batch, const PixelScale& scale, const AugmentOptions& augment = {},
                     uint64_t seed = 0);

// Where the steps of a group log, by index; scales are undefined without loss scaling.
struct StepLogs {
  Tensor losses, scales;  // f32, one element per step
};

// This rank's part of a step.
struct StepShare {
  std::vector<int64_t> sizes;  // samples of each micro-batch of the step, on all ranks
  int64_t first = 0;           // the first micro-batch of this rank
  bool last = false;           // whether this rank wants no step after it; run() sets it to what rank 0 wants
};

// With a graph, inputs of the first step's shapes are copied to fixed tensors, which the recorded step reads; the
// shorter ones at the end of an epoch run unrecorded.
class TrainStep {
 public:
  // All arguments must outlive it. REQUIRES: as train()
  TrainStep(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler,
            const PixelScale& pixel_scale, const TrainConfig& config, const TrainHooks& hooks);

  // Runs this rank's micro-batches. Returns the loss of each one of the step, a scalar on the device, valid until the
  // next call. Adds to `seconds`. Throws Interrupted between two micro-batches, or while it waits for other ranks;
  // nothing has then been updated.
  const std::vector<Tensor>& run(const std::vector<Batch>& micro_batches, StepShare& share, StepSeconds& seconds);

  // The same if this process has all micro-batches of the step.
  const std::vector<Tensor>& run(const std::vector<Batch>& micro_batches, StepSeconds& seconds);

  // `steps` steps in one launch, which gathers their batches itself, from this place on, and logs from `entry` on.
  // REQUIRES: a graph; the same set, number of steps and logs in every call; before the first of another epoch, the
  // device is done with the one before
  void run_group(const ResidentSet& set, const BatchPlace& place, int64_t steps, int64_t entry, StepLogs& logs,
                 StepSeconds& seconds);

 private:
  void copy_to_fixed(const std::vector<Batch>& inputs, StepSeconds& seconds);
  Batch gather(const ResidentSet& set, int64_t offset);
  void look_once(const Batch& batch);
  // `log`: of a step of one micro-batch.
  void step(const std::vector<Batch>& inputs, StepShare& share, std::vector<Tensor>& losses, StepSeconds& seconds,
            const StepLog* log = nullptr);
  void replay(const std::vector<Batch>& inputs, StepShare& share, StepSeconds& seconds);
  void announce(const StepShare& share);
  void settle(StepShare& share, StepSeconds& seconds);
  void exchange_losses(const StepShare& share, const std::vector<Tensor>& losses);

  Module& model_;
  const InputKind input_kind_;
  ParameterArena& arena_;
  Optimizer& optimizer_;
  GradScaler& scaler_;
  const PixelScale pixel_scale_;
  const Device device_;
  const Precision precision_;
  const AugmentOptions augment_;
  const float label_smoothing_;
  const bool needs_loss_;  // by the optimizer
  const uint64_t seed_;
  std::unique_ptr<GradientSum> sum_;  // unless each gradient is added to the one before
  Exchange* const exchange_;
  RankSums* const sums_;
  StepShare own_;                 // of a process without others
  Tensor shared_;                 // among ranks: the loss of each micro-batch of the step
  std::vector<float> announced_;  // among ranks: StepShare::last of rank 0, how many ranks are interrupted
  std::function<void(const GradScaler&)> on_gradients_;
  std::function<void(const char* phase, const Tensor& loss)> on_phase_;
  std::function<bool()> is_interrupted_;
  std::function<void(const Tensor& images, const Tensor& labels)> before_first_;
  HostMemory places_;  // what place_ is copied from: of each batch in an epoch, GroupPlace
  std::unique_ptr<CapturedWork> captured_, captured_group_;
  std::vector<Batch> fixed_;
  std::vector<int64_t> fixed_sizes_;  // StepShare::sizes of the recorded step
  Tensor place_;                      // of the group, see GroupPlace
  std::vector<Tensor> losses_, captured_losses_, group_losses_;
};

}  // namespace hs
