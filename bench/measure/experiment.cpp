#include "bench/measure/experiment.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>

#include "bench/cli/environment.h"
#include "bench/cli/forced_kernels.h"
#include "data/loader/loader.h"
#include "engine/check.h"
#include "models/measure_stages.h"

namespace hs::bench::measure {

std::string sha256(const ParameterArena& arena) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool fine = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const NamedParameter& parameter : arena.parameters()) {
    const std::vector<float> values = parameter.value->to_vector<float>();
    fine = fine && EVP_DigestUpdate(context.get(), values.data(), values.size() * sizeof(float)) == 1;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (!fine || EVP_DigestFinal_ex(context.get(), digest, &size) != 1) {
    fail(ExitCode::internal, "OpenSSL failed to compute a SHA-256");
  }
  return fmt::format("{:02x}", fmt::join(digest, digest + size, ""));
}

namespace {

TrainConfig train_config(const Experiment& experiment, uint64_t seed) {
  TrainConfig config;
  config.epochs = experiment.epochs;
  config.optimizer.name = experiment.optimizer;
  config.optimizer.learning_rate = static_cast<float>(experiment.learning_rate);
  config.optimizer.momentum = static_cast<float>(experiment.momentum);
  config.optimizer.weight_decay = static_cast<float>(experiment.weight_decay);
  config.seed = seed;
  config.device = experiment.device;
  config.graph = experiment.graph;
  config.graph_steps = experiment.graph_steps;
  config.fuse = experiment.fuse;
  config.precision = experiment.precision;
  config.accumulate = experiment.accumulate;
  config.augment = experiment.augment;
  config.optimizer.clip = static_cast<float>(experiment.clip);
  config.optimizer.schedule.kind = parse_schedule(experiment.schedule);
  config.optimizer.schedule.warmup_steps = static_cast<int32_t>(experiment.warmup);
  return config;
}

LoaderOptions loader_options(const Experiment& experiment, bool shuffle, uint64_t seed) {
  LoaderOptions options = experiment.loading;
  options.batch = experiment.batch;
  options.shuffle = shuffle;
  options.seed = seed;
  options.device = experiment.device;
  return options;
}

}  // namespace

std::function<void(const Tensor& images, const Tensor& labels)> checkpointer(const CheckpointChoice& choice,
                                                                             StagedModel& model,
                                                                             std::optional<CheckpointPlan>& plan) {
  return [choice, &model, &plan](const Tensor& images, const Tensor& labels) {
    if (!choice.needs_costs()) return model.set_segments(segments_of(choice, model.stages().size()));
    StepCosts costs = measure_stages(model, images, labels);
    const std::vector<Segment> segments = segments_of(choice, costs);
    const PlanFigures predicted = predict(costs, segments);
    plan = {std::move(costs), segments, predicted};
    model.set_segments(segments);
    reset_peak(images.device());
  };
}

RunRecord run_experiment(const Experiment& experiment, const SampleSource& train_set, const SampleSource& test_set,
                         uint64_t seed, const TrainHooks& hooks) {
  RunRecord record;
  record.seed = seed;
  const cli::ForcedKernels forced(experiment.kernels);
  reset_peak(experiment.device);
  const SampleInfo& info = train_set.info();
  const auto model =
      make_model(experiment.model, seed, {info.rows, info.columns, info.channels, info.classes, experiment.blocks});
  ParameterArena arena(*model, experiment.device);
  Loader training(train_set, loader_options(experiment, true, seed));
  Loader test(test_set, loader_options(experiment, false, seed));

  TrainHooks recording = hooks;
  recording.before_first_step = checkpointer(experiment.checkpoint, *model, record.plan);
  recording.on_epoch = [&](int64_t epoch, const EpochResult& result) {
    record.resident_bytes_by_epoch.push_back(cli::resident_bytes());
    if (hooks.on_epoch) hooks.on_epoch(epoch, result);
    // train() checks only the training loss; an epoch's last update affects the test loss first.
    if (!std::isfinite(result.test.loss)) {
      fail(ExitCode::numeric, "the test loss became {} after epoch {}; try a smaller learning rate than {}",
           std::isnan(result.test.loss) ? "nan" : "inf", epoch, experiment.learning_rate);
    }
  };
  record.result = train(*model, arena, training, test, train_config(experiment, seed), recording);
  record.weights_sha256 = sha256(arena);
  record.peak_bytes = memory_stats(experiment.device).peak;
  return record;
}

void warm_up(const Experiment& experiment, const SampleSource& train_set, const SampleSource& test_set,
             const TrainHooks& hooks) {
  Experiment short_one = experiment;
  short_one.epochs = 1;
  // Leaves it to the run itself to report an infeasible budget: it needs a few bytes more than this.
  if (short_one.checkpoint.needs_costs()) short_one.checkpoint = {CheckpointChoice::Kind::automatic, 0};
  short_one.learning_rate = 1e-6;  // whatever the user chose, these steps do not diverge
  run_experiment(short_one,
                 load_samples(train_set, 2 * experiment.batch * experiment.accumulate * experiment.graph_steps),
                 load_samples(test_set, experiment.batch), 0, hooks);
}

std::vector<KernelRow> summarize(const KernelTrace& trace) {
  std::vector<KernelRow> rows;
  for (const KernelCall& call : trace.calls()) {
    const auto row = std::ranges::find(rows, call, &KernelRow::call);
    if (row == rows.end()) {
      rows.push_back({call, 1});
    } else {
      ++row->count;
    }
  }
  return rows;
}

bool has_tensor_unit(const std::vector<KernelRow>& rows) {
  constexpr std::string_view units[] = {"cublaslt", "mma", "wmma", "amx"};
  return std::ranges::any_of(rows, [&](const KernelRow& row) {
    return std::ranges::find(units, row.call.variant) != std::end(units) && row.call.dtype != DType::f32;
  });
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
