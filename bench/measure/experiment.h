// One measured training run, which `train` repeats and other commands vary.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/loader_search.h"
#include "bench/measure/noise_scale.h"
#include "data/io/memory_source.h"
#include "data/loader/loader.h"
#include "engine/kernel.h"
#include "models/lora.h"
#include "models/models.h"
#include "models/training/checkpoint_plan.h"
#include "models/training/train.h"

namespace hs::bench::measure {

// A training with its model and its data; the defaults are the headline experiment. run_experiment() sets `seed`,
// `validation` and `max_seconds`.
struct Experiment : TrainConfig {
  Experiment() { optimizer.schedule.every = 1000; }

  std::string model = "mnist_cnn";
  int64_t batch = 64;
  int64_t blocks = 0;                // see ModelSizes
  std::vector<std::string> kernels;  // SLOT=VARIANT, forced while it runs
  // How batches are loaded; batch, order, seed and device come from the run.
  LoaderOptions loading = {.prefetch = 2, .workers = automatic_workers, .cache = CacheMode::ram};
  bool searches_loading = false;  // for workers and prefetch, see LoaderSearch
  std::string start;              // a model's file, whose weights a run begins with; empty: the seed determines them
  bool new_head = false;          // of `start` the body alone
  bool freezes_body = false;      // trains the head alone
  LoraOptions lora;
  CheckpointChoice checkpoint;
  double held_out = 0;           // the fraction of the training set that is held out to validate on
  double max_minutes = 0;        // 0: no limit
  bool noise_scale = false;      // see NoiseScale
  bool measures_stages = false;  // for RunRecord::plan, whatever is checkpointed
  // > 0: also tests each time this many steps are done, as if the test samples were held out to validate on.
  int64_t test_every_steps = 0;
  bool validates_in_epochs() const { return test_every_steps > 0 || (held_out > 0 && validate_every.steps > 0); }
};

inline constexpr int64_t automatic_graph_steps = 0;

// --cache and --graph-steps as they are given; automatic without.
struct Residency {
  std::optional<CacheMode> cache;
  int64_t graph_steps = automatic_graph_steps;
};
// The cache that is meant. Automatic is `device` on cuda, if the samples of `sets` take at most half of the memory that
// is free there, which leaves the rest for training; and `ram` elsewhere, and for what the device cache does not do:
// pixels that the host makes numbers of, and several processes, which may share a device.
CacheMode settled_cache(std::optional<CacheMode> wanted, const LoaderOptions& loading, Device device,
                        const std::vector<const SampleSource*>& sets);
// Bytes of the samples that the experiment's loaders keep, beside the allocator's: 0 without a cache.
int64_t cached_bytes(const Experiment& experiment, const SampleSource& train, const SampleSource& test);
// Sets the experiment's cache and graph_steps. Automatic are 16 steps where that is possible and changes nothing but
// the time: in a graph that takes its batches from the device itself, without accumulation and the sums of a tree or of
// ranks, where an epoch has 16 whole batches, and if nothing is to happen between two steps: `stops_between`, a
// validation, a limit on the time. Otherwise 1. Throws Error (usage) if more than one is wanted and the set is not on
// the device.
void choose_residency(const Residency& wanted, bool stops_between, const SampleSource& train, const SampleSource& test,
                      Experiment& experiment);

// The training samples that are trained on, and those held out to validate on: mixed ones of images; of a text its end,
// and between the two no window that has symbols in common with both. Throws Error (usage) if there is none of either.
struct Split {
  int64_t trained, held_out;
};
Split split_of(const Experiment& experiment, const SampleInfo& set);

// Of a model for this data set.
ModelSizes sizes_for(const SampleInfo& set, int64_t blocks);

// How a run was checkpointed, if a budget was requested, or with Experiment::measures_stages.
struct CheckpointPlan {
  StepCosts costs;
  std::vector<Segment> segments;
  PlanFigures predicted;
};

// Where a run's time had gone, and its loss, when it had trained for so long.
struct CoursePoint {
  double seconds, loss;
  StepSeconds parts;
};

struct RunRecord {
  uint64_t seed = 0;
  TrainResult result;
  int64_t trained_parameters = 0;
  std::string weights_sha256;  // of the values of all parameters that are not frozen, in order, without gaps
  size_t peak_bytes = 0;       // of the allocator, from the model's construction, or the plan, to the run's end
  std::optional<CheckpointPlan> plan;
  std::optional<NoiseScale> noise;
  std::vector<CoursePoint> course;      // if the caller takes note of it: see Course
  std::optional<LoaderSearch> loading;  // what it found
  std::vector<int64_t> resident_bytes_by_epoch;
};

// What is known of a run while it goes on, and where its time went over time.
class Course {
 public:
  // Of a run with this seed; samples: of an epoch, step_samples: of a step.
  Course(uint64_t seed, int64_t samples, int64_t step_samples) : samples_(samples), step_samples_(step_samples) {
    run_.seed = seed;
  }
  void on_step(const Progress& progress);
  void on_epoch(const EpochResult& result);  // after its last step, or resumed there
  // The run as if it had ended after the last step: an epoch that goes on is its last one, not tested.
  const RunRecord& so_far() const { return run_; }

 private:
  RunRecord run_;
  const int64_t samples_, step_samples_;
  bool is_within_epoch_ = false;
  double epoch_began_ = 0;
  double interval_ = 0.1;  // between points, in seconds: losses are read as often
};

// The seed determines the model, the loaders and dropout. Evaluation uses the training batch size, so that the memory
// peak is that of training. when_trained gets the trained model, which ends with the run. Throws Error as train().
RunRecord run_experiment(const Experiment& experiment, const SampleSource& train, const SampleSource& test,
                         uint64_t seed, const TrainHooks& hooks,
                         const std::function<void(StagedModel& model)>& when_trained = {});

// The SHA-256 of the values of all these parameters, in order, without gaps.
std::string sha256(const std::vector<NamedParameter>& parameters);

// Returns a TrainHooks::before_first_step that sets the model's segments; where there is to be a plan, it measures a
// step, chooses them by its costs, and resets the device's peak. The model and `plan` must outlive training.
std::function<void(const Tensor& images, const Tensor& labels)> checkpointer(const Experiment& experiment,
                                                                             StagedModel& model,
                                                                             std::optional<CheckpointPlan>& plan);

// Runs two steps and an evaluation, and the smaller batches at the ends of both sets, on a throwaway model, so that
// memory, threads, code and the kernels' choices are there and the first epoch is as fast as the others.
void warm_up(const Experiment& experiment, const SampleSource& train, const SampleSource& test,
             const TrainHooks& hooks);

// Which variants ran, from the slots' call counters.
class KernelUse {
 public:
  KernelUse();  // starts counting

  // Slot -> the variant called since construction; "a+b" if different shapes ran different ones, most calls first.
  std::map<std::string, std::string> since() const;

 private:
  using Counts = std::map<std::string, std::map<std::string, uint64_t>>;
  static Counts count();
  Counts start_;
};

}  // namespace hs::bench::measure
