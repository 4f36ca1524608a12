#include "models/models.h"

#include "engine/check.h"
#include "kernels/feed_forward.h"
#include "kernels/max_pool2d.h"
#include "kernels/relu.h"
#include "models/layers.h"

namespace hs {
namespace {

// (N, H, W, C) -> (N, H*W*C)
Tensor flatten(const Tensor& x) { return x.reshape({x.shape()[0], x.shape()[1] * x.shape()[2] * x.shape()[3]}); }

// Positions that an image still has after a model's convolutions and poolings, which make `shrink` of a side.
int64_t after_convolutions(const char* model, const ModelInput& input, int64_t (*shrink)(int64_t side)) {
  const int64_t rows = shrink(input.rows), columns = shrink(input.columns);
  if (rows < 1 || columns < 1) {
    fail(ExitCode::bad_input, "--model {}: images of {} x {} are too small for it; use --model mlp", model, input.rows,
         input.columns);
  }
  return rows * columns;
}

class MnistCnn : public Module {
 public:
  MnistCnn(uint64_t seed, const ModelInput& input)
      : conv1_(input.channels, 32, {}, seed, 1),
        conv2_(32, 64, {}, seed, 2),
        dropout_(0.5, 3),
        linear_(64 * after_convolutions("mnist_cnn", input, [](int64_t side) { return ((side - 2) / 2 - 2) / 2; }),
                input.classes, seed, 4) {
    add_child("conv1", conv1_);
    add_child("conv2", conv2_);
    add_child("linear", linear_);
  }

  Tensor forward(const Tensor& images) override {
    Tensor x = relu(max_pool2d(conv1_.forward(images), 2, 2));  // (N, 13, 13, 32)
    x = relu(max_pool2d(conv2_.forward(x), 2, 2));              // (N, 5, 5, 64)
    return linear_.forward(dropout_.forward(flatten(x)));       // (N, 10)
  }

 private:
  Conv2d conv1_, conv2_;
  Dropout dropout_;
  Linear linear_;
};

class MnistCnnLarge : public Module {
 public:
  MnistCnnLarge(uint64_t seed, const ModelInput& input)
      : conv1_(input.channels, 32, {}, seed, 1),
        conv2_(32, 64, {}, seed, 2),
        dropout1_(0.25, 3),
        linear1_(64 * after_convolutions("mnist_cnn_large", input, [](int64_t side) { return (side - 4) / 2; }), 128,
                 seed, 4),
        dropout2_(0.5, 5),
        linear2_(128, input.classes, seed, 6) {
    add_child("conv1", conv1_);
    add_child("conv2", conv2_);
    add_child("linear1", linear1_);
    add_child("linear2", linear2_);
  }

  Tensor forward(const Tensor& images) override {
    Tensor x = relu(conv1_.forward(images));                    // (N, 26, 26, 32)
    x = relu(max_pool2d(conv2_.forward(x), 2, 2));              // (N, 12, 12, 64)
    x = relu(linear1_.forward(dropout1_.forward(flatten(x))));  // (N, 128)
    return linear2_.forward(dropout2_.forward(x));              // (N, 10)
  }

 private:
  Conv2d conv1_, conv2_;
  Dropout dropout1_;
  Linear linear1_;
  Dropout dropout2_;
  Linear linear2_;
};

class Mlp : public Module {
 public:
  Mlp(uint64_t seed, const ModelInput& input)
      : linear1_(input.rows * input.columns * input.channels, 500, seed, 1), linear2_(500, input.classes, seed, 2) {
    add_child("linear1", linear1_);
    add_child("linear2", linear2_);
  }

  Tensor forward(const Tensor& images) override {
    return feed_forward(flatten(images), linear1_.weight(), linear1_.bias(), linear2_.weight(), linear2_.bias());
  }

 private:
  Linear linear1_, linear2_;
};

struct ModelRow {
  const char* name;
  std::unique_ptr<Module> (*make)(uint64_t seed, const ModelInput& input);
};

template <class Model>
std::unique_ptr<Module> make(uint64_t seed, const ModelInput& input) {
  return std::make_unique<Model>(seed, input);
}

constexpr ModelRow model_table[] = {
    {"mnist_cnn", make<MnistCnn>}, {"mnist_cnn_large", make<MnistCnnLarge>}, {"mlp", make<Mlp>}};

}  // namespace

std::unique_ptr<Module> make_model(std::string_view name, uint64_t seed, const ModelInput& input) {
  for (const ModelRow& row : model_table) {
    if (name == row.name) return row.make(seed, input);
  }
  fail(ExitCode::usage, "--model {}: no such model; there are {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : model_table) names.push_back(row.name);
  return names;
}

}  // namespace hs
