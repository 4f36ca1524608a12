// halfstep-bench evaluate: how well a trained model does on a test set.
//
// Its record has "accuracy", "loss", "samples_per_second" (of the model alone, reading left out; the median of its
// batches), "confusion" (a list for each label, with the number of its samples that each class was predicted for),
// "rows" (a class each) and "mistakes": the wrong predictions of highest probability, with their pixels; of numbers
// without. Of a text it has "accuracy", "loss" (per symbol), "bits_per_symbol", "bits_per_byte" (of the symbols that
// were predicted, in the file), "perplexity" and "samples_per_second" (windows, read and evaluated), and one row with
// the same.
#include <cmath>

#include "bench/commands/trained_model.h"
#include "bench/measure/evaluation.h"
#include "models/training/train_step.h"

namespace hs::bench::commands {
namespace {

using measure::Classification, measure::Mistake;

constexpr int64_t test_batch = 250;  // samples

class EvaluateCommand : public TrainedModelCommand {
  std::string device_ = "auto";
  int64_t test_ = cli::automatic_samples, mistakes_ = 12, threads_ = 0;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"evaluate --model digits.safetensors",
         "evaluate --model digits.safetensors --html evaluation.html   # with pictures of the worst mistakes",
         "evaluate --model shakespeare.safetensors --data sonnets.txt --unknown drop"},
        "The worst mistakes are the wrong answers that the model was most certain of.");
    flags.model_file(model_);
    flags.data(data_);
    flags.test(test_);
    flags.unknown(drops_unknown_, own().counts_if([this] { return loaded_.model && reads_text(); }));
    flags.integer("--mistakes", own(), mistakes_, 0, 100, "Worst mistakes to show");
    flags.threads(threads_).unrecorded();
    flags.device(device_);
  }

  // Unlike hs::evaluate(), which needs sums alone, with the probabilities of each image.
  Classification classify(const SampleSource& test, Device device) const {
    const ParameterArena arena(*loaded_.model, device);  // moves the model there
    Loader loader(test, {.batch = test_batch, .shuffle = false, .device = device});
    const auto classes = static_cast<size_t>(test.info().classes);
    Classification result;
    result.confusion.assign(classes, std::vector<int64_t>(classes, 0));
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      cli::check_signals("while evaluating; no results were written");
      const Batch batch = on_device(loader.next(), device);
      const std::vector<int32_t> labels = batch.labels.to_vector<int32_t>();
      const Clock::time_point start = Clock::now();
      const auto predictions = log_probabilities(*loaded_.model, batch.images, loaded_.description.scale);
      result.rates.push_back(static_cast<double>(labels.size()) / seconds_since(start));
      for (size_t n = 0; n < labels.size(); ++n, ++result.samples) {
        const std::vector<double>& logarithms = predictions[n];
        const auto label = static_cast<size_t>(labels[n]);
        const auto predicted = static_cast<size_t>(std::ranges::max_element(logarithms) - logarithms.begin());
        ++result.confusion[label][predicted];
        result.loss_sum -= logarithms[label];
        result.right += predicted == label;
        if (predicted == label) continue;
        result.mistakes.push_back({result.samples, label, predicted, std::exp(logarithms[predicted])});
      }
    }
    std::ranges::stable_sort(result.mistakes, std::greater(), &Mistake::probability);
    result.mistakes.resize(std::min(result.mistakes.size(), static_cast<size_t>(mistakes_)));
    return result;
  }

  void show_images(Json& record, const cli::TrainingData& data, Device device) {
    const Classification result = classify(*data.test, device);
    record["accuracy"] = result.accuracy();
    record["loss"] = finite_or_null(result.loss());
    record["samples_per_second"] = median(result.rates);
    record["confusion"] = result.confusion;
    const report::Rows classes = classes_of(result, loaded_.description),
                       mistakes = mistakes_of(result, loaded_.description, *data.test);
    record["rows"] = classes.json;
    record["mistakes"] = mistakes.json;
    std::vector<report::Table> tables = {classes.table, table_of_confusion(result, loaded_.description)};
    if (!result.mistakes.empty()) tables.push_back(mistakes.table);
    show(record, data,
         fmt::format("{} of {} test samples right, {:.2f} %, loss {:.4f}, {:.0f} samples/s", result.right,
                     result.samples, 100 * result.accuracy(), result.loss(), median(result.rates)),
         tables);
  }

  void show_text(Json& record, const cli::TrainingData& data, Device device) {
    const auto [rows, summary] = measure::evaluate_text(*loaded_.model, *data.test, device);
    record.update(rows.json[0]);
    record.erase("name");
    record["rows"] = rows.json;
    show(record, data, summary, {rows.table});
  }

  void show(Json& record, const cli::TrainingData& data, const std::string& summary,
            const std::vector<report::Table>& tables) {
    const std::string &trained_on = loaded_.description.data, &name = data.test->info().name;
    std::vector<std::string> remarks;
    if (trained_on != name)
      remarks.push_back(fmt::format("the model was trained on {}, and this is {}", trained_on, name));
    if (const std::string doubt = doubt_about(data); !doubt.empty()) remarks.push_back(doubt);
    outputs_.finish(record, fmt::format("{} on {}: {}", loaded_.description.model, name, summary), tables, remarks);
  }

  void run(const cli::Flags& flags) override {
    load();
    const char* misplaced = reads_text() ? "--mistakes" : "--unknown";
    if (flags.given(misplaced)) {
      fail(ExitCode::usage, "{}: is for models of {}, and {} is one of {}", misplaced,
           reads_text() ? "images" : "a text", printable(model_), reads_text() ? "a text" : "images");
    }
    outputs_.open();
    cli::use_threads(threads_);
    const Device device = cli::resolve_device(device_);
    const cli::TrainingData data = open_test_data({test_, !flags.given("--test")});
    Json record = report::new_record(name(), device, flags.config(), report::describe_data(data));
    reads_text() ? show_text(record, data, device) : show_images(record, data, device);
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_evaluate_command() { return std::make_unique<EvaluateCommand>(); }

}  // namespace hs::bench::commands
