#include "models/models.h"

#include "engine/check.h"
#include "kernels/elementwise.h"
#include "kernels/feed_forward.h"
#include "kernels/max_pool2d.h"
#include "kernels/relu.h"
#include "models/layers.h"

namespace hs {
namespace {

// Positions that an image still has after a model's convolutions and poolings, which make `shrink` of a side.
int64_t after_convolutions(const char* model, const ModelSizes& sizes, int64_t (*shrink)(int64_t side)) {
  const int64_t rows = shrink(sizes.rows), columns = shrink(sizes.columns);
  if (rows < 1 || columns < 1) {
    fail(ExitCode::bad_input, "--model {}: images of {} x {} are too small for it; use --model mlp", model, sizes.rows,
         sizes.columns);
  }
  return rows * columns;
}

class MnistCnn : public StagedModel {
 public:
  MnistCnn(LayerKeys& keys, const ModelSizes& sizes)
      : conv1_(sizes.channels, 32, {}, keys),
        conv2_(32, 64, {}, keys),
        dropout_(0.5, keys),
        linear_(64 * after_convolutions("mnist_cnn", sizes, [](int64_t side) { return ((side - 2) / 2 - 2) / 2; }),
                sizes.classes, keys) {
    add_child("conv1", conv1_);
    add_child("conv2", conv2_);
    add_child("linear", linear_);
    add_stage("conv1", [this](const Tensor& x) { return relu(max_pool2d(conv1_.forward(x), 2, 2)); });
    add_stage("conv2", [this](const Tensor& x) { return relu(max_pool2d(conv2_.forward(x), 2, 2)); });
    add_stage("linear", [this](const Tensor& x) { return linear_.forward(dropout_.forward(flatten(x))); });
    // (N, 28, 28, 1) -> (N, 13, 13, 32) -> (N, 5, 5, 64) -> (N, 10)
  }

 private:
  Conv2d conv1_, conv2_;
  Dropout dropout_;
  Linear linear_;
};

class MnistCnnLarge : public StagedModel {
 public:
  MnistCnnLarge(LayerKeys& keys, const ModelSizes& sizes)
      : conv1_(sizes.channels, 32, {}, keys),
        conv2_(32, 64, {}, keys),
        dropout1_(0.25, keys),
        linear1_(64 * after_convolutions("mnist_cnn_large", sizes, [](int64_t side) { return (side - 4) / 2; }), 128,
                 keys),
        dropout2_(0.5, keys),
        linear2_(128, sizes.classes, keys) {
    add_child("conv1", conv1_);
    add_child("conv2", conv2_);
    add_child("linear1", linear1_);
    add_child("linear2", linear2_);
    add_stage("conv1", [this](const Tensor& x) { return relu(conv1_.forward(x)); });
    add_stage("conv2", [this](const Tensor& x) { return relu(max_pool2d(conv2_.forward(x), 2, 2)); });
    add_stage("linear1", [this](const Tensor& x) { return relu(linear1_.forward(dropout1_.forward(flatten(x)))); });
    add_stage("linear2", [this](const Tensor& x) { return linear2_.forward(dropout2_.forward(x)); });
    // (N, 28, 28, 1) -> (N, 26, 26, 32) -> (N, 12, 12, 64) -> (N, 128) -> (N, 10)
  }

 private:
  Conv2d conv1_, conv2_;
  Dropout dropout1_;
  Linear linear1_;
  Dropout dropout2_;
  Linear linear2_;
};

class Mlp : public StagedModel {
 public:
  Mlp(LayerKeys& keys, const ModelSizes& sizes)
      : linear1_(sizes.rows * sizes.columns * sizes.channels, 500, keys), linear2_(500, sizes.classes, keys) {
    add_child("linear1", linear1_);
    add_child("linear2", linear2_);
    add_stage("feed_forward", [this](const Tensor& x) {
      return feed_forward(flatten(x), linear1_.weight(), linear1_.bias(), linear2_.weight(), linear2_.bias());
    });
  }

 private:
  Linear linear1_, linear2_;
};

class DeepCnn : public StagedModel {
 public:
  DeepCnn(LayerKeys& keys, const ModelSizes& sizes)
      : share_(1 / static_cast<double>(sizes.blocks)),
        conv_(sizes.channels, 32, same_size, keys),
        linear_(32 * after_convolutions("deep_cnn", sizes, [](int64_t side) { return side / 4; }), sizes.classes,
                keys) {
    add_child("conv", conv_);
    add_stage("conv", [this](const Tensor& x) { return relu(conv_.forward(x)); });  // (N, 28, 28, 32)
    for (int64_t b = 1; b <= sizes.blocks; ++b) {
      const std::string name = fmt::format("block{}", b);
      Conv2d& conv = *blocks_.emplace_back(std::make_unique<Conv2d>(32, 32, same_size, keys));
      add_child(name, conv);
      add_stage(name, [&conv, this](const Tensor& x) { return add(x, scale(relu(conv.forward(x)), share_)); });
    }
    add_child("linear", linear_);
    add_stage("linear", [this](const Tensor& x) { return linear_.forward(flatten(max_pool2d(x, 4, 4))); });
  }

 private:
  static constexpr Conv2dOptions same_size{.padding = 1};

  const double share_;  // of one block in the sum
  Conv2d conv_;
  std::vector<std::unique_ptr<Conv2d>> blocks_;
  Linear linear_;
};

struct ModelRow {
  const char* name;
  std::unique_ptr<StagedModel> (*make)(uint64_t seed, const ModelSizes& sizes);
};

template <class Model>
std::unique_ptr<StagedModel> make(uint64_t seed, const ModelSizes& sizes) {
  LayerKeys keys(seed);
  return std::make_unique<Model>(keys, sizes);
}

constexpr ModelRow model_table[] = {{"mnist_cnn", make<MnistCnn>},
                                    {"mnist_cnn_large", make<MnistCnnLarge>},
                                    {"mlp", make<Mlp>},
                                    {"deep_cnn", make<DeepCnn>}};

}  // namespace

std::unique_ptr<StagedModel> make_model(std::string_view name, uint64_t seed, const ModelSizes& sizes) {
  check(sizes.blocks > 0, "make_model: {} blocks, expected 1 or more", sizes.blocks);
  for (const ModelRow& row : model_table) {
    if (name == row.name) return row.make(seed, sizes);
  }
  fail(ExitCode::usage, "--model {}: no such model; there are {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : model_table) names.push_back(row.name);
  return names;
}

}  // namespace hs
