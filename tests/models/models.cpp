// The models by name, and the training loop on a data set that lives in memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/ambient.h"
#include "engine/error.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "kernels/dropout/dropout.h"
#include "models/models.h"
#include "models/train.h"
#include "tests/support/random_tensor.h"
#include "tests/support/sanitized.h"
#include "tests/support/thrown.h"

namespace hs {
namespace {

using Floats = std::vector<float>;

// Ten classes, each a bright square in a place of its own, moved a little and on noise.
class Blobs : public BatchSource {
 public:
  Blobs(int64_t samples, int64_t batch, uint32_t which = 0) : samples_(samples), batch_(batch) {
    pixels_.resize(static_cast<size_t>(samples * 784));
    for (int64_t i = 0; i < samples; ++i) {
      const Random4 random = random_block({11, RandomPurpose::synthetic, which, 0, 0}, static_cast<uint32_t>(i));
      const auto label = static_cast<int32_t>(random.word[0] % 10);
      labels_.push_back(label);
      const int64_t top = 2 + 5 * (label / 2) + random.word[1] % 3, left = 4 + 11 * (label % 2) + random.word[2] % 3;
      for (int64_t p = 0; p < 784; ++p) {
        const bool bright = p / 28 >= top && p / 28 < top + 5 && p % 28 >= left && p % 28 < left + 7;
        const uint32_t noise =
            random_bits({12, RandomPurpose::synthetic, which, static_cast<uint32_t>(i), 0}, static_cast<uint64_t>(p));
        pixels_[static_cast<size_t>(i * 784 + p)] = static_cast<uint8_t>((bright ? 190 : 0) + (noise >> 26));
      }
    }
  }

  Batch next() override {
    const int64_t begin = position_, count = std::min(batch_, samples_ - begin);
    position_ = begin + count == samples_ ? 0 : begin + count;
    return {Tensor::from(std::vector<uint8_t>(pixels_.begin() + begin * 784, pixels_.begin() + (begin + count) * 784),
                         {count, 28, 28, 1}),
            Tensor::from(std::vector<int32_t>(labels_.begin() + begin, labels_.begin() + begin + count), {count})};
  }
  int64_t samples() const override { return samples_; }
  int64_t batches_per_epoch() const override { return (samples_ + batch_ - 1) / batch_; }
  PixelScale pixel_scale() const override { return {0.2f, 0.25f}; }

 private:
  int64_t samples_, batch_, position_ = 0;
  std::vector<uint8_t> pixels_;
  std::vector<int32_t> labels_;
};

constexpr int64_t test_blocks = 3;  // of deep_cnn, where 64 would only take longer

struct Layer {
  std::string name;
  int64_t fan_in, out;
};
struct Expected {
  const char* model;
  int64_t count;
  std::vector<Layer> layers;
  std::vector<double> dropout = {};
};
std::vector<Layer> deep_cnn_layers() {
  std::vector<Layer> layers = {{"conv", 9, 32}};
  for (int64_t b = 1; b <= default_blocks; ++b) layers.push_back({"block" + std::to_string(b), 288, 32});
  layers.push_back({"linear", 1568, 10});
  return layers;
}

// What the heads of the models' files promise. Tests below that hold for any model go through model_names() instead.
const std::vector<Expected> expected_models = {
    {"mnist_cnn", 34826, {{"conv1", 9, 32}, {"conv2", 288, 64}, {"linear", 1600, 10}}, {0.5}},
    {"mnist_cnn_large",
     1199882,
     {{"conv1", 9, 32}, {"conv2", 288, 64}, {"linear1", 9216, 128}, {"linear2", 128, 10}},
     {0.25, 0.5}},
    {"mlp", 397510, {{"linear1", 784, 500}, {"linear2", 500, 10}}},
    {"deep_cnn", 607882, deep_cnn_layers()},
};

struct ExpectedParameter {
  std::string name;
  Shape shape;
  double bound;  // of the initial values
};

// A weight (fan_in, out) and a bias (out) for each layer.
std::vector<ExpectedParameter> expected_parameters(const Expected& expected) {
  std::vector<ExpectedParameter> all;
  for (const Layer& layer : expected.layers) {
    const double bound = 1 / std::sqrt(static_cast<double>(layer.fan_in));
    all.push_back({layer.name + ".weight", {layer.fan_in, layer.out}, bound});
    all.push_back({layer.name + ".bias", {layer.out}, bound});
  }
  return all;
}

TEST_CASE("models and parameters have the documented names, shapes and number") {
  for (const Expected& expected : expected_models) {
    CAPTURE(expected.model);
    const auto model = make_model(expected.model, 1);
    CHECK(model->parameter_count() == expected.count);
    const auto parameters = model->parameters();
    const auto wanted = expected_parameters(expected);
    REQUIRE(parameters.size() == wanted.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      CHECK(parameters[i].name == wanted[i].name);
      CHECK(parameters[i].value->shape() == wanted[i].shape);
      CHECK(parameters[i].value->dtype() == DType::f32);
    }
  }
}

TEST_CASE("weights and biases start uniform in +-1/sqrt(fan_in)") {
  for (const Expected& expected : expected_models) {
    const auto model = make_model(expected.model, 3);
    const auto parameters = model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(expected.model);
      CAPTURE(parameters[i].name);
      const double bound = expected_parameters(expected)[i].bound;
      double smallest = 1, largest = -1, total = 0;
      const auto values = parameters[i].value->to_vector<float>();
      for (const float value : values) {
        smallest = std::min<double>(smallest, value);
        largest = std::max<double>(largest, value);
        total += value;
      }
      const auto n = static_cast<double>(values.size());
      CHECK(smallest >= -bound * 1.000001);
      CHECK(largest <= bound * 1.000001);
      // The range is used: the chance that n numbers all miss the outer part of width 20/n is e^-10 a side.
      if (n >= 100) CHECK(largest > bound * (1 - 20 / n));
      if (n >= 100) CHECK(smallest < -bound * (1 - 20 / n));
      CHECK(std::fabs(total / n) < 5 * bound * 0.5774 / std::sqrt(n));
    }
  }
}

constexpr ModelSizes cifar10_sizes{.rows = 32, .columns = 32, .channels = 3};

TEST_CASE("resnet8 has the published number of parameters, and PyTorch's names") {
  const auto model = make_model("resnet8", 1, cifar10_sizes);
  CHECK(model->parameter_count() == 78186);
  CHECK(model->parameter_count(true) == 480);
  std::vector<std::string> expected;
  const auto add = [&](const std::string& layer, const std::vector<std::string>& tensors) {
    for (const std::string& tensor : tensors) expected.push_back(layer + "." + tensor);
  };
  const std::vector<std::string> layer = {"weight", "bias"}, norm = {"weight", "bias", "running_mean", "running_var"};
  add("conv", layer), add("bn", norm);
  for (const std::string block : {"block1", "block2", "block3"}) {
    add(block + ".conv1", layer), add(block + ".bn1", norm), add(block + ".conv2", layer);
    if (block != "block1") add(block + ".shortcut", layer);
    add(block + ".bn2", norm);
  }
  add("linear", layer);
  std::vector<std::string> names;
  for (const NamedParameter& parameter : model->parameters()) names.push_back(parameter.name);
  CHECK(names == expected);
}

TEST_CASE("weights start He-normal, truncated, and scale, shift and statistics as a batch norm that changes nothing") {
  const auto model = make_model("resnet8", 3, cifar10_sizes), other = make_model("resnet8", 4, cifar10_sizes);
  const auto parameters = model->parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, value, is_statistic, is_frozen, is_outer] = parameters[p];
    CAPTURE(name);
    const Floats values = value->to_vector<float>();
    if (value->shape().rank() == 1) {
      const bool is_one =
          name.ends_with("running_var") || (name.find("bn") != std::string::npos && name.ends_with("weight"));
      CHECK(values == Floats(values.size(), is_one ? 1.0f : 0.0f));
      continue;
    }
    const double n = static_cast<double>(values.size()), variance = 2 / static_cast<double>(value->shape()[0]);
    double sum = 0, squares = 0, largest = 0;
    for (const double each : values) sum += each, squares += each * each, largest = std::max(largest, std::fabs(each));
    const double cut = 2 * std::sqrt(variance) / 0.87962566103423978;
    CHECK(largest <= cut * 1.000001);
    CHECK(largest > cut * (1 - 40 / n));  // of any n values about 9 are beyond
    CHECK(std::fabs(sum / n) < 5 * std::sqrt(variance / n));
    CHECK(std::fabs(squares / n / variance - 1) < 5 * std::sqrt(1.37 / n));  // its kurtosis is 2.37
    CHECK(values != other->parameters()[p].value->to_vector<float>());
  }
}

TEST_CASE("an unknown model is a usage error that names the known ones") {
  const std::string message = test::error_of([&] { make_model("resnet", 1); });
  CHECK(message.starts_with("model resnet: no such model; there are "));
  for (const std::string& name : model_names()) CHECK(message.find(name) != std::string::npos);
}

TEST_CASE("two models of one name are refused, and only models with blocks have them") {
  const std::vector<std::string> before = model_names();
  CHECK_THROWS_WITH(RegisteredModel("mlp", nullptr),
                    "REGISTER_MODEL: there are two models named mlp; give one another name");
  CHECK(model_names() == before);
  CHECK(std::ranges::is_sorted(before));
  CHECK(model_has_blocks("deep_cnn"));
  CHECK_FALSE(model_has_blocks("mlp"));
  CHECK_FALSE(model_has_blocks("resnet"));
}

TEST_CASE("logits are (N, 10), and a sample's do not depend on the rest of the batch") {
  const Inference scope;
  for (const std::string& name : model_names(InputKind::images)) {
    CAPTURE(name);
    const auto model = make_model(name, 1, {.blocks = test_blocks});
    const Tensor images = test::random_tensor({3, 28, 28, 1}, 5, 0);
    const Tensor three = model->forward(images);
    CHECK(three.shape() == Shape{3, 10});
    for (int64_t n = 0; n < 3; ++n) {
      const Tensor one = model->forward(images.slice(n * 784, {1, 28, 28, 1}));
      CHECK(one.shape() == Shape{1, 10});
      const auto alone = one.to_vector<float>(), together = three.slice(n * 10, {10}).to_vector<float>();
      for (size_t i = 0; i < 10; ++i) CHECK(std::fabs(alone[i] - together[i]) <= 1e-5f);
    }
  }
}

Tensor counter(uint32_t step) { return Tensor::from(std::vector<int32_t>{static_cast<int32_t>(step)}, {}); }

struct Draw {
  double rate;
  RandomStream stream;
};
std::vector<Draw> draws;  // what dropout was asked for
bool watching = false;

void watch(const DropoutMask& call) {
  RandomStream stream = call.stream;
  stream.step += static_cast<uint32_t>(call.step.item());
  draws.push_back({call.rate, stream});
  call.y.copy_from(call.x);
}
REGISTER_KERNEL(dropout_mask, cpu, "watch",
                {.run = watch, .supported = [](const DropoutMask&) { return watching; }, .rank = 1000});

TEST_CASE("every dropout layer has its documented rate, and training draws a new mask for each layer and step") {
  for (const Expected& documented : expected_models) {
    const std::vector<double>& expected = documented.dropout;
    CAPTURE(documented.model);
    const auto model = make_model(documented.model, 1, {.blocks = test_blocks});
    ParameterArena arena(*model);
    Blobs training(6, 2), test(2, 2);
    TrainConfig config;
    config.epochs = 1;
    config.seed = 42;
    draws.clear();
    watching = true;
    train(*model, arena, training, test, config);
    watching = false;
    REQUIRE(draws.size() == 3 * 2 * expected.size());  // forward and backward of three steps; none in the evaluation
    std::set<std::pair<uint32_t, uint32_t>> masks;
    for (size_t i = 0; i < draws.size(); ++i) {
      const size_t layers = expected.size(), within = i % (2 * layers);
      // Backward meets the layers in reverse order, and asks for the masks of the forward pass.
      CHECK(draws[i].rate == expected[within < layers ? within : 2 * layers - 1 - within]);
      CHECK(draws[i].stream.step == i / (2 * layers));
      CHECK(draws[i].stream.seed == 42);
      masks.insert({draws[i].stream.layer, draws[i].stream.step});
    }
    CHECK(masks.size() == 3 * expected.size());
  }
}

bool operator==(const Ambient& a, const Ambient& b) {
  return a.recording == b.recording && a.training == b.training && a.seed == b.seed &&
         a.step.raw_data() == b.step.raw_data() && a.micro_step == b.micro_step;
}

TEST_CASE("evaluate is repeatable, weighs a short last batch by its size, and leaves the ambient state alone") {
  const AmbientScope scope;
  ambient() = {.recording = true, .training = true, .seed = 77, .step = counter(5), .micro_step = 2};
  const Ambient before = ambient();
  const auto model = make_model("mnist_cnn", 1);
  Blobs in_tens(25, 10), at_once(25, 25);
  const Evaluation first = evaluate(*model, in_tens), second = evaluate(*model, in_tens);
  CHECK((ambient() == before));
  CHECK(first.loss == second.loss);
  CHECK(first.accuracy == second.accuracy);
  const Evaluation whole = evaluate(*model, at_once);
  CHECK(whole.accuracy == doctest::Approx(first.accuracy));
  CHECK(whole.loss == doctest::Approx(first.loss).epsilon(1e-6));
  CHECK(std::fabs(first.loss - std::log(10.0)) < 0.5);  // an untrained model knows nothing about ten classes
}

TrainResult train_on_blobs(const std::string& name, int64_t samples, int64_t batch, int64_t epochs) {
  const auto model = make_model(name, 1, {.blocks = test_blocks});
  ParameterArena arena(*model);
  Blobs training(samples, batch, 1), test(100, 50, 2);
  TrainConfig config;
  config.epochs = epochs;
  return train(*model, arena, training, test, config);
}

TEST_CASE("every model learns to tell ten squares apart" * doctest::skip(test::with_address_sanitizer)) {
  set_threads(1);  // steps this small only wait for each other
  for (const std::string& name : model_names(InputKind::images)) {
    CAPTURE(name);
    if (name == "resnet8") continue;  // it averages over the image, and these classes differ in a place: see its tests
    const bool large = name == "mnist_cnn_large";
    const TrainResult result = train_on_blobs(name, large ? 160 : 400, large ? 16 : 20, large ? 3 : 2);
    const auto& epochs = result.epochs;
    CHECK(epochs.back().training_loss < 0.5 * epochs.front().training_loss);
    CHECK(epochs.back().test.loss < 0.5);
    CHECK(epochs.back().test.accuracy > 0.9);
    CHECK(result.samples == (large ? 480 : 800));
  }
  set_threads(0);
}

TEST_CASE("the hooks see every step, and training stops after the one that asks for it") {
  const auto model = make_model("mlp", 1);
  ParameterArena arena(*model);
  Blobs training(25, 10, 1), test(10, 10, 2);
  std::vector<Progress> seen;
  std::vector<int64_t> epochs_seen;
  TrainHooks hooks;
  hooks.on_step = [&](const Progress& progress) { seen.push_back(progress); };
  hooks.on_epoch = [&](int64_t epoch, const EpochResult&) { epochs_seen.push_back(epoch); };
  hooks.should_stop = [&] { return seen.size() == 5; };
  TrainConfig config;
  config.epochs = 9;
  const TrainResult result = train(*model, arena, training, test, config, hooks);
  REQUIRE(seen.size() == 5);
  CHECK(epochs_seen == std::vector<int64_t>{1});
  CHECK(result.epochs.size() == 1);
  CHECK(result.samples == 25 + 20);
  for (size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].epoch == static_cast<int64_t>(i / 3 + 1));
    CHECK(seen[i].step == static_cast<int64_t>(i % 3 + 1));
    CHECK(seen[i].steps_per_epoch == 3);
  }
}

TEST_CASE("a learning rate that is absurd ends training with a numeric error that names the step") {
  const AmbientScope scope;
  ambient() = {.recording = true, .training = false, .seed = 77, .step = counter(5), .micro_step = 2};
  const Ambient before = ambient();
  for (const std::string& name : model_names(InputKind::images)) {
    CAPTURE(name);
    const auto model = make_model(name, 1, {.blocks = test_blocks});
    ParameterArena arena(*model);
    Blobs training(40, 4), test(10, 10);
    TrainConfig config;
    config.optimizer = {.name = "sgd", .learning_rate = 1e30f};
    int64_t completed = 0;
    TrainHooks hooks;
    hooks.on_step = [&](const Progress& progress) { completed = progress.step; };
    const std::string message =
        test::error_of([&] { train(*model, arena, training, test, config, hooks); }, ExitCode::numeric);
    CAPTURE(message);
    CHECK(message.find("at step 2 of epoch 1") != std::string::npos);
    CHECK(message.find("learning rate") != std::string::npos);
    CHECK(completed >= 1);  // the first loss comes before the first update
    CHECK((ambient() == before));
  }
}

}  // namespace
}  // namespace hs
