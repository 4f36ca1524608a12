#include "bench/measure/fine_tuning.h"

#include <algorithm>

#include "bench/cli/console.h"
#include "engine/check.h"
#include "models/lora.h"

namespace hs::bench::measure {

using cli::Group;

void FineTuning::declare(cli::Flags& flags, Experiment& experiment) {
  const auto has_adapters = [&experiment] { return experiment.lora.rank > 0; };
  constexpr const char* otherwise = "there are no adapters; give --lora 4 as well";
  flags
      .text("--start", rare(Group::model).unrecorded(), experiment.start, "FILE",
            "Begin with the weights of a model that --save-model wrote")
      .record("start_sha256", [this] { return sha256_.empty() ? Json(nullptr) : Json(sha256_); });
  flags.integer("--lora", rare(Group::model).moves({"step"}), experiment.lora.rank, 0, 4096,
                "Train adapters of this rank beside --start alone, 0: all of it");
  flags
      .real("--lora-alpha", rare(Group::model).needs(has_adapters, otherwise), experiment.lora.alpha, 0, 1e6,
            "Adapters count by this, divided by the rank; 0: twice the rank")
      .record("lora_alpha",
              [&experiment] { return experiment.lora.rank > 0 ? Json(experiment.lora.used_alpha()) : Json(nullptr); });
  flags.text("--save-adapters", rare(Group::output).writes().needs(has_adapters, otherwise), save_adapters_, "DIR",
             "Write the trained adapters there, as peft does, for export");
}

void FineTuning::open(const cli::Flags& flags, Experiment& experiment, int64_t& context) {
  if (experiment.start.empty()) {
    if (experiment.lora.rank == 0) return;
    fail(ExitCode::usage, "--lora {}: there is no model to adapt; give --start FILE as well", experiment.lora.rank);
  }
  const LoadedModel base = load_model(experiment.start);
  const ModelDescription& of = base.description;
  if (flags.given("--model") && experiment.model != of.model) {
    fail(ExitCode::usage, "--model {}: --start {} is a {}; leave out --model", experiment.model, experiment.start,
         of.model);
  }
  const auto check_same = [&](const char* flag, int64_t given, int64_t has) {
    if (!flags.given(flag) || given == has) return;
    fail(ExitCode::usage, "{} {}: --start {} has {}; leave it out", flag, given, experiment.start, has);
  };
  check_same("--blocks", experiment.blocks, of.sizes.blocks);
  check_same("--context", context, of.sizes.context());
  experiment.model = of.model;
  experiment.blocks = of.sizes.blocks;
  if (of.sizes.input == InputKind::tokens) context = of.sizes.context();
  vocabulary_ = of.vocabulary;
  base_ = of;
  sha256_ = sha256(base.model->parameters());
  if (experiment.lora.rank > 0) {  // refused before anything is loaded or trained
    LayerKeys keys(0);
    base.model->adapt(experiment.lora, keys);
  }
  if (!save_adapters_.empty()) folder_.emplace(save_adapters_);
}

void FineTuning::check_fits(const cli::TrainingData& data) const {
  if (!base_) return;
  const SampleInfo& info = data.train->info();
  const ModelSizes& sizes = base_->sizes;
  if (info.rows != sizes.rows || info.columns != sizes.columns || info.channels != sizes.channels ||
      info.classes != sizes.classes) {
    fail(ExitCode::bad_input,
         "--data {}: samples of {} in {} classes, and the model of --start is for {} x {} x {} in {}", info.name,
         info.text(), info.classes, sizes.rows, sizes.columns, sizes.channels, sizes.classes);
  }
  const auto& origin = base_->origin;
  const auto [was, is] = std::ranges::mismatch(base_->class_names, info.class_names);
  if (was != base_->class_names.end() && is != info.class_names.end()) {
    cli::notice(fmt::format("--start: class {} was {} in the model's training, and is {} in this one",
                            was - base_->class_names.begin(), *was, *is));
  } else if (origin && !origin->contents.empty() &&
             (origin->source != data.choice.name || origin->contents != data.contents)) {
    cli::notice(fmt::format("--start: the model was trained on {}, {}; this is {}", origin->source, origin->contents,
                            data.contents.empty() ? data.choice.name : data.contents));
  }
}

std::vector<NamedTensor> FineTuning::parameters(StagedModel& trained, const Experiment& experiment) {
  return experiment.lora.rank > 0 ? merged_parameters(trained, experiment.lora) : parameters_of(trained);
}

void FineTuning::save(StagedModel& trained, const Experiment& experiment) {
  if (!folder_) return;
  write_adapters(*folder_, trained, experiment.lora, sha256_);
  folder_->keep();
}

}  // namespace hs::bench::measure
