#include "bench/measure/experiment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/cli/environment.h"
#include "bench/cli/forced_kernels.h"
#include "engine/check.h"
#include "models/files/model_file.h"

namespace hs::bench::measure {

ModelSizes sizes_for(const SampleInfo& set, int64_t blocks) {
  return {set.rows,    set.columns, set.channels,
          set.classes, blocks,      set.is_text() ? InputKind::tokens : InputKind::images};
}

std::string sha256(const std::vector<NamedParameter>& parameters) {
  std::string bytes;
  for (const NamedParameter& parameter : parameters) {
    const std::vector<float> values = parameter.value->to_vector<float>();
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return cli::sha256_of(bytes);
}

namespace {

LoaderOptions loader_options(const Experiment& experiment, bool shuffle, uint64_t seed) {
  LoaderOptions options = experiment.loading;
  options.batch = experiment.batch;
  options.shuffle = shuffle;
  options.seed = seed;
  options.device = experiment.device;
  if (const Exchange* exchange = experiment.sum.exchange) {
    options.ranks = exchange->size();
    options.rank = exchange->rank();
    options.group = shuffle ? experiment.accumulate : 0;  // an evaluation is divided as a whole
  }
  return options;
}

// Of their samples and labels.
int64_t bytes_of(const std::vector<const SampleSource*>& sets) {
  int64_t bytes = 0;
  for (const SampleSource* set : sets) {
    bytes += set->info().count * (set->info().image_bytes() + int64_t{sizeof(int32_t)});
  }
  return bytes;
}

}  // namespace

Split split_of(const Experiment& experiment, const SampleInfo& set) {
  if (experiment.held_out <= 0) return {set.count, 0};
  const auto held = static_cast<int64_t>(std::llround(experiment.held_out * static_cast<double>(set.count)));
  if (held >= 1 && set.count - held - set.overlap >= 1) return {set.count - held - set.overlap, held};
  fail(ExitCode::usage, "--validation {}: is {} of {} training samples, expected 1 to {}", experiment.held_out, held,
       set.count, set.count - 1 - set.overlap);
}

CacheMode settled_cache(std::optional<CacheMode> wanted, const LoaderOptions& loading, Device device,
                        const std::vector<const SampleSource*>& sets) {
  if (wanted) return *wanted;
  if (device == Device::cpu || loading.normalize_on_host || loading.ranks > 1) return CacheMode::ram;
  const auto bytes = static_cast<size_t>(bytes_of(sets));
  return bytes <= runtime(device).free_bytes() / 2 ? CacheMode::device : CacheMode::ram;
}

int64_t cached_bytes(const Experiment& experiment, const SampleSource& train, const SampleSource& test) {
  return experiment.loading.cache == CacheMode::none ? 0 : bytes_of({&train, &test});
}

void choose_residency(const Residency& wanted, bool stops_between, const SampleSource& train, const SampleSource& test,
                      Experiment& experiment) {
  constexpr int64_t usual = 16;
  LoaderOptions& loading = experiment.loading;
  loading.cache = settled_cache(wanted.cache, loader_options(experiment, true, 0), experiment.device, {&train, &test});
  experiment.graph_steps = wanted.graph_steps;
  const bool on_device = loading.cache == CacheMode::device;
  if (wanted.graph_steps > 1 && !on_device) {
    fail(ExitCode::usage,
         "--graph-steps {}: needs --cache device, which is automatic only for one process, with --preprocess device, "
         "and if the samples fit in half of the {} bytes that are free on the device; give that, or leave this out",
         wanted.graph_steps, runtime(experiment.device).free_bytes());
  }
  if (wanted.graph_steps != automatic_graph_steps) return;
  const int64_t samples = split_of(experiment, train.info()).trained;
  const bool is_stopped = stops_between || experiment.max_minutes > 0 || experiment.validates_in_epochs();
  const bool is_possible = experiment.graph && on_device && experiment.accumulate == 1 && !experiment.sum.exchange &&
                           !experiment.sum.tree && samples / experiment.batch >= usual;
  experiment.graph_steps = is_possible && !is_stopped ? usual : 1;
}

std::function<void(const Tensor& images, const Tensor& labels)> checkpointer(const Experiment& experiment,
                                                                             StagedModel& model,
                                                                             std::optional<CheckpointPlan>& plan) {
  const CheckpointChoice choice = experiment.checkpoint;
  const bool measures = experiment.measures_stages || choice.needs_costs();
  return [choice, measures, &model, &plan](const Tensor& images, const Tensor& labels) {
    if (!measures) return model.set_segments(segments_of(choice, model.stages().size()));
    StepCosts costs = measure_stages(model, images, labels);
    if (choice.kind == CheckpointChoice::Kind::smallest) {
      for (int64_t i = 1; i < choice.value; ++i) costs.take_shorter_times(measure_stages(model, images, labels));
    }
    const std::vector<Segment> segments = segments_of(choice, costs);
    const PlanFigures predicted = predict(costs, segments);
    model.set_segments(segments);
    plan = {std::move(costs), segments, predicted};
    reset_peak(images.device());
  };
}

RunRecord run_experiment(const Experiment& experiment, const SampleSource& train_set, const SampleSource& test_set,
                         uint64_t seed, const TrainHooks& hooks,
                         const std::function<void(StagedModel& model)>& when_trained) {
  RunRecord record;
  record.seed = seed;
  std::optional<cli::ForcedKernels> forced(experiment.kernels);
  reset_peak(experiment.device);
  const SampleInfo& info = train_set.info();
  const auto model = make_model(experiment.model, seed, sizes_for(info, experiment.blocks));
  if (experiment.new_head) {
    load_body(*model, SafetensorsFile(experiment.start));
  } else if (!experiment.start.empty()) {
    load_parameters(*model, SafetensorsFile(experiment.start));
  }
  if (experiment.freezes_body) model->freeze(Freeze::body);
  if (experiment.lora.rank > 0) {
    LayerKeys keys(seed);
    model->adapt(experiment.lora, keys, experiment.new_head ? Freeze::body : Freeze::all);
  }
  record.trained_parameters = model->parameter_count();
  ParameterArena arena(*model, experiment.device);
  const auto [trained, held_out] = split_of(experiment, info);
  // Windows of a text have symbols in common with their neighbours, which only an end of the text has few of.
  const SampleOrder order = info.is_text() ? SampleOrder::as_it_is : SampleOrder::mixed;
  const PartOfSamples kept(train_set, 0, trained, order), held(train_set, info.count - held_out, held_out, order);
  const SampleSource& trained_on = held_out > 0 ? kept : train_set;
  SearchingLoader training(trained_on, loader_options(experiment, true, seed), experiment.searches_loading);
  Loader test(test_set, loader_options(experiment, false, seed));
  std::optional<Loader> validation;
  const SampleSource& judged_on = held_out > 0 ? static_cast<const SampleSource&>(held) : test_set;
  if (held_out > 0 || experiment.test_every_steps > 0) {
    validation.emplace(judged_on, loader_options(experiment, false, seed));
  }
  if (hooks.resume_from) {
    const NextSample next = next_sample(*hooks.resume_from, training.samples());
    training.seek(next.epoch, next.position);
  }

  TrainHooks recording = hooks;
  recording.before_first_step = checkpointer(experiment, *model, record.plan);
  recording.on_epoch = [&](int64_t epoch, const EpochResult& result) {
    record.resident_bytes_by_epoch.push_back(cli::resident_bytes());
    if (hooks.on_epoch) hooks.on_epoch(epoch, result);
  };
  if (experiment.noise_scale) {
    record.noise.emplace(experiment.batch, experiment.batch * experiment.accumulate);
    watch_noise(*record.noise, arena, experiment.accumulate, trained, recording);
  }
  TrainConfig config = experiment;
  config.seed = seed;
  config.max_seconds = 60 * experiment.max_minutes;
  if (experiment.test_every_steps > 0) config.validate_every = {.steps = experiment.test_every_steps};
  if (validation) config.validation = &*validation;
  record.result = train(*model, arena, training, test, config, recording);
  record.loading = training.search();
  record.weights_sha256 = sha256(arena.parameters());
  record.peak_bytes = memory_stats(experiment.device).peak;
  forced.reset();  // what is made of the model is in f32, for which a variant of the training's type may have no kernel
  if (when_trained) when_trained(*model);
  return record;
}

void Course::on_step(const Progress& p) {
  TrainResult& result = run_.result;
  if (!std::exchange(is_within_epoch_, true)) {
    epoch_began_ = result.seconds;
    result.epochs.push_back({p.loss, 0, {std::nan(""), std::nan("")}});
  }
  EpochResult& epoch = result.epochs.back();
  epoch.training_loss = p.loss;
  epoch.seconds = p.seconds - epoch_began_;
  result.seconds = p.seconds;
  result.parts = p.parts;
  result.steps = (p.epoch - 1) * p.steps_per_epoch + p.step;
  result.samples = (p.epoch - 1) * samples_ + std::min(p.step * step_samples_, samples_);

  std::vector<CoursePoint>& points = run_.course;
  if (p.seconds < (points.empty() ? 0 : points.back().seconds) + interval_) return;
  points.push_back({p.seconds, p.loss, p.parts});
  if (points.size() < 60) return;
  for (size_t i = 0; i < points.size() / 2; ++i) points[i] = points[2 * i + 1];
  points.resize(points.size() / 2);
  interval_ *= 2;
}

void Course::on_epoch(const EpochResult& result) {
  if (std::exchange(is_within_epoch_, false)) run_.result.epochs.pop_back();
  run_.result.epochs.push_back(result);
}

void warm_up(const Experiment& experiment, const SampleSource& train_set, const SampleSource& test_set,
             const TrainHooks& hooks) {
  Experiment short_one = experiment;
  short_one.epochs = 1;
  short_one.held_out = short_one.max_minutes = 0;
  short_one.patience = short_one.test_every_steps = 0;
  short_one.target.reset();
  short_one.noise_scale = short_one.searches_loading = false;
  short_one.sum.exchange = nullptr;
  // Leaves it to the run itself to report an infeasible budget: it needs a few bytes more than this.
  if (short_one.checkpoint.needs_costs()) short_one.checkpoint = {CheckpointChoice::Kind::automatic, 0};
  short_one.optimizer.learning_rate = 1e-6f;  // whatever the user chose, these steps do not diverge
  const auto tail = [&](int64_t samples) { return samples % experiment.batch; };
  const int64_t trained = split_of(experiment, train_set.info()).trained;
  const int64_t steps = 2 * experiment.batch * experiment.accumulate * experiment.graph_steps;
  run_experiment(short_one, load_samples(train_set, steps + tail(trained)),
                 load_samples(test_set, experiment.batch + tail(test_set.info().count)), 0, hooks);
}

KernelUse::KernelUse() : start_(count()) {}

KernelUse::Counts KernelUse::count() {
  Counts counts;
  for (const KernelSlot* slot : kernel_slots()) {
    // A variant of one name may exist on several devices; a run uses one device.
    for (const VariantBase* v = slot->variants(); v; v = v->next) counts[slot->name()][v->name] += v->calls;
  }
  return counts;
}

std::map<std::string, std::string> KernelUse::since() const {
  std::map<std::string, std::string> used;
  for (const auto& [slot, variants] : count()) {
    std::vector<std::pair<uint64_t, std::string>> called;
    for (const auto& [variant, calls] : variants) {
      const uint64_t more = calls - start_.at(slot).at(variant);
      if (more > 0) called.emplace_back(more, variant);
    }
    std::ranges::sort(called, std::greater());
    for (const auto& [calls, variant] : called) used[slot] += (used[slot].empty() ? "" : "+") + variant;
  }
  return used;
}

}  // namespace hs::bench::measure
