#include "bench/measure/predictions.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/open_dataset.h"
#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/printable.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::bench::measure {

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

std::vector<std::vector<double>> predict(Module& model, const Tensor& images, const PixelScale& scale) {
  std::vector<std::vector<double>> all = log_probabilities(model, images, scale);
  for (std::vector<double>& one : all) {
    for (double& value : one) value = std::exp(value);
  }
  return all;
}

LoadedModel load_image_model(const std::string& file) {
  LoadedModel loaded = load_model(file);
  if (loaded.model->input_kind() == InputKind::images) return loaded;
  fail(ExitCode::usage, "{}: {} is a model of a text, expected one of images; generate writes with it", printable(file),
       loaded.description.model);
}

namespace {

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

}  // namespace

cli::TrainingData open_test_data(const ModelDescription& model, const cli::DataChoice& given, cli::Limit test) {
  cli::DataChoice choice = given;
  if (given.name.empty() && given != cli::DataChoice()) {
    fail(ExitCode::usage, "--size and --test-split: those of the model's training are used; give them with --data");
  }
  if (given.name.empty() && model.origin) {
    choice = {.name = model.origin->source,
              .size = cli::parse_size(model.origin->size),
              .test_split = model.origin->test_split};
    if (test.samples == cli::automatic_samples) test = {model.origin->test, true};
    std::error_code ignored;
    const auto& names = dataset_names();
    if (std::ranges::count(names, choice.name) == 0 && !std::filesystem::exists(choice.name, ignored)) {
      fail(ExitCode::io, "{}: is not there, and the model was trained on it; give --data", printable(choice.name));
    }
  } else if (given.name.empty()) {  // a file of an earlier version has the name alone
    choice.name = model.data == "synthetic digits" ? "synthetic" : model.data;
    if (std::ranges::count(dataset_names(), choice.name) == 0) {
      fail(ExitCode::usage, "--data: is missing; the model was trained on {}, and its file does not say where that is",
           model.data);
    }
  }
  choice.scale = model.scale;
  cli::TrainingData data = cli::open_training_data(choice, {1, true}, test);
  check_fits(model, data.test->info());
  return data;
}

}  // namespace hs::bench::measure
