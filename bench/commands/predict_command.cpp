// halfstep-bench predict: what a trained model sees in images.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/cli/console.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/commands/commands.h"
#include "bench/measure/predictions.h"
#include "data/formats/fit_image.h"
#include "engine/check.h"
#include "engine/input_file.h"

namespace hs::bench::commands {
namespace {

constexpr int64_t largest_side = 4096;  // of an image that is resized: 64 MiB of pixels
constexpr double light_border = 128;    // from here on an image looks like ink on paper
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

class PredictCommand : public cli::Command {
 public:
  std::string name() const override { return "predict"; }
  std::string summary() const override { return "Say what a trained model sees in images"; }
  std::string footnote() const override {
    return R"(Examples:
  halfstep-bench train --save-model digits.safetensors
  halfstep-bench predict --model digits.safetensors --test
  halfstep-bench predict --model digits.safetensors photo.png scan.pgm --invert

Prints each image as the model gets it, and below it the most probable classes. Images of files are made grey or
coloured and resized as the model needs them, which the line below the picture says. Models of digits expect light
strokes on black: --invert is for ink on paper. docs/model_files.md describes the files.
)";
  }
  void declare(cli::Flags& flags) override {
    flags.text("--model", model_, "FILE", "Model that train --save-model wrote");
    flags.words("IMAGE", images_, 0, 1000, "PNG or PGM files, of any size");
    flags.on_off("--test", test_, "Images of the data set's test split instead of files");
    flags.integer("--count", count_, 1, 10000, "How many of them, from the first on");
    flags.data(data_);
    flags.integer("--top", top_, 1, 1000, "Classes to print of each image");
    flags.on_off("--invert", invert_, "Swap black and white in the files");
  }
  void run(const cli::Flags& flags) override;

 private:
  void predict_file(const std::string& path) const;
  void predict_test() const;
  struct Verdict {
    size_t best;       // class
    std::string text;  // "3 with 98.31 %, 5 with 1.20 %, 8 with 0.31 %"
  };
  Verdict verdict_on(const Image& image) const;

  std::string model_, data_;
  std::vector<std::string> images_;
  bool test_ = false, invert_ = false;
  int64_t count_ = 10, top_ = 3;
  LoadedModel loaded_;
};

PredictCommand::Verdict PredictCommand::verdict_on(const Image& image) const {
  const Tensor pixels = Tensor::from(image.pixels, {1, image.shape.rows, image.shape.columns, image.shape.channels});
  const std::vector<double> probabilities = measure::predict(*loaded_.model, pixels, loaded_.description.scale).front();
  std::vector<size_t> classes(probabilities.size());
  std::iota(classes.begin(), classes.end(), 0);
  std::ranges::stable_sort(classes, std::greater(), [&](size_t c) { return probabilities[c]; });
  classes.resize(std::min(classes.size(), static_cast<size_t>(top_)));
  std::string text;
  for (const size_t c : classes) {
    text += fmt::format("{}{} with {:.2f} %", text.empty() ? "" : ", ", c, 100 * probabilities[c]);
  }
  return {classes[0], text};
}

void PredictCommand::predict_file(const std::string& path) const {
  const std::string name = printable(path);
  const ModelSizes& sizes = loaded_.description.sizes;
  FittedImage fitted = fit_image(decode_image(read_file(path, max_image_file_bytes), name, largest_side),
                                 {sizes.rows, sizes.columns, sizes.channels});
  if (invert_) {
    invert(fitted.image);
    fitted.changes.emplace_back("inverted");
  }
  std::string text = picture_of(fitted.image);
  if (!fitted.changes.empty()) text += fmt::format("{}\n", fmt::join(fitted.changes, ", "));
  cli::write_stdout(text + fmt::format("{}: {}\n", name, verdict_on(fitted.image).text));
  if (border_mean(fitted.image) >= light_border && !invert_) {
    cli::notice(name +
                ": its border is light; if it is ink on paper and the model learned light on black, give --invert");
  }
}

void PredictCommand::predict_test() const {
  const cli::TrainingData data = cli::open_training_data(data_, {1, true}, {count_, true});
  const SampleInfo& info = data.test->info();
  measure::check_fits(loaded_.description, info);
  int64_t right = 0;
  for (int64_t i = 0; i < info.count; ++i) {
    cli::check_signals("while predicting");
    Image image{info.shape(), std::vector<uint8_t>(static_cast<size_t>(info.image_bytes()))};
    data.test->read(i, image.pixels.data());
    const Verdict verdict = verdict_on(image);
    const auto label = static_cast<size_t>(data.test->label(i));
    right += verdict.best == label;
    cli::write_stdout(fmt::format("{}{} test sample {}, a {}: {}{}\n", picture_of(image), info.name, i, label,
                                  verdict.text, verdict.best == label ? "" : " (wrong)"));
  }
  cli::write_stdout(fmt::format("{}: {} of {} right\n", info.name, right, info.count));
}

void PredictCommand::run(const cli::Flags& flags) {
  if (model_.empty()) fail(ExitCode::usage, "--model: is missing, expected the FILE that train --save-model wrote");
  if (test_ == !images_.empty()) {
    fail(ExitCode::usage, "predict: {}, expected IMAGE files or --test",
         test_ ? "IMAGE files and --test" : "neither IMAGE files nor --test");
  }
  for (const char* flag : {"--count", "--data"}) {
    if (flags.given(flag) && !test_) fail(ExitCode::usage, "{}: is for --test alone", flag);
  }
  if (invert_ && test_) fail(ExitCode::usage, "--invert: is for IMAGE files alone");
  loaded_ = measure::load_image_model(model_);
  const int64_t channels = loaded_.description.sizes.channels;
  if (!test_ && channels != 1 && channels != 3) {
    fail(ExitCode::usage, "{}: a model of images with {} channels, IMAGE files have 1 or 3; use --test", model_,
         channels);
  }
  if (test_) return predict_test();
  for (const std::string& path : images_) {
    cli::check_signals("while predicting");
    predict_file(path);
  }
}

}  // namespace

std::unique_ptr<cli::Command> make_predict_command() { return std::make_unique<PredictCommand>(); }

}  // namespace hs::bench::commands
