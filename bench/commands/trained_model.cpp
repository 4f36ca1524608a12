#include "bench/commands/trained_model.h"

#include <cmath>

#include "data/open_dataset.h"
#include "engine/ambient.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::bench::commands {
namespace {

// Throws Error (bad_input) unless the set is a text for a model of one, or has images of the model's size and its
// classes.
void check_fits(const ModelDescription& model, const SampleInfo& set) {
  const ModelSizes& sizes = model.sizes;
  const bool reads_text = sizes.input == InputKind::tokens;
  if (set.is_text() != reads_text) {
    fail(ExitCode::bad_input, "{}: {}, but the model reads {}; give another --data", set.name,
         set.is_text() ? "is a text" : "has images", reads_text ? "a text" : "images");
  }
  SampleInfo wanted{{sizes.rows, sizes.columns, sizes.channels}, "", ""};
  wanted.type = model.type;
  if (set.shape() != wanted.shape() || set.type != wanted.type || set.classes != sizes.classes) {
    fail(ExitCode::bad_input, "{}: images of {} in {} classes, but the model was trained on {} in {}; give --data",
         set.name, set.text(), set.classes, wanted.text(), sizes.classes);
  }
  if (model.class_names.empty() || set.class_names.empty()) return;
  const auto [own, other] = std::ranges::mismatch(model.class_names, set.class_names);
  if (own == model.class_names.end()) return;
  fail(ExitCode::bad_input, "{}: class {} is {}, but {} in the model's training; give --data", set.name,
       own - model.class_names.begin(), *other, *own);
}

}  // namespace

std::vector<std::vector<double>> log_probabilities(Module& model, const Tensor& images, const PixelScale& scale) {
  const Inference scope;
  const Tensor logits = model.forward(images.dtype() == DType::u8 ? normalize_image(images, scale) : images);
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

void TrainedModelCommand::load() {
  if (model_.empty()) fail(ExitCode::usage, "--model: is missing, expected the FILE that train --save-model wrote");
  loaded_ = load_model(model_);
}

cli::TrainingData TrainedModelCommand::open_test_data(cli::Limit test) const {
  const ModelDescription& model = loaded_.description;
  cli::DataChoice choice = data_;
  if (data_.name.empty() && data_ != cli::DataChoice()) {
    fail(ExitCode::usage,
         "--size, --test-split and --skip-damaged: those of the model's training are used; give them with --data");
  }
  if (data_.name.empty() && model.origin) {
    choice = {.name = model.origin->source,
              .size = cli::parse_size(model.origin->size),
              .test_split = model.origin->test_split,
              .skip_damaged = model.origin->skip_damaged};
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
  TextOptions text;
  if (reads_text()) text = {model.sizes.context(), model.vocabulary, drops_unknown_};
  cli::TrainingData data = cli::open_training_data(choice, {1, true}, test, text);  // one sample of training will do
  check_fits(model, data.test->info());
  return data;
}

std::string TrainedModelCommand::doubt_about(const cli::TrainingData& data) const {
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

}  // namespace hs::bench::commands
