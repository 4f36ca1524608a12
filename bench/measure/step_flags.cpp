#include "bench/measure/step_flags.h"

#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/plugins.h"
#include "engine/check.h"
#include "engine/cpu_features.h"
#include "engine/files/input_file.h"

namespace hs::bench::measure {
namespace {

using cli::Group;

bool has_momentum(const std::string& optimizer) {
  return optimizer == "sgd" || optimizer == "nesterov" || optimizer == "lars" || optimizer == "muon";
}

bool has_betas(const std::string& optimizer) { return optimizer == "muon" || !has_momentum(optimizer); }

}  // namespace

std::string tuning_machine(Device device) {
  for (const auto& [what, value] : runtime(device).describe()) {
    if (what == "name") return value;
  }
  const std::string& cap = cpu_features().cap;
  return cli::cpu_name() + (cap.empty() ? "" : " with HALFSTEP_ISA=" + cap);
}

void TuningFile::declare(cli::Flags& flags) {
  flags
      .text("--tuning", rare(Group::speed).moves({"kernels", "backward"}), path_, "FILE",
            "Take the kernel variants that `tune kernels` measured for these shapes")
      .record("tuning", [this] {
        return path_.empty() ? Json(nullptr) : Json{{"file", path_}, {"sha256", sha256_}, {"machine", machine_}};
      });
}

void TuningFile::use(Device device) {
  if (path_.empty()) return;
  const std::vector<uint8_t> bytes = read_file(path_, uint64_t{1} << 20);
  const std::string text(bytes.begin(), bytes.end());
  sha256_ = cli::sha256_of(text);
  TuningTable table = parse_tuning(text, "--tuning " + path_, tuning_machine(device));
  machine_ = table.machine;
  in_use_.emplace(std::move(table));
}

void TuningFile::check_used() const {
  if (!in_use_ || in_use_->calls() > 0) return;
  cli::notice(fmt::format(
      "--tuning {}: decided no call of this run; it was measured for another model, batch, precision or device",
      path_));
}

void StepFlags::declare_optimizer(cli::Flags& flags) {
  OptimizerConfig& optimizer = experiment.optimizer;
  const auto uses_momentum = [&optimizer] { return has_momentum(optimizer.name); };
  const auto uses_betas = [&optimizer] { return has_betas(optimizer.name); };
  const auto none = [&optimizer](const char* others) {
    return [&optimizer, others] { return fmt::format("{} has none, {}", optimizer.name, others); };
  };
  flags.choice("--optimizer", common(Group::training).moves({"update"}).compared(), optimizer.name,
               {"sgd", "nesterov", "adam", "adamw", "lars", "lamb", "muon", "schedule-free"}, "Optimizer");
  flags.real("--momentum",
             rare(Group::training)
                 .counts_if(uses_momentum)
                 .needs(uses_momentum, none("only --optimizer sgd, nesterov, lars and muon do")),
             optimizer.momentum, 0, 0.9999, "Momentum of sgd, nesterov, lars and muon");
  flags.real("--beta2",
             rare(Group::training)
                 .counts_if(uses_betas)
                 .needs(uses_betas, none("all optimizers but sgd, nesterov and lars do")),
             optimizer.beta2, 0, 0.999999,
             "How much the mean of squared gradients keeps in a step, with all optimizers but sgd, nesterov and lars");
  flags.real("--weight-decay", rare(Group::training).known_as({"wd"}), optimizer.weight_decay, 0, 1, "Weight decay");
  flags.named_choice("--decay", rare(Group::training), optimizer.decay_vectors, {{"all", true}, {"weights", false}},
                     "What decays: all parameters, or those of two dimensions and more (no biases)");
  flags.real("--clip", rare(Group::training).moves({"update"}), optimizer.clip, 0, 1e9,
             "Limit on the global gradient norm, 0: none");
  flags.real("--skip-outliers", rare(Group::training).moves({"update"}), optimizer.outlier, 0, 1e9,
             "Skip steps whose gradient norm is this many times the usual one, 0: none");
  flags.real("--skip-loss-outliers", rare(Group::training), optimizer.loss_outlier, 0, 1e9,
             "Skip steps whose loss is this many times the usual one, 0: none");
  flags.real("--ema", rare(Group::training).moves({"update"}), optimizer.average_decay, 0, 0.999999,
             "Evaluate and keep a moving average of the weights that forgets by this factor a step, 0: none");
}

void StepFlags::declare_step(cli::Flags& flags) {
  flags.batch(experiment.batch);
  flags.precision(precision).record("precision", [this] { return hs::name(experiment.precision); });
  flags.integer("--accumulate", common(Group::memory).known_as({"grad-accum"}).moves({"step"}).compared(),
                experiment.accumulate, 1, 1000000, "Batches whose gradients make one step");
  flags.text(
      "--augment", common(Group::data).moves({"kernels", "wait"}),
      [this](const std::string& spec) { experiment.augment = parse_augment(spec); }, "", "SPEC",
      "Random changes of training images: shift=PIXELS,rotate=DEGREES,cutout=PIXELS,flip, any of them");
  flags.text(
      "--checkpoint", common(Group::memory).moves({"backward"}),
      [this](const std::string& how) { experiment.checkpoint = parse_checkpoint(how); }, "off", "WHAT",
      "Recompute activations in backward: off, all, every=N, budget=BYTES (k, M, G), budget=auto");
  flags.real("--label-smoothing", rare(Group::training), experiment.label_smoothing, 0, 0.9,
             "How much of the target is spread over all classes, in training");
  flags.named_choice(
      "--fuse", rare(Group::speed).moves({"step"}), experiment.fuse, {{"on", true}, {"off", false}},
      "Ops that are made of others, as convolution, pooling and ReLU are, in one kernel where there is one");
  flags.kernels(experiment.kernels);
}

void StepFlags::declare(cli::Flags& flags, const StepParts& takes) {
  precision = experiment.precision;
  flags.model(experiment.model);
  flags.blocks(experiment.blocks, experiment.model);
  if (takes.data) {
    flags.data(data);
    flags.context(context, experiment.model);
  }
  if (takes.rate) flags.learning_rate(experiment.optimizer.learning_rate);
  declare_optimizer(flags);
  if (takes.step) declare_step(flags);
  flags.plugins(plugins);
  if (takes.tuning) tuning.declare(flags);
  flags.seed(experiment.seed);
  flags.threads(threads);
  flags.device(device);
  flags.recipe();
}

void StepFlags::use() {
  cli::load_plugins(plugins);
  cli::use_threads(threads);
  experiment.device = cli::resolve_device(device);
  experiment.precision = cli::resolve_precision(precision, experiment.device);
  tuning.use(experiment.device);
}

}  // namespace hs::bench::measure
