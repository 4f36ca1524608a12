// halfstep-bench predict: what a trained model sees in images.
#include <fmt/ranges.h>

#include <unistd.h>

#include <cmath>
#include <iostream>
#include <numeric>

#include "bench/commands/trained_model.h"
#include "data/formats/fit_image.h"
#include "data/formats/image_folder.h"
#include "data/formats/ink.h"
#include "engine/files/input_file.h"

namespace hs::bench::commands {
namespace {

constexpr double light_border = 128;    // from here on an image looks like ink on paper
constexpr double grey_border = 32;      // from here on a resized one looks like a photograph: its ground is not black
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

class PredictCommand : public TrainedModelCommand {
  std::vector<std::string> images_;
  bool test_ = false, invert_ = false, ink_ = false;
  int64_t count_ = 10, top_ = 3;
  Json tested_;  // the data, with --test
  report::Rows rows_{.table = {.title = "predictions"}};
  // Names of images that a model of light strokes would know if they were inverted, or prepared as ink.
  std::vector<std::string> light_, photographed_;
  Json unread_ = Json::array();  // files, and why
  std::optional<Error> first_error_;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"train --save-model digits.safetensors", "predict --model digits.safetensors --test",
         "predict --model digits.safetensors photo.jpg --ink   # a digit in ink on paper, or in chalk on a board",
         "predict --model digits.safetensors drawing.png scan.pgm --invert",
         "predict --model digits.safetensors scans --json answers.json   # a folder",
         "predict --model digits.safetensors - <photo.png"},
        "Prints the most probable classes of each image, on a terminal below the image as the model gets it: grey or\n"
        "coloured and resized, which the line below the picture says. Models of digits expect light strokes on black:\n"
        "--ink is for photographs, --invert for images that have black and white the other way round and nothing\n"
        "else. docs/model_files.md describes the files.");
    flags.model_file(model_);
    flags.words("IMAGE", images_, 0, 1000,
                "PNG, JPEG or PGM files of at most 4096 x 4096 pixels and 16 MiB, folders of them, or - for stdin");
    flags.on_off("--test", common(Group::data), test_,
                 "Images of the test part of the model's data, or of --data, instead of files");
    flags.integer("--count", own(), count_, 1, 10000, "How many of them");
    flags.data(data_);
    flags.integer("--top", own(), top_, 1, 1000, "Classes to print of each image");
    flags.on_off("--invert", own().needs([this] { return !test_; }, "is for IMAGE files alone"), invert_,
                 "Swap black and white in the files");
    flags.on_off(
        "--ink", own().needs([this] { return !test_ && !invert_; }, "is for IMAGE files alone, and without --invert"),
        ink_, "Prepare photographs of ink or chalk as MNIST's digits were: ground divided out, cut out, centred");
  }

  void print(const std::string& text) const {
    outputs_.use_stdout() ? cli::write_stderr(text) : cli::write_stdout(text);
  }

  // Prints what the model sees in an image, and notes it for the record. Returns whether that is the label.
  bool answer(const std::string& name, const Image& image, const std::vector<std::string>& changes, int64_t label) {
    const ModelDescription& model = loaded_.description;
    const Tensor pixels = Tensor::from(image.pixels, {std::ssize(image.pixels)})
                              .carve(0, {1, image.shape.rows, image.shape.columns, image.shape.channels}, model.type);
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
    if (isatty(STDOUT_FILENO) == 1 && model.type == DType::u8) {
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
    const ImageShape wanted = {sizes.rows, sizes.columns, sizes.channels};
    FittedImage fitted = ink_ ? decode_ink(bytes, name, wanted) : decode_to_fit(bytes, name, wanted);
    const bool is_resized =
        std::ranges::any_of(fitted.changes, [](const std::string& change) { return change.starts_with("resized"); });
    if (invert_) {
      invert(fitted.image);
      fitted.changes.emplace_back("inverted");
    }
    answer(name, fitted.image, fitted.changes, no_label);
    if (ink_ || loaded_.description.scale.mean >= dark_mean) return;
    const double border = border_mean(fitted.image);
    if (is_resized && wanted.channels == 1 && border >= grey_border) {
      photographed_.push_back(name);
    } else if (!invert_ && border >= light_border) {
      light_.push_back(name);
    }
  }

  // One hint for all images that it may help.
  static void hint(const std::vector<std::string>& names, const char* found, const char* advice) {
    if (names.empty()) return;
    const std::string others = names.size() > 1 ? fmt::format(" (and of {} more)", names.size() - 1) : "";
    cli::notice(fmt::format("{}: its border is {}{}, and the model learned dark images; {}", names.front(), found,
                            others, advice));
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
    load();
    if (reads_text()) {
      fail(ExitCode::usage, "{}: {} is a model of a text, expected one of images; generate writes with it",
           printable(model_), loaded_.description.model);
    }
    if (test_ == !images_.empty()) {
      fail(ExitCode::usage, "predict: {}, expected IMAGE files or --test",
           test_ ? "IMAGE files and --test" : "neither IMAGE files nor --test");
    }
    for (const char* flag : {"--count", "--data", "--size", "--test-split", "--skip-damaged"}) {
      if (flags.given(flag) && !test_) fail(ExitCode::usage, "{}: is for --test alone", flag);
    }
    outputs_.open();
    if (!test_ && loaded_.description.type != DType::u8) {
      fail(ExitCode::usage, "{}: a model of f32 values, not of images; use --test", model_);
    }
    const int64_t channels = loaded_.description.sizes.channels;
    if (ink_ && (channels != 1 || loaded_.description.scale.mean >= dark_mean)) {
      fail(ExitCode::usage, "--ink: makes light strokes on black, and {} learned {} images; leave it out", model_,
           channels == 1 ? "light" : "colour");
    }
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
    hint(photographed_, "not black", "if it is a photograph of ink on paper, or of chalk on a board, give --ink");
    hint(light_, "light", "if it is ink on paper, give --invert");
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

}  // namespace

std::unique_ptr<cli::Command> make_predict_command() { return std::make_unique<PredictCommand>(); }

}  // namespace hs::bench::commands
