// One optimizer step over one or several micro-batches: forward, loss and backward of each, then the update. The body
// of the loop in models/training/train.cpp.
#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "engine/observe.h"
#include "models/training/train.h"

namespace hs {

// A part of a step, until the end of the scope: adds its time to `seconds`, and is a range for profilers.
class StepPart {
 public:
  StepPart(const char* name, double& seconds) : range_(name), seconds_(seconds) {}  // name: a literal; see StepPhases
  ~StepPart() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

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
  Tensor labels;  // (N) or (N * T) i32; (N) f32 targets of a regression
};

// Of images: the batch's, augmented if requested, and normalised here unless the loader did it. They are f32, or in an
// Autocast scope of its type: the first product or convolution would cast them. f32 samples are taken as they are. Of
// tokens: the first T symbols (N, T) of each window of T + 1, and as labels (N * T) the symbols that follow them.
NetworkInput prepare(InputKind kind, const Batch& batch, const PixelScale& scale,
                     const AugmentOptions* augment = nullptr,
                     uint64_t seed = 0);  // augment: null if it changes nothing

// The model's own loss of its output, or else softmax_cross_entropy() with the other arguments.
Tensor loss_of(const Module& model, const Tensor& output, const NetworkInput& in, const Tensor& dloss = {},
               float smoothing = 0);

class TrainStep {  // of one run; not thread safe
 public:
  // All arguments must outlive it. REQUIRES: as train()
  TrainStep(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler,
            const PixelScale& pixel_scale, const TrainConfig& config, std::function<bool()> is_interrupted = {});
  virtual ~TrainStep() = default;

  // Runs the micro-batches, which are on the device. Returns the loss of each one of the step, a scalar on the device,
  // valid until the next call. Adds to `seconds`. Throws Interrupted between two micro-batches; nothing has then been
  // updated.
  virtual const std::vector<Tensor>& run(const std::vector<Batch>& micro_batches, StepSeconds& seconds);

  const std::vector<Tensor>& losses() const { return losses_; }             // of the micro-batches so far
  std::vector<Tensor> take_losses() { return std::exchange(losses_, {}); }  // leaves none here
  InputKind input_kind() const { return model_.input_kind(); }              // the model's
  // What the model reads of a batch on the device, in the type of the caller's Autocast scope.
  NetworkInput input_of(const Batch& batch) const;
  const PixelScale& pixel_scale() const { return pixel_scale_; }  // of images

  // The loss of one micro-batch, with its tape. `dloss`: see softmax_cross_entropy()
  Tensor forward(const Batch& batch, const Tensor& dloss = {});

 protected:
  void begin(StepSeconds& seconds);  // forgets the losses and zeroes the gradients
  // A loss with its tape, and dL/dL for its backward.
  struct Loss {
    Tensor loss, dloss;  // scalars
  };
  // Runs forward and adds to losses(). `samples`: of the step.
  Loss forward_part(const Batch& batch, int64_t samples, StepSeconds& seconds);
  void update(const std::vector<int64_t>& sizes, StepSeconds& seconds);  // samples of each micro-batch of the step

  Module& model_;                               // what is trained
  ParameterArena& arena_;                       // its parameters
  Optimizer& optimizer_;                        // updates them
  GradScaler& scaler_;                          // scales the loss, in f16
  const PixelScale pixel_scale_;                // of images
  const TrainConfig& config_;                   // the settings
  const std::function<bool()> is_interrupted_;  // may be empty
  std::vector<Tensor> losses_;                  // see losses()
  const AugmentOptions* const augment_;         // null: none is wanted
};

}  // namespace hs
