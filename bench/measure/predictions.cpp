#include "bench/measure/predictions.h"

#include <algorithm>
#include <cmath>

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/printable.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::bench::measure {

std::vector<std::vector<double>> predict(Module& model, const Tensor& images, const PixelScale& scale) {
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
    std::vector<double>& probabilities = all.emplace_back(row, row + static_cast<std::ptrdiff_t>(classes));
    const double largest = *std::ranges::max_element(probabilities);
    double sum = 0;
    for (double& value : probabilities) sum += value = std::exp(value - largest);
    for (double& value : probabilities) value /= sum;
  }
  return all;
}

LoadedModel load_image_model(const std::string& file) {
  LoadedModel loaded = load_model(file);
  if (loaded.model->input_kind() == InputKind::images) return loaded;
  fail(ExitCode::usage, "{}: {} is a model of a text, expected one of images; generate writes with it", printable(file),
       loaded.description.model);
}

size_t most_probable(const std::vector<double>& probabilities) {
  return static_cast<size_t>(std::ranges::max_element(probabilities) - probabilities.begin());
}

void check_fits(const ModelDescription& model, const SampleInfo& set) {
  const ModelSizes& sizes = model.sizes;
  const ImageShape wanted = {sizes.rows, sizes.columns, sizes.channels};
  if (set.shape() == wanted && set.classes == sizes.classes) return;
  fail(ExitCode::bad_input, "{}: images of {} in {} classes, but the model was trained on {} in {}; give --data",
       set.name, set.shape().text(), set.classes, wanted.text(), sizes.classes);
}

}  // namespace hs::bench::measure
