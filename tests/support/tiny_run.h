// A training run of a few milliseconds that uses every technique, and what of it must be the same bits after a resume.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "data/loader/loader.h"
#include "data/synthetic.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "models/layers.h"
#include "models/training/train.h"

namespace hs::test {

// A convolution, batch norm, dropout and a linear layer.
class TinyModel : public StagedModel {
 public:
  TinyModel(uint64_t seed, double dropout)
      : keys_(seed),
        conv_(1, 3, {}, keys_),
        norm_(3, {.relu = true}),
        dropout_(dropout, keys_),
        linear_(3 * 13 * 13, 10, keys_) {
    add_child("conv", conv_);
    add_child("norm", norm_);
    add_child("linear", linear_);
    add_stage("conv", [this](const Tensor& x) { return max_pool2d(norm_.forward(conv_.forward(x)), 2, 2); });
    add_stage("dropout", [this](const Tensor& x) { return dropout_.forward(x.reshape({x.shape()[0], 3 * 13 * 13})); });
    add_stage("linear", [this](const Tensor& x) { return linear_.forward(x); });
  }

 private:
  LayerKeys keys_;
  Conv2d conv_;
  BatchNorm2d norm_;
  Dropout dropout_;
  Linear linear_;
};

// Notes the samples that training has asked for.
class NotingLoader : public BatchSource {
 public:
  NotingLoader(const SampleSource& source, const LoaderOptions& options) : loader(source, options) {}

  Batch next() override {
    Batch batch = loader.next();
    for (const int32_t sample : batch.samples.to_vector<int32_t>()) seen.push_back(sample);
    return batch;
  }
  int64_t samples() const override { return loader.samples(); }
  int64_t batches_per_epoch() const override { return loader.batches_per_epoch(); }
  int64_t batch() const override { return loader.batch(); }
  PixelScale pixel_scale() const override { return loader.pixel_scale(); }

  Loader loader;
  std::vector<int32_t> seen;
};

struct TinyRun {
  // Settings, each of which may not matter to the bits, or must be that of the resumed run.
  int64_t workers = 0;
  bool checkpoint = false;
  bool shuffle = true;
  bool saves = true;
  double dropout = 0.3;
  uint64_t seed = 1;
  TrainConfig config;

  TinyRun() {
    config.epochs = 3;
    config.optimizer = {.name = "adam", .learning_rate = 1e-2f};
    config.optimizer.schedule = {.kind = ScheduleKind::cosine, .warmup_steps = 3};
    config.augment = {.shift = 2};
    config.scaler.initial = 16777216;  // so that the first steps overflow
    config.scaler.growth_interval = 3;
    config.validate_every = {.steps = 2};
  }

  struct Outcome {
    TrainResult result;
    std::vector<TrainingState> states;  // those that were wanted; the last one is the end, or the interruption
    std::vector<int32_t> seen;          // samples, in the order in which they were asked for
  };

  // is_interrupted is asked with the number of times that it was asked before.
  Outcome train(const TrainingState* from = nullptr, bool wants_states = false,
                const std::function<bool(int64_t)>& is_interrupted = {}) const {
    static const MemorySource train_set = synthetic_digits(synthetic_train_seed, 22);
    static const MemorySource other_set = synthetic_digits(synthetic_test_seed, 7);
    TinyModel model(seed, dropout);
    if (checkpoint) model.set_segments({{0, 2}});
    ParameterArena arena(model, config.device);
    const LoaderOptions options = {.batch = 4,
                                   .shuffle = shuffle,
                                   .seed = seed,
                                   .device = config.device,
                                   .prefetch = workers > 0 ? 2 : 0,
                                   .workers = workers};
    LoaderOptions in_order = options;
    in_order.shuffle = false;
    NotingLoader training(train_set, options);
    Loader test(other_set, in_order), validation(other_set, in_order);
    TrainConfig with_sources = config;
    with_sources.seed = seed;
    with_sources.validation = &validation;
    Outcome outcome;
    int64_t asked = 0;
    TrainHooks hooks;
    hooks.resume_from = from;
    hooks.wants_state = [&](const Progress&) { return wants_states; };
    if (saves) hooks.on_state = [&](TrainingState&& state) { outcome.states.push_back(std::move(state)); };
    if (is_interrupted) hooks.is_interrupted = [&] { return is_interrupted(asked++); };
    if (from) {
      const NextSample next = next_sample(*from, training.samples());
      training.loader.seek(next.epoch, next.position);
    }
    outcome.result = hs::train(model, arena, training, test, with_sources, hooks);
    outcome.seen = std::move(training.seen);
    return outcome;
  }
};

// Without the times, which no two runs share.
inline TrainingState without_times(const TrainingState& state) {
  TrainingState rest = state;
  rest.tensors.erase("progress.seconds");
  rest.tensors.erase("progress.exchange");
  const auto clear = [&](const char* name, size_t all, const std::vector<size_t>& columns) {
    Rows rows = state.rows(name, all);
    for (auto& row : rows) {
      for (const size_t column : columns) row[column] = 0;
    }
    rest.put_rows(name, rows, all);
  };
  clear("progress.epochs", 5, {1, 4});
  clear("progress.validations", 6, {4, 5});
  return rest;
}

// The first difference between two states, times apart; empty if every other bit is the same.
inline std::string difference(const TrainingState& a, const TrainingState& b) {
  const TrainingState x = without_times(a), y = without_times(b);
  if (x.values != y.values) return "values";
  for (const auto* each : {&x, &y}) {
    for (const auto& [name, tensor] : each->tensors) {
      if (!x.tensors.contains(name) || !y.tensors.contains(name)) return name;
    }
  }
  for (const auto& [name, tensor] : x.tensors) {
    const Tensor& other = y.tensors.at(name);
    if (tensor.shape() != other.shape() || tensor.dtype() != other.dtype()) return name;
    if (tensor.size() > 0 && std::memcmp(tensor.raw_data(), other.raw_data(), tensor.bytes()) != 0) return name;
  }
  return "";
}

// The samples that a run has seen when it is in this state.
inline size_t samples_seen(const TrainingState& state) { return static_cast<size_t>(state.number("samples")); }

// Resumes from a state of a run and compares the end with that of the straight run: every tensor, every count, and the
// samples: none may come twice or be left out.
inline void check_resumes(const TinyRun& run, const TrainingState& from, const TinyRun::Outcome& straight) {
  const TinyRun::Outcome resumed = run.train(&from);
  CHECK(difference(resumed.states.back(), straight.states.back()) == "");
  CHECK(resumed.result.epochs.size() == straight.result.epochs.size());
  CHECK(resumed.result.epochs.back().test.loss == straight.result.epochs.back().test.loss);
  CHECK(resumed.result.steps == straight.result.steps);
  CHECK(resumed.result.skipped_steps == straight.result.skipped_steps);
  const std::vector<int32_t> rest(straight.seen.begin() + static_cast<std::ptrdiff_t>(samples_seen(from)),
                                  straight.seen.end());
  CHECK(resumed.seen == rest);
}

// Interrupts a run wherever it can be, between micro-batches, in evaluations and at borders of epochs, and resumes it.
// Returns the number of interruptions.
inline int64_t check_every_interruption(const TinyRun& run, const TinyRun::Outcome& straight, int64_t stride = 1) {
  int64_t interruptions = 0;
  for (int64_t at = 0;; at += stride) {
    CAPTURE(at);
    const TinyRun::Outcome cut = run.train(nullptr, false, [at](int64_t asked) { return asked >= at; });
    if (!cut.result.interrupted) return interruptions;
    ++interruptions;
    check_resumes(run, cut.states.back(), straight);
  }
}

}  // namespace hs::test
