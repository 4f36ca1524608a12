// The training loop: read models/train.cpp first. Every technique is a field of TrainConfig whose off value runs
// through the same code.
#pragma once

#include <functional>
#include <vector>

#include "engine/autocast.h"
#include "engine/batch.h"
#include "engine/device.h"
#include "engine/grad_scaler.h"
#include "engine/module.h"
#include "engine/optim.h"
#include "kernels/augment/augment.h"

namespace hs {

struct TrainConfig {
  int64_t epochs = 5;
  OptimizerConfig optimizer;
  uint64_t seed = 1;  // for dropout and augmentation; the model and the loader have their own
  Device device = Device::cpu;
  Precision precision = Precision::f32;
  GradScalerConfig scaler;  // used with f16 only
  int64_t accumulate = 1;   // micro-batches per optimizer step
  AugmentOptions augment;   // of training images; the source must then set Batch::samples and epoch
  bool fuse = true;         // see Ambient
  bool graph = false;       // record the step once and replay it (engine/captured_work.h); CUDA only
  // Steps of a graph. With more than one it takes the batches from the resident set (engine/batch.h) itself, so that
  // nothing happens between its steps; what is left of an epoch runs step by step. Needs graph and accumulate = 1.
  int64_t graph_steps = 1;
};

struct Progress {
  int64_t epoch, step, steps_per_epoch;  // epoch from 1, optimizer step within the epoch from 1
  double loss;                           // mean over the samples of this epoch, as last read from the device
  double seconds;                        // of training so far, evaluation excluded
};

struct Evaluation {
  double accuracy = 0;  // 0 to 1
  double loss = 0;      // mean over the samples
};

struct EpochResult {
  double training_loss;  // mean over the samples seen while training, dropout on
  double seconds;        // of this epoch's training
  Evaluation test;
  double evaluation_seconds = 0;
};

// Where the training time went, by the host's clock. On the CPU this is the work itself. On a GPU the host runs ahead
// of the device: `wait` is still the time that the host had no batch (the device may have been busy meanwhile), and the
// others are the time to launch the work.
struct StepSeconds {
  double wait = 0;    // for the loader's next batch
  double upload = 0;  // of batches on another device, and to a captured step's fixed tensors
  double forward = 0, backward = 0, update = 0;
  double replay = 0;  // of a captured step: forward, backward and update in one launch
};

struct TrainResult {
  std::vector<EpochResult> epochs;
  double seconds = 0;  // training only: loading and steps, without evaluation
  StepSeconds parts;   // of `seconds`; the rest is reading losses, and hooks
  int64_t samples = 0;
  // Optimizer steps taken, and skipped because a gradient, or with clipping their norm, was not finite.
  int64_t steps = 0, skipped_steps = 0;
  double loss_scale = 1;           // at the end
  std::vector<float> loss_scales;  // after each step; f16 only
};

struct TrainHooks {
  // Once, before the first step, with its first micro-batch as the model sees it, and with everything live that a step
  // needs: to measure what a step costs (models/measure_stages.h). May change the gradients and how the model is run.
  std::function<void(const Tensor& images, const Tensor& labels)> before_first_step;
  // Between the last backward of a step and its update: gradients in the arena are still multiplied by the scale. May
  // read from the device. REQUIRES: no graph
  std::function<void(const GradScaler&)> on_gradients;
  // After each "forward" and "backward", with the loss, whose tape exists until backward; and after the "update", with
  // an undefined tensor. To examine the phases of a step. REQUIRES: no graph
  std::function<void(const char* phase, const Tensor& loss)> on_phase;
  std::function<void(const Progress&)> on_step;
  std::function<void(int64_t epoch, const EpochResult&)> on_epoch;
  // Called after each step, or group of steps in a graph; true ends training there, without an evaluation.
  std::function<bool()> should_stop;
};

// Mean loss and accuracy over one pass of the source, in an Inference scope.
Evaluation evaluate(Module& model, BatchSource& source, Device device = Device::cpu);

// Trains the model, whose parameters are in the arena, and evaluates after every epoch. The losses stay on the device
// and are read ten times a second and at the end of an epoch. Throws Error (numeric) that names the step if the loss
// has become inf or NaN; the weights are then useless.
TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks = {});

}  // namespace hs
