// --start, --lora, --lora-alpha and --save-adapters: a run that begins with a trained model, all of which it trains, or
// adapters beside it alone (models/lora.h).
#include <algorithm>

#include "bench/cli/console.h"
#include "bench/measure/train_part.h"
#include "engine/check.h"
#include "engine/files/output_file.h"
#include "models/lora.h"

namespace hs::bench::measure {
namespace {

using cli::Group;

class FineTuning : public TrainPart {
  using TrainPart::TrainPart;
  Experiment& experiment_ = job_.experiment;
  std::string save_adapters_, sha256_;
  std::optional<ModelDescription> base_;
  std::optional<OutputFolder> folder_;

  void declare(cli::Flags& flags) override {
    const auto has_adapters = [this] { return experiment_.lora.rank > 0; };
    constexpr const char* otherwise = "there are no adapters; give --lora 4 as well";
    flags
        .text("--start", rare(Group::model).unrecorded(), cli::model_reader("--start", experiment_.start), "", "FILE",
              "Begin with the weights of a model that --save-model wrote")
        .record("start_sha256", [this] { return sha256_.empty() ? Json(nullptr) : Json(sha256_); });
    flags.integer("--lora", rare(Group::model).moves({"step"}), experiment_.lora.rank, 0, 4096,
                  "Train adapters of this rank beside --start alone, 0: all of it");
    flags
        .real("--lora-alpha", rare(Group::model).needs(has_adapters, otherwise), experiment_.lora.alpha, 0, 1e6,
              "Adapters count by this, divided by the rank; 0: twice the rank")
        .record("lora_alpha",
                [this] { return experiment_.lora.rank > 0 ? Json(experiment_.lora.used_alpha()) : Json(nullptr); });
    flags.unknown(job_.text.drops_unknown, rare(Group::model)
                                               .counts_if([this] { return !experiment_.start.empty(); })
                                               .needs([this] { return !experiment_.start.empty(); },
                                                      "all characters are symbols of a new model; it is for --start"));
    flags.text("--save-adapters", rare(Group::output).writes().needs(has_adapters, otherwise), save_adapters_, "DIR",
               "Write the trained adapters there, as peft does, for export");
  }

  // Reads the model's file. Model, depth and context are the file's, unless other flags say so.
  void with_device(const cli::Flags& flags) override {
    int64_t& context = job_.settings.context;
    if (experiment_.start.empty()) {
      if (experiment_.lora.rank == 0) return;
      fail(ExitCode::usage, "--lora {}: there is no model to adapt; give --start FILE as well", experiment_.lora.rank);
    }
    const LoadedModel base = load_model(experiment_.start);
    const ModelDescription& of = base.description;
    if (flags.given("--model") && experiment_.model != of.model) {
      fail(ExitCode::usage, "--model {}: --start {} is a {}; leave out --model", experiment_.model, experiment_.start,
           of.model);
    }
    const auto check_same = [&](const char* flag, int64_t given, int64_t has) {
      if (!flags.given(flag) || given == has) return;
      fail(ExitCode::usage, "{} {}: --start {} has {}; leave it out", flag, given, experiment_.start, has);
    };
    check_same("--blocks", experiment_.blocks, of.sizes.blocks);
    check_same("--context", context, of.sizes.context());
    experiment_.model = of.model;
    experiment_.blocks = of.sizes.blocks;
    if (of.sizes.input == InputKind::tokens) context = of.sizes.context();
    job_.text.vocabulary = of.vocabulary;
    base_ = of;
    sha256_ = sha256(base.model->parameters());
    if (experiment_.lora.rank > 0) {  // refused before anything is loaded or trained
      LayerKeys keys(0);
      base.model->adapt(experiment_.lora, keys);
    }
    if (!save_adapters_.empty() && job_.ranks.is_first()) folder_.emplace(save_adapters_);
  }

  // The model is for such samples. Says so if they are other ones than it was trained on.
  void with_data(const cli::Flags&) override {
    if (!base_) return;
    const cli::TrainingData& data = *job_.data;
    const SampleInfo& info = data.train->info();
    const ModelSizes& sizes = base_->sizes;
    if (info.rows != sizes.rows || info.columns != sizes.columns || info.channels != sizes.channels ||
        info.classes != sizes.classes || info.type != base_->type) {
      fail(ExitCode::bad_input,
           "--data {}: samples of {} in {} classes, and the model of --start is for {} x {} x {} {} in {}", info.name,
           info.text(), info.classes, sizes.rows, sizes.columns, sizes.channels, hs::name(base_->type), sizes.classes);
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

  void with_model(StagedModel& trained) override {
    if (!folder_) return;
    job_.each([&] {
      write_adapters(*folder_, trained, experiment_.lora, sha256_);
      folder_->keep();
    });
  }
};

}  // namespace

MadePart make_fine_tuning(TrainJob& job) { return std::make_unique<FineTuning>(job); }

}  // namespace hs::bench::measure
