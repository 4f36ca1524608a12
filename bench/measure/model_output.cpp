// What is made of a trained model: the file of --save-model, and a text for reports.
#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/interrupt.h"
#include "bench/measure/train_part.h"
#include "engine/check.h"
#include "engine/files/output_file.h"
#include "engine/printable.h"
#include "models/generate.h"
#include "models/lora.h"

namespace hs::bench::measure {
namespace {

class ModelOutput : public TrainPart {
  using TrainPart::TrainPart;
  std::string path_;
  std::optional<OutputFile> file_;
  bool is_wanted_ = false;  // and nothing has prevented it
  Json written_;            // by the model of a text

  void declare(cli::Flags& flags) override {
    flags.text(
        "--save-model", common(cli::Group::output).known_as({"output"}).writes(), path_, "FILE",
        "Write the trained weights as safetensors, for predict, evaluate and export (of several runs, the last)");
  }

  void with_device(const cli::Flags&) override {
    if (!job_.ranks.is_first()) path_.clear();
    file_.emplace(path_, "--save-model");
    if (file_->is_stream()) fail(ExitCode::usage, "--save-model {}: is no regular file, expected one", path_);
    is_wanted_ = file_->is_wanted();
    job_.files.push_back(&*file_);
  }

  void before_run(TrainHooks& hooks) override {
    if (!is_wanted_ || job_.run < job_.repeat) return;
    end_when_interrupted(hooks);
  }

  void with_model(StagedModel& trained) override {
    const Experiment& experiment = job_.experiment;
    is_wanted_ = is_wanted_ && job_.each([&] {
      write_safetensors(*file_,
                        experiment.lora.rank > 0 ? merged_parameters(trained, experiment.lora) : parameters_of(trained),
                        describe(description()));
    });
    write_text(trained);
  }

  ModelDescription description() const {
    const SampleInfo& info = job_.data->train->info();
    const cli::DataChoice& choice = job_.data->choice;
    return {job_.experiment.model,
            sizes_for(info, job_.experiment.blocks),
            info.scale,
            info.name,
            info.vocabulary,
            info.class_names,
            ModelDescription::Origin{choice.name, cli::size_text(choice), choice.test_split,
                                     job_.data->test->info().count, job_.data->contents, choice.skip_damaged},
            info.type};
  }

  // What the model of a text writes, for reports.
  void write_text(StagedModel& trained) {
    const Vocabulary& vocabulary = job_.data->train->info().vocabulary;
    const bool may_be_stopped = job_.is_saved || job_.ranks.is_on();  // and still has something to save
    if (vocabulary.empty() || !job_.has_report || (may_be_stopped && cli::stop_requested())) return;
    const GenerateOptions options = {.length = 400, .temperature = 0.8, .seed = job_.experiment.seed};
    std::string text;
    generate(
        trained, description(), default_prompt(vocabulary), options,
        [&](const std::string& symbol) {
          if (!may_be_stopped) cli::check_signals("while the trained model wrote a text; no results were written");
          text += symbol;
          return true;
        },
        job_.experiment.device);
    written_ = {{"temperature", options.temperature}, {"seed", options.seed}, {"text", as_utf8(text)}};
  }

  // Keeps the model before anything else that is written after training.
  void after_run(RunRecord& run) override {
    if (!is_wanted_ || job_.run < job_.repeat || (run.result.interrupted && job_.is_saved)) return;
    if (!job_.each([&] { file_->keep(); })) return;
    job_.left = fmt::format("{} has the model as it was then", printable_text(path_));
    if (job_.quiet || run.result.interrupted) return;
    const SampleInfo& info = job_.data->train->info();
    const bool is_text = info.is_text();
    cli::notice(fmt::format("{}: the trained model; next: {} {} --model {}{}", printable_text(path_), cli::program_name,
                            is_text ? "generate" : "predict", cli::quoted(path_),
                            is_text                  ? ""
                            : info.type == DType::u8 ? " IMAGE"
                                                     : " --test"));
  }

  void add_to_row(Json& row) const override { row["written"] = written_; }
};

}  // namespace

MadePart make_model_output(TrainJob& job) { return std::make_unique<ModelOutput>(job); }

}  // namespace hs::bench::measure
