// Text from a model of a text: symbol by symbol, each drawn from what the model predicts after the ones before it.
#pragma once

#include <functional>
#include <string>

#include "engine/device.h"
#include "models/description.h"

namespace hs {

// How generate() draws symbols.
struct GenerateOptions {
  int64_t length = 500;    // symbols to draw
  double temperature = 1;  // logits are divided by it: below 1 the likely symbols become likelier; 0: the likeliest
  int64_t top_k = 0;       // draw from this many of the likeliest symbols; 0: from all
  uint64_t seed = 1;       // symbol i depends on (seed, i) and on the symbols before it
};

// Calls on_symbol with each symbol that is drawn, in order; stops early if it returns false. The model sees the last
// context() symbols of prompt and text; its parameters are on `device`. Throws Error: usage (the model reads images;
// the prompt is empty, or has what is not in the vocabulary; the temperature is negative), numeric (a logit
// is not finite).
void generate(StagedModel& model, const ModelDescription& description, const std::string& prompt,
              const GenerateOptions& options, const std::function<bool(const std::string& symbol)>& on_symbol,
              Device device = Device::cpu);
// What a text begins with if nothing else is said: a line break, or the first symbol of a vocabulary without one.
std::string default_prompt(const Vocabulary& vocabulary);

}  // namespace hs
