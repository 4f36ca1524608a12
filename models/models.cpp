#include "models/models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/check.h"

namespace hs {
namespace {

struct Entry {
  RegisteredModel::Make make;
  ModelOptions options;
};

// By name. A function, because the models' files register before main(), in no particular order.
std::map<std::string, Entry, std::less<>>& entries() {
  static std::map<std::string, Entry, std::less<>> all;
  return all;
}

const Entry* find(std::string_view name) {
  const auto found = entries().find(name);
  return found == entries().end() ? nullptr : &found->second;
}

}  // namespace

RegisteredModel::RegisteredModel(const char* name, Make make, const ModelOptions& options) {
  const bool is_new = entries().try_emplace(name, Entry{make, options}).second;
  check(is_new, "REGISTER_MODEL: there are two models named {}; give one another name", name);
}

std::unique_ptr<StagedModel> make_model(std::string_view name, uint64_t seed, const ModelSizes& sizes) {
  check(sizes.blocks >= 0, "make_model: {} blocks, expected 1 or more, or 0 for the usual depth", sizes.blocks);
  check(std::min({sizes.rows, sizes.columns, sizes.channels, sizes.classes, sizes.width, sizes.heads}) >= 1,
        "make_model: {} x {} x {}, {} classes, a width of {} and {} heads, expected 1 or more of each", sizes.rows,
        sizes.columns, sizes.channels, sizes.classes, sizes.width, sizes.heads);
  const Entry* const found = find(name);
  if (!found) {
    fail(ExitCode::usage, "model {}: no such model; there are {}", name, fmt::join(model_names(), ", "));
  }
  const InputKind input = found->options.input;
  if (sizes.input != input) {
    const auto kind = [](InputKind which) { return which == InputKind::tokens ? "a text" : "images"; };
    fail(ExitCode::bad_input, "model {}: reads {}, but the data are {}; give {} as data, or a model of {}: {}", name,
         kind(input), kind(sizes.input), input == InputKind::tokens ? "a .txt file" : "images", kind(sizes.input),
         fmt::join(model_names(sizes.input), ", "));
  }
  ModelSizes all = sizes;
  all.blocks = found->options.depth(sizes.blocks);
  auto model = found->make(seed, all);
  check(model->input_kind() == input, "model {}: its input_kind() is not what it is registered with", name);
  return model;
}

std::vector<std::string> model_names(std::optional<InputKind> input) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries()) {
    if (!input || entry.options.input == *input) names.push_back(name);
  }
  return names;
}

ModelOptions model_options(std::string_view name) {
  const Entry* const found = find(name);
  return found ? found->options : ModelOptions();
}

int64_t positions_after(const char* model, const ModelSizes& sizes, int64_t (*shrink)(int64_t side)) {
  const int64_t rows = shrink(sizes.rows), columns = shrink(sizes.columns);
  if (rows < 1 || columns < 1) {
    fail(ExitCode::bad_input, "model {}: images of {} x {} are too small for it; use mlp", model, sizes.rows,
         sizes.columns);
  }
  return rows * columns;
}

}  // namespace hs
