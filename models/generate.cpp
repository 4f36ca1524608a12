#include "models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/random.h"

namespace hs {
namespace {

// The symbol that a number from 0 to 1 stands for, if the likeliest come first.
int32_t draw(std::vector<float> logits, const GenerateOptions& options, double uniform) {
  for (const float logit : logits) {
    if (!std::isfinite(logit)) {
      fail(ExitCode::numeric, "an output of the model is {}: its weights are damaged; train it again", logit);
    }
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t symbol) { return logits[static_cast<size_t>(symbol)]; };
  std::ranges::stable_sort(order, std::greater(), logit);
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> sums;  // of the probabilities up to each symbol, not yet divided by all of them
  for (const int32_t symbol : order) {
    const double weight = std::exp((double{logit(symbol)} - logit(order[0])) / options.temperature);
    sums.push_back(weight + (sums.empty() ? 0 : sums.back()));
  }
  const auto found = std::ranges::upper_bound(sums, uniform * sums.back());
  return order[static_cast<size_t>(std::min(found, sums.end() - 1) - sums.begin())];
}

}  // namespace

std::string default_prompt(const Vocabulary& vocabulary) {
  if (vocabulary.empty()) return "";  // of images
  return std::ranges::count(vocabulary, "\n") == 0 ? vocabulary[0] : "\n";
}

void generate(StagedModel& model, const ModelDescription& description, const std::string& prompt,
              const GenerateOptions& options, const std::function<bool(const std::string& symbol)>& on_symbol,
              Device device) {
  check(model.input_kind() == InputKind::tokens, "generate: the model {} reads images, expected one of a text",
        description.model);
  check(!prompt.empty(), "generate: the prompt is empty, expected a symbol or more");
  check(options.temperature >= 0, "generate: a temperature of {}, expected 0 or more", options.temperature);
  const Vocabulary& vocabulary = description.vocabulary;
  const EncodedText encoded = encode(prompt, vocabulary);
  if (encoded.left_out > 0) {
    fail(ExitCode::usage, "generate: the prompt has {}; leave it out", encoded.left_out_text(vocabulary));
  }
  std::vector<int32_t> symbols(encoded.symbols.begin(), encoded.symbols.end());
  const Inference scope;
  const auto context = static_cast<size_t>(description.sizes.context());
  const RandomStream stream{options.seed, RandomPurpose::synthetic, 0, 0, 0};
  for (int64_t i = 0; i < options.length; ++i) {
    const size_t count = std::min(symbols.size(), context);
    const std::vector<int32_t> seen(symbols.end() - static_cast<std::ptrdiff_t>(count), symbols.end());
    const auto T = static_cast<int64_t>(count);
    const Tensor logits = model.forward(Tensor::from(seen, {1, T}).to(device));  // (T, classes)
    const int64_t classes = logits.shape().back();
    const Tensor last = logits.slice((T - 1) * classes, {classes});
    const double uniform = double{to_unit_float(random_bits(stream, static_cast<uint64_t>(i)))};
    symbols.push_back(draw(last.to_vector<float>(), options, uniform));
    if (!on_symbol(vocabulary[static_cast<size_t>(symbols.back())])) return;
  }
}

}  // namespace hs
