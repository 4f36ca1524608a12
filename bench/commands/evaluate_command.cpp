// halfstep-bench evaluate: how well a trained model does on a test set.
//
// Its record has "accuracy", "loss", "samples_per_second" (of the model alone, reading left out; the median of its
// batches), "confusion" (a list for each label, with the number of its samples that each class was predicted for),
// "rows" (a class each) and "mistakes": the wrong predictions of highest probability, with their pixels; of numbers
// without. Of a text it has "accuracy", "loss" (per symbol), "bits_per_symbol", "bits_per_byte" (of the symbols that
// were predicted, in the file), "perplexity" and "samples_per_second" (windows, read and evaluated), and one row with
// the same.
#include <array>
#include <cmath>
#include <numbers>

#include "bench/commands/trained_model.h"
#include "kernels/split_windows/split_windows.h"
#include "models/training/train.h"
#include "models/training/train_step.h"

namespace hs::bench::commands {
namespace {

constexpr size_t max_matrix = 20;                     // classes; of more, the table has the most frequent mistakes
constexpr int64_t test_batch = 250, text_batch = 64;  // samples, of images and of a text

struct Mistake {
  int64_t sample;
  size_t label, predicted;
  double probability;
};

struct Result {
  std::vector<std::vector<int64_t>> confusion;  // by label, by predicted class
  std::vector<Mistake> mistakes;                // the most certain first
  std::vector<double> rates;                    // samples per second, by batch
  double loss_sum = 0;
  int64_t right = 0, samples = 0;

  double accuracy() const { return static_cast<double>(right) / static_cast<double>(samples); }
};

report::Rows classes_of(const Result& result, const ModelDescription& model) {
  report::Rows rows{.table = {.title = "classes"}};
  for (size_t c = 0; c < result.confusion.size(); ++c) {
    int64_t samples = 0, predicted = 0;
    for (const int64_t count : result.confusion[c]) samples += count;
    for (const std::vector<int64_t>& row : result.confusion) predicted += row[c];
    const auto right = static_cast<double>(result.confusion[c][c]);
    rows.add({{"name", model.class_name(c), "class"},
              {"samples", samples, "samples"},
              {"", right / static_cast<double>(samples), "recognised", "{:.2f} %", 100},
              {"predicted", predicted, "predicted"},
              {"right", result.confusion[c][c]},
              {"", right / static_cast<double>(predicted), "of these right", "{:.2f} %", 100}});
  }
  return rows;
}

report::Table table_of_confusion(const Result& result, const ModelDescription& model) {
  const size_t classes = result.confusion.size();
  report::Table table;
  if (classes <= max_matrix) {
    table.title = "confusion: labels down, predictions across";
    table.heads = {"label"};
    for (size_t c = 0; c < classes; ++c) table.heads.push_back(model.class_name(c));
    for (size_t label = 0; label < classes; ++label) {
      auto& line = table.lines.emplace_back(1, model.class_name(label));
      for (const int64_t count : result.confusion[label]) line.push_back(std::to_string(count));
    }
    return table;
  }
  table.title = "the most frequent mistakes";
  table.heads = {"label", "predicted", "times"};
  std::vector<std::array<int64_t, 3>> pairs;
  for (size_t label = 0; label < classes; ++label) {
    for (size_t c = 0; c < classes; ++c) {
      const int64_t count = result.confusion[label][c];
      if (c != label && count > 0) pairs.push_back({count, static_cast<int64_t>(label), static_cast<int64_t>(c)});
    }
  }
  std::ranges::stable_sort(pairs, std::greater(), [](const auto& pair) { return pair[0]; });
  pairs.resize(std::min(pairs.size(), max_matrix));
  for (const auto& [count, label, c] : pairs) {
    table.lines.push_back({model.class_name(static_cast<size_t>(label)), model.class_name(static_cast<size_t>(c)),
                           std::to_string(count)});
  }
  return table;
}

report::Rows mistakes_of(const Result& result, const ModelDescription& model, const SampleSource& test) {
  report::Rows rows{.table = {.title = "worst mistakes"}};
  for (const auto& [sample, label, predicted, probability] : result.mistakes) {
    const bool is_image = test.info().type == DType::u8;
    std::vector<uint8_t> pixels(is_image ? static_cast<size_t>(test.info().image_bytes()) : 0);
    if (is_image) test.read(sample, pixels.data());
    rows.add({{"sample", sample, "sample"},
              {"label", label},
              {"", model.class_name(label), "label"},
              {"predicted", predicted},
              {"", model.class_name(predicted), "predicted"},
              {"probability", probability, "with", "{:.2f} %", 100},
              {"columns", is_image ? test.info().columns : 0},
              {"channels", test.info().channels},
              {"pixels", pixels}});
  }
  return rows;
}

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

  // Unlike evaluate() of training, which needs sums alone, with the probabilities of each image.
  Result evaluate(const SampleSource& test, Device device) const {
    const ParameterArena arena(*loaded_.model, device);
    Loader loader(test, {.batch = test_batch, .shuffle = false, .device = device});
    const auto classes = static_cast<size_t>(test.info().classes);
    Result result;
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
    const SampleInfo& info = data.test->info();
    const Result result = evaluate(*data.test, device);
    record["accuracy"] = result.accuracy();
    record["loss"] = finite_or_null(result.loss_sum / static_cast<double>(result.samples));
    record["samples_per_second"] = median(result.rates);
    record["confusion"] = result.confusion;
    const report::Rows classes = classes_of(result, loaded_.description),
                       mistakes = mistakes_of(result, loaded_.description, *data.test);
    record["rows"] = classes.json;
    record["mistakes"] = mistakes.json;
    std::vector<report::Table> tables = {classes.table, table_of_confusion(result, loaded_.description)};
    if (!result.mistakes.empty()) tables.push_back(mistakes.table);
    outputs_.finish(
        record,
        fmt::format("{} on {}: {} of {} test samples right, {:.2f} %, loss {:.4f}, {:.0f} samples/s",
                    loaded_.description.model, info.name, result.right, result.samples, 100 * result.accuracy(),
                    result.loss_sum / static_cast<double>(result.samples), median(result.rates)),
        tables, remarks_about(data));
  }

  // Each symbol of the windows but the first one of all is predicted once.
  void show_text(Json& record, const cli::TrainingData& data, Device device) {
    const SampleInfo& info = data.test->info();
    const ParameterArena arena(*loaded_.model, device);
    Loader loader(*data.test, {.batch = text_batch, .shuffle = false, .device = device});
    const Clock::time_point start = Clock::now();
    const auto is_interrupted = [] { return cli::check_signals("while evaluating; no results were written"), false; };
    const Evaluation result = hs::evaluate(*loaded_.model, loader, device, is_interrupted);
    const double rate = static_cast<double>(info.count) / seconds_since(start);
    if (!std::isfinite(result.loss)) {
      fail(ExitCode::numeric, "the loss is {}: the model's weights are damaged; train it again", result.loss);
    }
    int64_t symbols = 0, bytes = 0;
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      for (const int32_t symbol : split_windows(loader.next().images).labels.to_vector<int32_t>()) {
        ++symbols;
        bytes += std::ssize(info.vocabulary[static_cast<size_t>(symbol)]);
      }
    }
    const double bits = result.loss / std::numbers::ln2;
    const double bits_per_byte = bits * static_cast<double>(symbols) / static_cast<double>(bytes);
    report::Rows rows{.table = {.title = "the test, in which each symbol is predicted once"}};
    rows.add({{"name", info.name, "text"},
              {"symbols", symbols, "symbols"},
              {"bytes", bytes, "bytes"},
              {"accuracy", result.accuracy, "recognised", "{:.2f} %", 100},
              {"loss", result.loss, "loss", "{:.4f}"},
              {"perplexity", std::exp(result.loss), "perplexity", "{:.3f}"},
              {"bits_per_symbol", bits, "bits per symbol", "{:.4f}"},
              {"bits_per_byte", bits_per_byte, "bits per byte", "{:.4f}"},
              {"samples_per_second", rate, "samples/s", "{:.0f}"}});
    record.update(rows.json[0]);
    record.erase("name");
    record["rows"] = rows.json;
    outputs_.finish(record,
                    fmt::format("{} on {}: loss {:.4f}, {:.4f} bits per symbol, {:.4f} per byte, {:.0f} samples/s",
                                loaded_.description.model, info.name, result.loss, bits, bits_per_byte, rate),
                    {rows.table}, remarks_about(data));
  }

  std::vector<std::string> remarks_about(const cli::TrainingData& data) const {
    const std::string &trained_on = loaded_.description.data, &name = data.test->info().name;
    std::vector<std::string> remarks;
    if (trained_on != name)
      remarks.push_back(fmt::format("the model was trained on {}, and this is {}", trained_on, name));
    if (const std::string doubt = doubt_about(data); !doubt.empty()) remarks.push_back(doubt);
    return remarks;
  }

  void run(const cli::Flags& flags) override {
    load();
    const char* other = reads_text() ? "--mistakes" : "--unknown";
    if (flags.given(other)) {
      fail(ExitCode::usage, "{}: is for models of {}, and {} is one of {}", other, reads_text() ? "images" : "a text",
           printable(model_), reads_text() ? "a text" : "images");
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
