// The models, by name. Each has its own file, with its class, layers and registration; nothing else knows a model's
// name, unless it is a default. Most take normalised images (N, H, W, C) in f32, or inside an Autocast scope in its
// type, and return logits (N, classes). Those of a text take tokens (N, T) in i32 and return logits (N * T, classes),
// for the token after each. docs/add_a_model.md adds one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch.h"
#include "models/layers.h"

namespace hs {

inline constexpr int64_t default_blocks = 64;  // the usual depth

// The images and classes of a model: MNIST's or another data set's. They determine the first and the last layer. A text
// comes as windows of context + 1 symbols: "images" of one row, whose pixels are symbols of 1 or 2 bytes, and whose
// classes are the symbols.
struct ModelSizes {
  int64_t rows = 28;     // image height
  int64_t columns = 28;  // image width
  int64_t channels = 1;  // values of a pixel
  int64_t classes = 10;
  int64_t blocks = 0;  // the depth of a model registered with has_blocks, 0: its usual one; others ignore it
  InputKind input = InputKind::images;  // what the model reads
  int64_t width = 128, heads = 4;       // of a model of a text; others ignore them

  int64_t context() const { return columns - 1; }  // tokens that a model of a text sees
};

// Throws Error: usage (no model has this name: the message lists those that exist; a size is 0), bad_input (the images
// are too small, or the model reads a text and they are images, or the other way round).
// REQUIRES: blocks >= 0
std::unique_ptr<StagedModel> make_model(std::string_view name, uint64_t seed, const ModelSizes& sizes = {});

std::vector<std::string> model_names(std::optional<InputKind> input = {});  // in alphabetical order

// What a model is registered with.
struct ModelOptions {
  bool has_blocks = false;              // whether ModelSizes::blocks is its depth
  int64_t blocks = default_blocks;      // its usual depth
  InputKind input = InputKind::images;  // what the model reads
  // Its depth for ModelSizes::blocks.
  int64_t depth(int64_t wanted) const { return wanted > 0 ? wanted : blocks; }
};
ModelOptions model_options(std::string_view name);  // of a name that no model has: the defaults

// --- for the models' files ---

// Positions left of an image after a model's convolutions and poolings, which reduce a side to shrink(side). Throws
// Error (bad_input) if the images are too small.
int64_t positions_after(const char* model, const ModelSizes& sizes, int64_t (*shrink)(int64_t side));

class RegisteredModel {  // see REGISTER_MODEL()
 public:
  using Make = std::unique_ptr<StagedModel> (*)(uint64_t seed, const ModelSizes& sizes);  // constructs the model
  RegisteredModel(const char* name, Make make, const ModelOptions& options = {});         // aborts if the name is taken
};

// REGISTER_MODEL("mlp", Mlp); or, for a model of any depth, REGISTER_MODEL("deep_cnn", DeepCnn, {.has_blocks = true});
// The constructor is Model(LayerKeys& keys, const ModelSizes& sizes). Registering a name twice aborts at program start.
#define REGISTER_MODEL(name, Model, ...)                                                           \
  [[maybe_unused]] static const ::hs::RegisteredModel registered_##Model {                         \
    name, [](uint64_t seed, const ::hs::ModelSizes& sizes) -> std::unique_ptr<::hs::StagedModel> { \
      ::hs::LayerKeys keys(seed);                                                                  \
      return std::make_unique<Model>(keys, sizes);                                                 \
    } __VA_OPT__(, ) __VA_ARGS__                                                                   \
  }

}  // namespace hs
