// halfstep-bench predict and evaluate: what a trained model sees in images, and how well it does on a test set.
//
// The record of evaluate has "accuracy", "loss", "samples_per_second" (of the model alone, reading left out; the median
// of its batches), "confusion" (a list for each label, with the number of its samples that each class was predicted
// for), "rows" (a class each) and "mistakes": the wrong predictions of highest probability, with their pixels.
#include <fmt/ranges.h>

#include <unistd.h>

#include <array>
#include <cmath>
#include <iostream>
#include <numeric>

#include "bench/commands/commands.h"
#include "data/formats/fit_image.h"
#include "data/formats/image_folder.h"
#include "data/open_dataset.h"
#include "engine/ambient.h"
#include "engine/files/input_file.h"
#include "kernels/normalize_image/normalize_image.h"
#include "models/files/model_file.h"
#include "models/training/train_step.h"

namespace hs::bench::commands {
namespace {

// For each image of (N, H, W, C) the natural logarithm of the probability of each class, which is finite where that is
// 0. images: u8 pixels, on the model's device. Throws Error (numeric) if the model computes something that is not
// finite.
std::vector<std::vector<double>> log_probabilities(Module& model, const Tensor& images, const PixelScale& scale) {
  const Inference scope;
  const Tensor logits = model.forward(normalize_image(images, scale));  // (N, classes)
  const std::vector<float> values = logits.to_vector<float>();
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad != values.end()) {
    fail(ExitCode::numeric,
         "an output of the model is {}, which is not finite: its weights are damaged; train it again", *bad);
  }
  const auto classes = static_cast<size_t>(logits.shape().back());
  std::vector<std::vector<double>> all;
  for (auto row = values.begin(); row != values.end(); row += static_cast<std::ptrdiff_t>(classes)) {
    std::vector<double>& logarithms = all.emplace_back(row, row + static_cast<std::ptrdiff_t>(classes));
    const double largest = *std::ranges::max_element(logarithms);
    double sum = 0;
    for (const double value : logarithms) sum += std::exp(value - largest);
    for (double& value : logarithms) value -= largest + std::log(sum);
  }
  return all;
}

// Throws Error (bad_input) unless the set has images of the model's size and its classes.
void check_fits(const ModelDescription& model, const SampleInfo& set) {
  const ModelSizes& sizes = model.sizes;
  const ImageShape wanted = {sizes.rows, sizes.columns, sizes.channels};
  if (set.shape() != wanted || set.classes != sizes.classes) {
    fail(ExitCode::bad_input, "{}: images of {} in {} classes, but the model was trained on {} in {}; give --data",
         set.name, set.shape().text(), set.classes, wanted.text(), sizes.classes);
  }
  if (model.class_names.empty() || set.class_names.empty()) return;
  const auto [own, other] = std::ranges::mismatch(model.class_names, set.class_names);
  if (own == model.class_names.end()) return;
  fail(ExitCode::bad_input, "{}: class {} is {}, but {} in the model's training; give --data", set.name,
       own - model.class_names.begin(), *other, *own);
}

// A command that looks at images with a model that train saved.
class ImageModelCommand : public RecordingCommand {
 protected:
  std::string model_;
  cli::DataChoice data_;
  LoadedModel loaded_;

  // Throws Error: usage (no file, or a model of a text), and as load_model().
  void load() {
    loaded_ = load_model(model_);
    if (loaded_.model->input_kind() == InputKind::images) return;
    fail(ExitCode::usage, "{}: {} is a model of a text, expected one of images; generate writes with it",
         printable(model_), loaded_.description.model);
  }
  void check_model_is_given() const {
    if (model_.empty()) fail(ExitCode::usage, "--model: is missing, expected the FILE that train --save-model wrote");
  }

  // The set to test the model on: the one that is given, or without one that of its training, with as many test
  // samples. Throws Error as open_training_data(), and if the model does not say where its own is (usage), if that is
  // not there (io), or if it does not fit: images of another size, or other classes (bad_input).
  cli::TrainingData open_test_data(cli::Limit test) const {
    const ModelDescription& model = loaded_.description;
    cli::DataChoice choice = data_;
    if (data_.name.empty() && data_ != cli::DataChoice()) {
      fail(ExitCode::usage, "--size and --test-split: those of the model's training are used; give them with --data");
    }
    if (data_.name.empty() && model.origin) {
      choice = {.name = model.origin->source,
                .size = cli::parse_size(model.origin->size),
                .test_split = model.origin->test_split};
      if (test.samples == cli::automatic_samples) test = {model.origin->test, true};
      std::error_code ignored;
      const auto& names = dataset_names();
      if (std::ranges::count(names, choice.name) == 0 && !std::filesystem::exists(choice.name, ignored)) {
        fail(ExitCode::io, "{}: is not there, and the model was trained on it; give --data", printable(choice.name));
      }
    } else if (data_.name.empty()) {
      fail(ExitCode::usage, "--data: is missing; the model was trained on {}, and its file does not say where that is",
           model.data);
    }
    choice.scale = model.scale;
    cli::TrainingData data = cli::open_training_data(choice, {1, true}, test);
    check_fits(model, data.test->info());
    return data;
  }

  // What the user should know about samples that the model is tested on; empty: nothing.
  std::string doubt_about(const cli::TrainingData& data) const {
    const auto& origin = loaded_.description.origin;
    if (!origin || origin->contents.empty() || data.contents.empty()) return "";
    if (origin->contents != data.contents) {
      const bool is_same_place = origin->source == data.choice.name;
      return fmt::format("the set {} the model's training: it had {}, and this is {}",
                         is_same_place ? "has changed since" : "is not that of", origin->contents, data.contents);
    }
    if (!data.is_split || data.choice.test_split <= origin->test_split) return "";
    return fmt::format("the model has seen some of this test: its training held out {} of the set, and this is {}",
                       origin->test_split, data.choice.test_split);
  }
};

constexpr double light_border = 128;    // from here on an image looks like ink on paper
constexpr float dark_mean = 0.5f;       // of the images that a model learned: below it the ground is dark
constexpr int64_t widest_picture = 64;  // columns of the terminal

// Two rows of pixels to a line, because characters are about twice as high as wide. Wider images are shown smaller.
std::string picture_of(const Image& image) {
  constexpr std::string_view shades = " .:-=+*#%@";
  const int64_t columns = std::min(image.shape.columns, widest_picture);
  const int64_t lines = std::max<int64_t>(1, image.shape.rows * columns / image.shape.columns / 2);
  const Image small = fit_image(image, {lines, columns, 1}).image;
  std::string text;
  for (size_t at = 0; at < small.pixels.size(); ++at) {
    text += shades[small.pixels[at] * shades.size() / 256];
    if ((at + 1) % static_cast<size_t>(columns) == 0) text += '\n';
  }
  return text;
}

constexpr int64_t no_label = -1;

std::vector<uint8_t> read_stdin() {
  std::vector<uint8_t> bytes(max_image_file_bytes + 1);
  std::cin.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<uint64_t>(std::cin.gcount()) > max_image_file_bytes) {
    fail(ExitCode::bad_input, "stdin: more than {} bytes, expected one image", max_image_file_bytes);
  }
  bytes.resize(static_cast<size_t>(std::cin.gcount()));
  return bytes;
}

class PredictCommand : public ImageModelCommand {
  std::vector<std::string> images_;
  bool test_ = false, invert_ = false;
  int64_t count_ = 10, top_ = 3;
  Json tested_;  // the data, with --test
  report::Rows rows_{.table = {.title = "predictions"}};
  std::vector<std::string> light_;  // names of images that look like ink on paper, to a model of light strokes
  Json unread_ = Json::array();     // files, and why
  std::optional<Error> first_error_;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"train --save-model digits.safetensors", "predict --model digits.safetensors --test",
         "predict --model digits.safetensors photo.png scan.pgm --invert",
         "predict --model digits.safetensors scans --json answers.json   # a folder",
         "predict --model digits.safetensors - <photo.png"},
        "Prints the most probable classes of each image, on a terminal below the image as the model gets it: grey or\n"
        "coloured and resized, which the line below the picture says. Models of digits expect light strokes on black:\n"
        "--invert is for ink on paper. docs/model_files.md describes the files.");
    flags.model_file(model_);
    flags.words("IMAGE", images_, 0, 1000,
                "PNG, JPEG or PGM files of at most 4096 x 4096 pixels and 16 MiB, folders of them, or - for stdin");
    flags.on_off("--test", test_, "Images of the test part of the model's data, or of --data, instead of files");
    flags.integer("--count", count_, 1, 10000, "How many of them");
    flags.data(data_);
    flags.integer("--top", top_, 1, 1000, "Classes to print of each image");
    flags.on_off("--invert", invert_, "Swap black and white in the files");
  }

  void print(const std::string& text) const {
    outputs_.use_stdout() ? cli::write_stderr(text) : cli::write_stdout(text);
  }

  // Prints what the model sees in an image, and notes it for the record. Returns whether that is the label.
  bool answer(const std::string& name, const Image& image, const std::vector<std::string>& changes, int64_t label) {
    const ModelDescription& model = loaded_.description;
    const Tensor pixels = Tensor::from(image.pixels, {1, image.shape.rows, image.shape.columns, image.shape.channels});
    const std::vector<double> probabilities = mapped(log_probabilities(*loaded_.model, pixels, model.scale).front(),
                                                     [](double log) { return std::exp(log); });
    std::vector<size_t> classes(probabilities.size());
    std::iota(classes.begin(), classes.end(), 0);
    std::ranges::stable_sort(classes, std::greater(), [&](size_t c) { return probabilities[c]; });
    classes.resize(std::min(classes.size(), static_cast<size_t>(top_)));
    const bool is_right = static_cast<int64_t>(classes[0]) == label;
    Json all = Json::array();
    std::vector<std::string> texts;
    for (const size_t c : classes) {
      texts.push_back(fmt::format("{} with {:.2f} %", model.class_name(c), 100 * probabilities[c]));
      all.push_back({{"class", model.class_name(c)}, {"probability", probabilities[c]}});
    }
    std::vector<report::Figure> row = {{"name", name, "image"},
                                       {"class", model.class_name(classes[0]), "class"},
                                       {"probability", probabilities[classes[0]], "with", "{:.2f} %", 100}};
    if (label != no_label) row.push_back({"label", model.class_name(static_cast<size_t>(label))});
    row.insert(row.end(), {{"classes", all}, {"changes", changes}});
    rows_.add(row);
    std::string picture;
    if (isatty(STDOUT_FILENO) == 1) {
      picture = picture_of(image);
      if (!changes.empty()) picture += fmt::format("{}\n", fmt::join(changes, ", "));
    }
    const std::string what = label == no_label ? "" : ", a " + model.class_name(static_cast<size_t>(label));
    print(fmt::format("{}{}{}: {}{}\n", picture, name, what, fmt::join(texts, ", "),
                      label == no_label || is_right ? "" : " (wrong)"));
    return is_right;
  }

  void predict_file(const std::string& path) {
    const std::string name = path == "-" ? "stdin" : printable(path);
    const ModelSizes& sizes = loaded_.description.sizes;
    const std::vector<uint8_t> bytes = path == "-" ? read_stdin() : read_file(path, max_image_file_bytes);
    FittedImage fitted = decode_to_fit(bytes, name, {sizes.rows, sizes.columns, sizes.channels});
    if (invert_) {
      invert(fitted.image);
      fitted.changes.emplace_back("inverted");
    }
    answer(name, fitted.image, fitted.changes, no_label);
    if (border_mean(fitted.image) >= light_border && loaded_.description.scale.mean < dark_mean) light_.push_back(name);
  }

  // Goes on after a file that cannot be read, so that the answers to the others are there.
  void predict_files(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      cli::check_signals("while predicting");
      try {
        predict_file(file);
      } catch (const Error& error) {
        if (error.code() != ExitCode::bad_input && error.code() != ExitCode::io) throw;
        if (unread_.empty()) first_error_ = error;
        unread_.push_back({{"name", printable(file)}, {"error", error.what()}});
        if (files.size() > 1 || images_.size() > 1) cli::notice(error.what());
      }
    }
    if (!light_.empty() && !invert_) {
      const std::string others = light_.size() > 1 ? fmt::format(" (and of {} more)", light_.size() - 1) : "";
      cli::notice(
          fmt::format("{}: its border is light{}, and the model learned dark images; if it is ink on paper, "
                      "give --invert",
                      light_.front(), others));
    }
    light_.clear();
  }

  void predict_test() {
    const cli::TrainingData data = open_test_data({count_, true});
    const SampleInfo& info = data.test->info();
    if (const std::string doubt = doubt_about(data); !doubt.empty()) cli::notice(doubt);
    tested_ = report::describe_data(data);
    int64_t right = 0;
    for (int64_t i = 0; i < info.count; ++i) {
      cli::check_signals("while predicting");
      Image image{info.shape(), std::vector<uint8_t>(static_cast<size_t>(info.image_bytes()))};
      data.test->read(i, image.pixels.data());
      right += answer(fmt::format("{} test sample {}", info.name, i), image, {}, data.test->label(i));
    }
    print(fmt::format("{}: {} of {} right\n", info.name, right, info.count));
  }

  void run(const cli::Flags& flags) override {
    check_model_is_given();
    if (test_ == !images_.empty()) {
      fail(ExitCode::usage, "predict: {}, expected IMAGE files or --test",
           test_ ? "IMAGE files and --test" : "neither IMAGE files nor --test");
    }
    for (const char* flag : {"--count", "--data", "--size", "--test-split"}) {
      if (flags.given(flag) && !test_) fail(ExitCode::usage, "{}: is for --test alone", flag);
    }
    if (invert_ && test_) fail(ExitCode::usage, "--invert: is for IMAGE files alone");
    outputs_.open();
    load();
    const int64_t channels = loaded_.description.sizes.channels;
    if (!test_ && channels != 1 && channels != 3) {
      fail(ExitCode::usage, "{}: a model of images with {} channels, IMAGE files have 1 or 3; use --test", model_,
           channels);
    }
    if (test_) predict_test();
    for (const std::string& path : images_) {
      std::error_code ignored;
      std::vector<std::string> files = {path};
      if (std::filesystem::is_directory(path, ignored)) {
        files.clear();
        for (const std::filesystem::path& file : image_files(path)) files.push_back(file.string());
      }
      predict_files(files);
    }
    const auto fail_if_unread = [&] {
      if (!first_error_) return;
      if (unread_.size() == 1 && rows_.json.empty()) throw *first_error_;
      throw first_error_->with_message(fmt::format("{} of {} images cannot be read, the first: {}", unread_.size(),
                                                   unread_.size() + rows_.json.size(), first_error_->what()));
    };
    if (rows_.json.empty()) fail_if_unread();
    if (!outputs_.any()) return fail_if_unread();
    Json record = report::new_record(name(), Device::cpu, {}, tested_);
    record["rows"] = rows_.json;
    if (!unread_.empty()) record["unread"] = unread_;
    report::present(record, fmt::format("{}: {} images", loaded_.description.model, rows_.json.size()), {rows_.table});
    outputs_.write(record);
    outputs_.print_report_path();
    fail_if_unread();
  }
};

constexpr size_t largest_matrix = 20;  // classes; of more, the table has the most frequent mistakes
constexpr int64_t test_batch = 250;

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
  if (classes <= largest_matrix) {
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
  pairs.resize(std::min(pairs.size(), largest_matrix));
  for (const auto& [count, label, c] : pairs) {
    table.lines.push_back({model.class_name(static_cast<size_t>(label)), model.class_name(static_cast<size_t>(c)),
                           std::to_string(count)});
  }
  return table;
}

report::Rows mistakes_of(const Result& result, const ModelDescription& model, const SampleSource& test) {
  report::Rows rows{.table = {.title = "worst mistakes"}};
  for (const auto& [sample, label, predicted, probability] : result.mistakes) {
    std::vector<uint8_t> pixels(static_cast<size_t>(test.info().image_bytes()));
    test.read(sample, pixels.data());
    rows.add({{"sample", sample, "sample"},
              {"label", label},
              {"", model.class_name(label), "label"},
              {"predicted", predicted},
              {"", model.class_name(predicted), "predicted"},
              {"probability", probability, "with", "{:.2f} %", 100},
              {"columns", test.info().columns},
              {"channels", test.info().channels},
              {"pixels", pixels}});
  }
  return rows;
}

class EvaluateCommand : public ImageModelCommand {
  std::string device_ = "auto";
  int64_t test_ = cli::automatic_samples, mistakes_ = 12, threads_ = 0;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"evaluate --model digits.safetensors",
         "evaluate --model digits.safetensors --html evaluation.html   # with pictures of the worst mistakes"},
        "The worst mistakes are the wrong answers that the model was most certain of.");
    flags.model_file(model_);
    flags.data(data_);
    flags.test(test_);
    flags.integer("--mistakes", mistakes_, 0, 100, "Worst mistakes to show");
    flags.threads(threads_).unrecorded();
    flags.device(device_);
  }

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

  void run(const cli::Flags& flags) override {
    check_model_is_given();
    outputs_.open();
    cli::use_threads(threads_);
    const Device device = cli::resolve_device(device_);
    load();
    const cli::TrainingData data = open_test_data({test_, !flags.given("--test")});
    const SampleInfo& info = data.test->info();
    const Result result = evaluate(*data.test, device);

    Json record = report::new_record(name(), device, flags.config(), report::describe_data(data));
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
    std::vector<std::string> remarks;
    if (loaded_.description.data != info.name) {
      remarks.push_back(
          fmt::format("the model was trained on {}, and this is {}", loaded_.description.data, info.name));
    }
    if (const std::string doubt = doubt_about(data); !doubt.empty()) remarks.push_back(doubt);
    outputs_.finish(
        record,
        fmt::format("{} on {}: {} of {} test samples right, {:.2f} %, loss {:.4f}, {:.0f} samples/s",
                    loaded_.description.model, info.name, result.right, result.samples, 100 * result.accuracy(),
                    result.loss_sum / static_cast<double>(result.samples), median(result.rates)),
        tables, remarks);
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_predict_command() { return std::make_unique<PredictCommand>(); }
std::unique_ptr<cli::Command> make_evaluate_command() { return std::make_unique<EvaluateCommand>(); }

}  // namespace hs::bench::commands
