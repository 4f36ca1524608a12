// --start, --head, --freeze, --lora, --lora-alpha and --save-adapters: a run that begins with a trained model, all of
// which it trains, or a new head, or the head alone, or adapters beside it (models/lora.h).
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
    const auto has_start = [this] { return !experiment_.start.empty(); };
    const auto has_adapters = [this] { return experiment_.lora.rank > 0; };
    constexpr const char* otherwise = "there are no adapters; give --lora 4 as well";
    flags
        .text("--start", rare(Group::model).unrecorded(), cli::model_reader("--start", experiment_.start), "", "FILE",
              "Begin with the weights of a model that --save-model wrote")
        .record("start_sha256", [this] { return sha256_.empty() ? Json(nullptr) : Json(sha256_); });
    flags.named_choice("--head", rare(Group::model).counts_if(has_start), experiment_.new_head,
                       {{"kept", false}, {"new", true}},
                       "Whether the last layer of --start goes on, or a new one begins, for other classes");
    flags.named_choice("--freeze", rare(Group::model).counts_if(has_start).moves({"step"}), experiment_.freezes_body,
                       {{"nothing", false}, {"body", true}},
                       "What of --start is not trained; body: all but the last layer");
    flags.integer("--lora", rare(Group::model).moves({"step"}), experiment_.lora.rank, 0, 4096,
                  "Train adapters of this rank beside --start alone, 0: all of it");
    flags
        .real("--lora-alpha", rare(Group::model).needs(has_adapters, otherwise), experiment_.lora.alpha, 0, 1e6,
              "Adapters count by this, divided by the rank; 0: twice the rank")
        .record("lora_alpha",
                [this] { return experiment_.lora.rank > 0 ? Json(experiment_.lora.used_alpha()) : Json(nullptr); });
    flags.unknown(job_.text.drops_unknown,
                  rare(Group::model)
                      .counts_if(has_start)
                      .needs(has_start, "all characters are symbols of a new model; it is for --start"));
    flags.text("--save-adapters", rare(Group::output).writes().needs(has_adapters, otherwise), save_adapters_, "DIR",
               "Write the trained adapters there, as peft does, for export");
  }

  // Reads the model's file. Model, depth and context are the file's, unless other flags say so.
  void with_device(const cli::Flags& flags) override {
    int64_t& context = job_.settings.context;
    if (experiment_.start.empty()) {
      if (wish().empty()) return;
      fail(ExitCode::usage, "{}: there is no model to adapt; give --start FILE as well", wish());
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
    check_takes(*base.model);
    if (!save_adapters_.empty() && job_.ranks.is_first()) folder_.emplace(save_adapters_);
  }

  // What the model cannot do is refused before anything is loaded or trained.
  void check_takes(StagedModel& model) const {
    const int64_t rank = experiment_.lora.rank;
    if (experiment_.freezes_body && rank > 0) {
      fail(ExitCode::usage, "--freeze body: so does --lora {}, which trains adapters beside it; leave out one", rank);
    }
    if ((experiment_.new_head || experiment_.freezes_body) &&
        std::ranges::none_of(model.parameters(), &NamedParameter::is_head)) {
      fail(ExitCode::usage, "{}: no layer of {} is its head alone; leave it out", wish(), experiment_.model);
    }
    if (!save_adapters_.empty() && base_->sizes.input == InputKind::images) {
      fail(ExitCode::usage,
           "--save-adapters {}: peft has another layout for those of {}; give --save-model FILE, which merges them",
           save_adapters_, experiment_.model);
    }
    if (rank == 0) return;
    LayerKeys keys(0);
    model.adapt(experiment_.lora, keys);
  }

  // What --start is for, as a flag.
  std::string wish() const {
    if (experiment_.new_head) return "--head new";
    if (experiment_.freezes_body) return "--freeze body";
    return experiment_.lora.rank > 0 ? fmt::format("--lora {}", experiment_.lora.rank) : "";
  }

  // The model is for such samples. Says so if they are other ones than it was trained on.
  void with_data(const cli::Flags&) override {
    if (!base_) return;
    const cli::TrainingData& data = *job_.data;
    const SampleInfo& info = data.train->info();
    const ModelSizes& sizes = base_->sizes;
    if (experiment_.new_head) return say_what_begins_anew();
    if (info.rows != sizes.rows || info.columns != sizes.columns || info.channels != sizes.channels ||
        info.classes != sizes.classes || info.type != base_->type) {
      fail(ExitCode::bad_input,
           "--data {}: samples of {} in {} classes, and the model of --start is for {} x {} x {} {} in {}; give "
           "--head new to keep what fits and begin a new head",
           info.name, info.text(), info.classes, sizes.rows, sizes.columns, sizes.channels, hs::name(base_->type),
           sizes.classes);
    }
    const auto& origin = base_->origin;
    size_t label = 0;  // the first whose name is another one
    while (label < info.class_names.size() && base_->class_name(label) == info.class_names[label]) ++label;
    if (label < info.class_names.size()) {
      cli::notice(
          fmt::format("--start: class {} was {} in the model's training, and is {} in this one; give --head new "
                      "to begin a new head",
                      label, base_->class_name(label), info.class_names[label]));
    } else if (origin && !origin->contents.empty() &&
               (origin->source != data.choice.name || origin->contents != data.contents)) {
      cli::notice(fmt::format("--start: the model was trained on {}, {}; this is {}", origin->source, origin->contents,
                              data.contents.empty() ? data.choice.name : data.contents));
    }
  }

  void say_what_begins_anew() const {
    const auto model = make_model(experiment_.model, 0, sizes_for(job_.data->train->info(), experiment_.blocks));
    const int64_t all = model->parameter_count() + model->parameter_count(true);
    const bool is_frozen = experiment_.freezes_body || experiment_.lora.rank > 0;
    std::string names;
    int64_t kept = all;
    for (const NamedParameter& one : load_body(*model, SafetensorsFile(experiment_.start))) {
      if (is_frozen && !one.is_head) {
        fail(ExitCode::usage, "{}: would freeze {}, which is {} for these images and begins anew; leave it out",
             experiment_.freezes_body ? "--freeze body" : "--lora", one.name, one.value->shape());
      }
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", one.name, one.value->shape());
      kept -= one.value->size();
    }
    cli::notice(fmt::format("--head new: {} begin anew; {} of {} values are those of --start", names, kept, all));
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
