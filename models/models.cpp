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

class MnistCnn : public Module {
 public:
  explicit MnistCnn(uint64_t seed)
      : conv1_(1, 32, {}, seed, 1), conv2_(32, 64, {}, seed, 2), dropout_(0.5, 3), linear_(1600, 10, seed, 4) {
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
  explicit MnistCnnLarge(uint64_t seed)
      : conv1_(1, 32, {}, seed, 1),
        conv2_(32, 64, {}, seed, 2),
        dropout1_(0.25, 3),
        linear1_(9216, 128, seed, 4),
        dropout2_(0.5, 5),
        linear2_(128, 10, seed, 6) {
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
  explicit Mlp(uint64_t seed) : linear1_(784, 500, seed, 1), linear2_(500, 10, seed, 2) {
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
  std::unique_ptr<Module> (*make)(uint64_t seed);
};

template <class Model>
std::unique_ptr<Module> make(uint64_t seed) {
  return std::make_unique<Model>(seed);
}

constexpr ModelRow model_table[] = {
    {"mnist_cnn", make<MnistCnn>}, {"mnist_cnn_large", make<MnistCnnLarge>}, {"mlp", make<Mlp>}};

}  // namespace

std::unique_ptr<Module> make_model(std::string_view name, uint64_t seed) {
  for (const ModelRow& row : model_table) {
    if (name == row.name) return row.make(seed);
  }
  fail(ExitCode::usage, "--model {}: no such model; there are {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : model_table) names.push_back(row.name);
  return names;
}

}  // namespace hs
