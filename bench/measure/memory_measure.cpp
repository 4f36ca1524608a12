#include "bench/measure/memory_measure.h"

#include <algorithm>

#include "bench/cli/clock.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/statistics.h"
#include "bench/measure/one_step.h"

namespace hs::bench::measure {
namespace {

// `count` samples, cycling through those of `samples`.
MemorySource repeated(const SampleSource& samples, int64_t count) {
  const SampleInfo& info = samples.info();
  std::vector<uint8_t> images(static_cast<size_t>(count * info.image_bytes()));
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < count; ++n) {
    samples.read(n % info.count, images.data() + n * info.image_bytes());
    labels.push_back(samples.label(n % info.count));
  }
  return {info, std::move(images), std::move(labels)};
}

// Each epoch is one step, so its hooks mark where a step begins and ends. The evaluation in between has one sample.
void run_steps(const Experiment& what, const SampleSource& samples, int64_t steps, const TrainHooks& hooks,
               StagedModel& model, ParameterArena& arena) {
  const MemorySource training_set = repeated(samples, what.batch * what.accumulate), test_set = repeated(samples, 1);
  Loader training(training_set, {.batch = what.batch, .shuffle = false, .seed = what.seed});
  Loader test(test_set, {.batch = 1, .shuffle = false, .seed = what.seed});
  TrainConfig config = what;
  config.epochs = steps;
  train(model, arena, training, test, config, hooks);
}

// The peak of one step with these segments.
int64_t peak_of_step(const Experiment& what, const SampleSource& samples, const std::vector<Segment>& segments) {
  const auto model = make_model(what.model, what.seed, sizes_for(samples.info(), what.blocks));
  ParameterArena arena(*model, what.device);
  model->set_segments(segments);
  TrainHooks hooks;
  int64_t peak = 0;
  hooks.before_first_step = [&](const Tensor&, const Tensor&) { reset_peak(what.device); };
  hooks.on_step = [&](const Progress&) { peak = static_cast<int64_t>(memory_stats(what.device).peak); };
  run_steps(what, samples, 1, hooks, *model, arena);
  return peak;
}

}  // namespace

MeasuredStep measure_step(const Experiment& what, const SampleSource& samples, const CheckpointChoice& choice,
                          int64_t steps) {
  const auto model = make_model(what.model, what.seed, sizes_for(samples.info(), what.blocks));
  ParameterArena arena(*model, what.device);
  MeasuredStep measured;
  std::vector<double> times;
  std::optional<MemoryRecorder> recorder;
  Clock::time_point start;
  TrainHooks hooks;
  hooks.before_first_step = [&](const Tensor& images, const Tensor& labels) {
    measured.plan = plan_step(choice, *model, images, labels);
  };
  hooks.on_epoch = [&](int64_t epoch, const EpochResult&) {
    cli::check_signals("while measuring; no results were written");
    if (epoch == 1) recorder.emplace(what.device);
    runtime(what.device).synchronize();
    start = Clock::now();
  };
  hooks.on_step = [&](const Progress& progress) {
    runtime(what.device).synchronize();
    if (progress.epoch > 1) times.push_back(seconds_since(start) * 1e3);
    if (progress.epoch == 2) {
      measured.live_at_start = recorder->live_at_start();
      measured.events = recorder->events();
      recorder.reset();
    }
    const MemoryStats stats = memory_stats(what.device);
    measured.peak = static_cast<int64_t>(stats.peak);
    measured.at_peak = stats.at_peak;
    measured.peak_by_purpose = stats.peak_by_purpose;
    measured.after = stats.live_by_purpose;
  };
  run_steps(what, samples, 1 + steps, hooks, *model, arena);
  measured.milliseconds = median(times);
  measured.weights_sha256 = sha256(arena.parameters());
  return measured;
}

int64_t largest_batch(const Experiment& what, const MeasuredStep& known, const std::vector<Segment>& segments,
                      const SampleSource& samples, int64_t budget, int64_t most) {
  // A straight line: memory independent of the batch, plus a constant per sample that fits the known peak.
  int64_t constant = 0;
  for (const MemoryPurpose purpose : {MemoryPurpose::parameters, MemoryPurpose::gradients, MemoryPurpose::optimizer}) {
    constant += static_cast<int64_t>(known.after[static_cast<size_t>(purpose)]);
  }
  double per_sample = static_cast<double>(known.peak - constant) / static_cast<double>(what.batch);
  Experiment larger = what;
  int64_t fits = known.peak <= budget ? what.batch : 0, too_large = most + 1;
  for (int tries = 0; tries < 4 && fits + 1 < too_large; ++tries) {
    cli::check_signals("while measuring; no results were written");
    const auto on_line = static_cast<int64_t>(static_cast<double>(budget - constant) / per_sample);
    larger.batch = std::clamp(on_line, fits + 1, too_large - 1);
    if (budget <= constant || on_line <= fits) break;
    const int64_t peak = peak_of_step(larger, samples, segments);
    (peak <= budget ? fits : too_large) = larger.batch;
    per_sample = static_cast<double>(peak - constant) / static_cast<double>(larger.batch);
  }
  return fits;
}

AccumulationCost measure_accumulation(const Experiment& what, const SampleSource& samples, int64_t micro_batches,
                                      int64_t repeats) {
  OneStep step(what, samples.info());
  const auto pass = [&](int64_t count, int64_t batch) {
    const MemorySource set = repeated(samples, batch);
    Loader loader(set, {.batch = batch, .shuffle = false, .device = what.device});
    const std::vector<Batch> inputs(static_cast<size_t>(count), loader.next());
    return 1e3 * seconds_on(what.device, [&] { step.run(inputs); });
  };
  std::vector<double> accumulated, one_batch;
  for (int64_t r = 0; r <= repeats; ++r) {
    cli::check_signals("while measuring; no results were written");
    const double parts = pass(micro_batches, what.batch), whole = pass(1, micro_batches * what.batch);
    if (r == 0) continue;  // warms up memory and threads
    accumulated.push_back(parts);
    one_batch.push_back(whole);
  }
  return {micro_batches, what.batch, median(accumulated), median(one_batch)};
}

}  // namespace hs::bench::measure
