// What train() can be told, models/training/train.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/ambient.h"
#include "engine/batch.h"
#include "engine/device.h"
#include "kernels/augment/augment.h"
#include "kernels/optimizer/optimizer.h"
#include "models/training/gradient_sum.h"

namespace hs {

// The result of evaluate().
struct Evaluation {
  double accuracy = 0;  // 0 to 1, of predictions: one per image, or per token of a text; NaN if Module::loss() is own
  double loss = 0;      // mean over the predictions
};

// What a run is for: it ends when an evaluation reaches this.
struct Target {
  bool is_loss = false;  // otherwise an accuracy
  double value = 0;      // the least accuracy, 0 to 1, or the greatest loss
  // False for what was not evaluated.
  bool is_reached_by(const Evaluation& e) const { return is_loss ? e.loss <= value : e.accuracy >= value; }
};

// How often something happens in training. At most one is not 0; all 0: never.
struct Cadence {
  int64_t steps = 0;   // optimizer steps of the whole run
  int64_t epochs = 0;  // at their ends
  double seconds = 0;  // between two
};
// "500st", "2ep", "10m" (minutes) or "30s". Throws Error (usage) for anything else.
Cadence parse_cadence(std::string_view text);
// Whether it is due, by steps or epochs, after `step` steps of epoch `epoch`, which counts from 1.
bool is_due(const Cadence& cadence, int64_t epoch, int64_t step, int64_t steps_per_epoch);

// The settings of train().
struct TrainConfig {
  int64_t epochs = 5;                    // passes over the training set
  OptimizerConfig optimizer;             // its kind and settings
  uint64_t seed = 1;                     // for dropout and augmentation; the model and the loader have their own
  Device device = Device::cpu;           // where the model's parameters are
  Precision precision = Precision::f32;  // see Autocast
  GradScalerConfig scaler;               // used with f16 only
  int64_t accumulate = 1;                // micro-batches per optimizer step, on all ranks
  SumConfig sum;                         // how their gradients are summed, and whether other processes take part
  float label_smoothing = 0;             // in training alone; see softmax_cross_entropy
  AugmentOptions augment;                // of training images; the source must then set Batch::samples and epoch
  bool fuse = true;                      // see Ambient
  bool graph = false;                    // record the step once and replay it (engine/captured_work.h); CUDA only
  // Steps of a graph. With more than one it takes the batches from the resident set (engine/batch.h) itself, so that
  // nothing happens between its steps; what is left of an epoch runs step by step. Needs graph and accumulate = 1.
  int64_t graph_steps = 1;

  BatchSource* validation = nullptr;       // samples held out of the training set; null: none
  Cadence validate_every = {.epochs = 1};  // by steps or epochs
  // Ends training after this many validations without a new best accuracy, and keeps the weights of the best one, also
  // if all epochs were trained; 0: no limit, and the last weights are kept.
  int64_t patience = 0;
  double max_seconds = 0;  // ends training after this long, evaluations excluded; 0: no limit
  // Ends training when the newest validation reaches it or, if there are none, the newest test. Those weights are kept.
  std::optional<Target> target;
  int64_t test_every = 1;  // epochs from one test to the next; the last epoch's end is always tested
};

}  // namespace hs
