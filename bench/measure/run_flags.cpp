// The flags that say how a whole run goes: the course of the learning rate, how it is loaded and replayed, when it is
// judged, and by what it ends.
#include "bench/cli/console.h"
#include "bench/measure/train_part.h"
#include "engine/check.h"

namespace hs::bench::measure {
namespace {

using cli::Group;

class RunFlags : public TrainPart {
  using TrainPart::TrainPart;
  Experiment& experiment_ = job_.experiment;
  Schedule& schedule_ = experiment_.optimizer.schedule;
  int64_t scale_lr_ = 0;
  std::string graph_ = "auto";
  Cadence test_every_ = {.epochs = 1};

  void declare(cli::Flags& flags) override {
    declare_schedule(flags);
    flags.record("warmed_up", [] { return true; });
    declare_loading(flags);
    job_.goal.declare(flags, "End when the validation, or without one the test, reaches this");
    declare_judging(flags);
  }

  void declare_schedule(cli::Flags& flags) {
    flags.named_choice("--schedule", common(Group::training).known_as({"scheduler"}), schedule_.kind,
                       {{"constant", ScheduleKind::constant},
                        {"linear", ScheduleKind::linear},
                        {"cosine", ScheduleKind::cosine},
                        {"step", ScheduleKind::step},
                        {"one-cycle", ScheduleKind::one_cycle}},
                       "Course of the learning rate");
    const cli::Facts of_steps = rare(Group::training)
                                    .needs([this] { return schedule_.kind == ScheduleKind::step; },
                                           "belongs to --schedule step; give that as well");
    flags.integer("--step-every", of_steps, schedule_.every, 1, 1 << 30, "With --schedule step: steps of one rate");
    flags.real("--step-factor", of_steps, schedule_.factor, 1e-6, 1,
               "With --schedule step: the factor after each of them");
    flags.integer("--warmup", rare(Group::training), schedule_.warmup_steps, 0, 1000000,
                  "Steps in which the learning rate rises to its full size");
    flags.integer("--scale-lr", rare(Group::training).not_from_record(), scale_lr_, 0, 1 << 30,
                  "The batch for which --lr is right: scales it to the one in use, and warms up; 0: as it is");
  }

  void declare_loading(cli::Flags& flags) {
    flags.loading(experiment_.loading, job_.residency.cache);
    flags.named_choice("--loader", rare(Group::data).keeps_bits(), experiment_.searches_loading,
                       {{"given", false}, {"auto", true}},
                       "auto: finds --workers and --prefetch while the first steps run; the weights are the same");
    flags
        .choice("--graph", rare(Group::speed).moves({"step"}).compared(), graph_, {"auto", "on", "off"},
                "Record a step once and replay it; auto: on with cuda")
        .record("graph", [this] { return experiment_.graph; });
    flags
        .integer_or_auto(
            "--graph-steps", rare(Group::speed).keeps_bits().moves({"step"}), job_.residency.graph_steps,
            automatic_graph_steps, 1, 1024,
            "Steps that a graph holds; 2 or more with cache device; auto: 16 where nothing is between them")
        .record("graph_steps", [this] { return experiment_.graph_steps; });
  }

  void declare_judging(cli::Flags& flags) {
    const auto validates = [this] { return experiment_.held_out > 0; };
    constexpr const char* otherwise = "there is nothing to validate on; give --validation 0.1 as well";
    flags
        .on_off("--noise-scale",
                rare(Group::training)
                    .keeps_bits()
                    .needs([this] { return experiment_.accumulate > 1; },
                           "compares a micro-batch with its step; give --accumulate 2 or more"),
                experiment_.noise_scale,
                "Measure how many samples a step could average; needs --accumulate 2 or more, and takes time")
        .record("noise_scale", [this] { return experiment_.noise_scale; });
    flags.real("--validation", rare(Group::data).moves({"amount", "evaluation"}), experiment_.held_out, 0, 0.9,
               "Fraction of the training samples held out to validate on");
    flags.text(
        "--validate-every", rare(Group::data).moves({"evaluation"}).needs(validates, otherwise),
        [this](const std::string& text) { experiment_.validate_every = parse_cadence(text); }, "1ep", "HOW",
        "When to validate: 1ep (epochs) or 500st (steps)");
    flags.text(
        "--test-every", rare(Group::data).keeps_bits().moves({"evaluation"}),
        [this](const std::string& text) { test_every_ = parse_cadence(text); }, "1ep", "HOW",
        "When to test: 1ep (epochs) or 500st (steps); the end always");
    flags.integer("--patience", rare(Group::training).keeps_bits().moves({"amount"}).needs(validates, otherwise),
                  experiment_.patience, 0, 1000000,
                  "End after this many validations without a better accuracy, 0: never");
    flags.real("--max-minutes", rare(Group::training).keeps_bits().moves({"amount"}), experiment_.max_minutes, 0, 1e6,
               "End after this many minutes of training, 0: never");
  }

  void check_flags(const cli::Flags& flags) override {
    if (flags.given("--warmup") && schedule_.kind == ScheduleKind::one_cycle) {
      fail(ExitCode::usage, "--warmup {}: --schedule one-cycle has its own; leave one out", schedule_.warmup_steps);
    }
    for (const auto& [flag, cadence] :
         {std::pair("--validate-every", experiment_.validate_every), {"--test-every", test_every_}}) {
      if (cadence.seconds == 0) continue;
      fail(ExitCode::usage, "{}: expected steps or epochs, as in 500st or 1ep, so that runs can be repeated", flag);
    }
    if (test_every_.steps > 0 && experiment_.held_out > 0) {
      fail(ExitCode::usage, "--test-every {}st: with --validation, steps are for --validate-every; give it epochs",
           test_every_.steps);
    }
    for (const char* flag : {"--workers", "--prefetch"}) {
      if (experiment_.searches_loading && flags.given(flag)) {
        fail(ExitCode::usage, "--loader auto: finds {} itself; leave that out", flag);
      }
    }
    if (experiment_.augment.any() && experiment_.loading.normalize_on_host) {
      fail(ExitCode::usage, "--augment: works on bytes, and --preprocess host makes numbers of them; use device");
    }
  }

  void with_device(const cli::Flags& flags) override {
    experiment_.target = job_.goal.target;
    experiment_.test_every_steps = test_every_.steps;
    experiment_.test_every = test_every_.steps > 0 ? experiment_.epochs : test_every_.epochs;
    if (job_.goal.target && experiment_.held_out <= 0 && !job_.quiet) {
      cli::notice(fmt::format("--target {}: judged on the test set; --validation 0.1 holds out samples to judge by",
                              flags.config()["target"].get<std::string>()));
    }
    const bool has_graphs = experiment_.device == Device::cuda;
    if (graph_ == "on" && !has_graphs) {
      fail(ExitCode::usage, "--graph on: only cuda captures graphs, and this runs on {}; use --graph off or auto",
           hs::name(experiment_.device));
    }
    experiment_.graph = graph_ != "off" && has_graphs;
    const Residency& residency = job_.residency;
    if (residency.graph_steps > 1 && (!experiment_.graph || experiment_.accumulate > 1 ||
                                      residency.cache.value_or(CacheMode::device) != CacheMode::device)) {
      fail(ExitCode::usage, "--graph-steps {}: needs a graph (--graph on), --cache device and --accumulate 1",
           residency.graph_steps);
    }
    if (experiment_.noise_scale && (experiment_.graph || job_.ranks.is_on())) {
      fail(ExitCode::usage, "--noise-scale: looks into each step of one process; give --graph off, and no mpirun");
    }
    if (experiment_.noise_scale && job_.ranks.sum().tree) {
      fail(ExitCode::usage, "--noise-scale: reads the sum as it grows, and --reduce tree has none; give --reduce fast");
    }
  }

  void with_data(const cli::Flags& flags) override {
    choose_residency(job_.residency, job_.saves_between_steps, *job_.data->train, *job_.data->test, experiment_);
    scale_learning_rate(flags, job_.data->train->info().count);
  }

  // The linear rule with warm-up (Goyal et al., "Accurate, large minibatch SGD", 2017): the paper warms up for 5 of 90
  // epochs, this for the same share of the steps.
  void scale_learning_rate(const cli::Flags& flags, int64_t samples) {
    const int64_t batch = experiment_.batch * experiment_.accumulate;
    if (scale_lr_ == 0 || scale_lr_ == batch) return;
    float& rate = experiment_.optimizer.learning_rate;
    const double before = cli::as_written(rate);
    rate = static_cast<float>(before * static_cast<double>(batch) / static_cast<double>(scale_lr_));
    std::string text = fmt::format("--scale-lr {}: batch {} x {}, so the learning rate is {:g} instead of {:g}",
                                   scale_lr_, experiment_.accumulate, experiment_.batch, rate, before);
    if (batch > scale_lr_ && !flags.given("--warmup") && schedule_.kind != ScheduleKind::one_cycle) {
      schedule_.warmup_steps = static_cast<int32_t>((samples + batch - 1) / batch * experiment_.epochs * 5 / 90);
      text += fmt::format(", reached after {} steps", schedule_.warmup_steps);
    }
    if (!job_.quiet) cli::notice(text);
  }
};

}  // namespace

MadePart make_run_flags(TrainJob& job) { return std::make_unique<RunFlags>(job); }

}  // namespace hs::bench::measure
