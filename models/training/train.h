// The training loop: read models/training/train.cpp first. Checkpointing is the
// model's (StagedModel::set_segments), caching and prefetching are the source's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/device.h"
#include "engine/module.h"
#include "models/files/training_state.h"
#include "models/training/train_config.h"

namespace hs {

// Where the training time went, by the host's clock. On the CPU this is the work itself. On a GPU the host runs ahead
// of the device: `wait` is still the time that the host had no batch (the device may have been busy meanwhile), and the
// others are the time to launch the work.
struct StepSeconds {
  double wait = 0;                               // for the loader's next batch
  double upload = 0;                             // of batches on another device, and to a captured step's fixed tensors
  double forward = 0, backward = 0, update = 0;  // the phases of a step
  double exchange = 0;                           // summing by the tree, and waiting for other ranks
  double replay = 0;                             // of a captured step: forward, backward and update in one launch
  double save = 0;                               // copying the state, and TrainHooks::on_state
};

// How far training is, as TrainHooks are told.
struct Progress {
  int64_t epoch, step, steps_per_epoch;  // epoch from 1, optimizer step within the epoch from 1
  double loss;                           // mean over the samples of this epoch, as last read from the device
  double seconds;                        // of training so far, evaluation excluded
  StepSeconds parts;                     // of these seconds
};

// One epoch of training, and the test after it.
struct EpochResult {
  double training_loss;           // mean over the samples seen while training, dropout on
  double seconds;                 // of this epoch's training
  Evaluation test;                // after the epoch; NaN: not tested
  double evaluation_seconds = 0;  // of the test; 0: not tested
};

// A test on the validation samples, during training.
struct Validation {
  int64_t epoch, step;      // when it was measured: the epoch, from 1, and its steps done so far
  Evaluation result;        // over the validation samples
  double seconds;           // that it took
  double training_seconds;  // of the run until then, evaluations excluded
};

// Of a resumed run, everything counts from its very beginning.
struct TrainResult {
  // The last one may be cut short, see ended_early; its test is of the weights that are kept.
  std::vector<EpochResult> epochs;
  std::vector<Validation> validations;  // in their order
  double seconds = 0;                   // training only: loading and steps, without evaluation
  StepSeconds parts;                    // of `seconds`; the rest is reading losses, and hooks
  int64_t samples = 0;                  // seen in training, repeated ones included
  // Optimizer steps taken, and skipped: as outliers, or because a gradient, or with clipping their norm, was not
  // finite.
  int64_t steps = 0, skipped_steps = 0;
  double loss_scale = 1;           // at the end
  std::vector<float> loss_scales;  // after each step; f16 only
  std::string kept;                // which weights, if they are not the last ones: see TrainConfig::patience
  std::string ended_early;         // why training ended before its last epoch: see TrainConfig; else empty
  bool reached_target = false;     // which ended training, maybe in its last epoch
  bool interrupted = false;        // true if TrainHooks::is_interrupted() stopped the run
};

// What train() calls; any may be empty.
struct TrainHooks {
  // Once, before the first step, with its first micro-batch as the model sees it, and with everything live that a step
  // needs: to measure what a step costs (measure_stages()). May change the gradients and how the model is run.
  std::function<void(const Tensor& images, const Tensor& labels)> before_first_step;
  // Between the last backward of a step and its update: gradients in the arena are still multiplied by the scale. May
  // read from the device. REQUIRES: no graph
  std::function<void(const GradScaler&)> on_gradients;
  // Before each backward, with the micro-batch's loss. May read from the device. REQUIRES: no graph
  std::function<void(const Tensor& loss)> on_loss;
  std::function<void(const Progress&)> on_step;                     // for each step, after it or after its graph
  std::function<void(int64_t epoch, const EpochResult&)> on_epoch;  // after an epoch's test
  std::function<void(const Validation&)> on_validation;             // after each validation
  // Called after each step, or group of steps in a graph; true ends training there, without an evaluation.
  std::function<bool()> should_stop;
  // Asked often: between micro-batches, and between the batches of an evaluation. If true, training ends at once; the
  // unfinished step or evaluation is dropped.
  std::function<bool()> is_interrupted;

  // A state to continue from, with the same bits as a run that was never stopped. The training source must deliver next
  // what next_sample() says (models/files/training_state.h), and model, sources and config must be those of the run
  // that the state is from; `epochs` may be larger if the schedule is constant.
  const TrainingState* resume_from = nullptr;
  // Called after each step: whether the state after it, and after the evaluations due then, is to be handed to
  // on_state.
  std::function<bool(const Progress&)> wants_state;
  // Also called when training is interrupted and when it has ended, but not by should_stop. Never called with a tensor
  // that is not finite: that throws first.
  std::function<void(TrainingState&&)> on_state;
};

// Thrown by evaluate() and the training step when they are interrupted.
struct Interrupted {};

// Mean loss and accuracy over one pass of the source, in an Inference scope. Throws Interrupted.
// exchange: among ranks, each with a source of its own batches (LoaderOptions::ranks); the result is that of all.
Evaluation evaluate(Module& model, BatchSource& source, Device device = Device::cpu,
                    const std::function<bool()>& is_interrupted = {}, Exchange* exchange = nullptr);

// Trains the model, whose parameters are in the arena, and tests it after every test_every-th epoch and the last. The
// losses stay on the device and are read ten times a second and at the end of an epoch. Throws Error: numeric, if a
// loss has become inf or NaN or 20 steps in a row had to be skipped (names the step, the first tensor that is not
// finite, and its layer; the weights are then useless); checkpoint, if resume_from does not fit; usage, for settings
// that make no sense, for another model's arena, and for a test that reads from the training's own source.
TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks = {});

}  // namespace hs
