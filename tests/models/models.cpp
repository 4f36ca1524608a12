// The models by name, and the training loop on a data set that lives in memory.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "data/loader/loader.h"
#include "engine/ambient.h"
#include "engine/parallel.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/reduce.h"
#include "models/models.h"
#include "models/training/train.h"
#include "models/training/train_step.h"
#include "tests/support/made_images.h"
#include "tests/support/random_tensor.h"
#include "tests/support/sanitized.h"
#include "tests/support/thrown.h"

namespace hs {
namespace {

using Floats = std::vector<float>;

struct Squares {
  const MemorySource set;
};
// In order, in batches.
struct Blobs : Squares, Loader {
  Blobs(int64_t samples, int64_t batch, uint32_t which = 1)
      : Squares{test::squares(samples, which)}, Loader(set, {.batch = batch, .shuffle = false}) {}
};

constexpr int64_t test_blocks = 3;  // of deep_cnn, where 64 would only take longer

struct Layer {
  std::string name;
  int64_t fan_in, out;
  uint32_t number;  // of its random numbers; dropout layers have those in between
};
struct Expected {
  const char* model;
  int64_t count;
  std::vector<Layer> layers;
  std::vector<double> dropout = {};
};
std::vector<Layer> deep_cnn_layers() {
  std::vector<Layer> layers = {{"conv", 9, 32, 1}};
  for (uint32_t b = 1; b <= default_blocks; ++b) layers.push_back({"block" + std::to_string(b), 288, 32, b + 2});
  layers.push_back({"linear", 1568, 10, 2});
  return layers;
}

// What the heads of the models' files promise. Tests below that hold for any model go through model_names() instead.
const std::vector<Expected> expected_models = {
    {"mnist_cnn", 34826, {{"conv1", 9, 32, 1}, {"conv2", 288, 64, 2}, {"linear", 1600, 10, 4}}, {0.5}},
    {"mnist_cnn_large",
     1199882,
     {{"conv1", 9, 32, 1}, {"conv2", 288, 64, 2}, {"linear1", 9216, 128, 4}, {"linear2", 128, 10, 6}},
     {0.25, 0.5}},
    {"mlp", 397510, {{"linear1", 784, 500, 1}, {"linear2", 500, 10, 2}}},
    {"deep_cnn", 607882, deep_cnn_layers()},
};

TEST_CASE(
    "models and parameters have the documented names, shapes and number, and the recorded results' initial values") {
  for (const Expected& expected : expected_models) {
    CAPTURE(expected.model);
    const auto model = make_model(expected.model, 9);
    CHECK(model->parameter_count() == expected.count);
    const auto parameters = model->parameters();  // weight, bias, weight, bias, ...
    REQUIRE(parameters.size() == 2 * expected.layers.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& [layer, fan_in, out, number] = expected.layers[i / 2];
      const bool is_bias = i % 2 == 1;
      const Shape shape = is_bias ? Shape{out} : Shape{fan_in, out};
      CHECK(parameters[i].name == layer + (is_bias ? ".bias" : ".weight"));
      CHECK(parameters[i].value->shape() == shape);
      CHECK(parameters[i].value->dtype() == DType::f32);
      CHECK(parameters[i].value->to_vector<float>() ==
            uniform_init(shape, fan_in, 9, number, is_bias ? 1 : 0).to_vector<float>());
    }
  }
}

TEST_CASE("resnet8 has the published number of parameters, and PyTorch's names") {
  const auto model = make_model("resnet8", 1, {.rows = 32, .columns = 32, .channels = 3});
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
  CHECK(model_options("deep_cnn").has_blocks);
  CHECK_FALSE(model_options("mlp").has_blocks);
  CHECK_FALSE(model_options("resnet").has_blocks);
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
  Blobs training(samples, batch), test(100, 50, 2);
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
  Blobs training(25, 10), test(10, 10, 2);
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

TEST_CASE("a run whose parts do not belong together, or of settings without sense, is a usage error") {
  const auto model = make_model("mlp", 1), other = make_model("mlp", 1);
  ParameterArena arena(*model), of_other(*other);
  Blobs training(25, 10), test(10, 10, 2);
  const auto error = [&](const std::function<void(TrainConfig&)>& change) {
    TrainConfig config;
    change(config);
    return test::error_of([&] { train(*model, arena, training, test, config); });
  };
  CHECK(error([&](auto& c) { c.epochs = -1; }) ==
        "train: epochs is -1, patience 0 and max_seconds 0, expected 0 or more");
  CHECK(error([&](auto& c) { c.accumulate = 0; }) == "train: accumulate is 0 and test_every 1, expected 1 or more");
  CHECK(error([&](auto& c) { c.patience = 2; }) ==
        "train: patience is 2, and there is no validation to go by; add one");
  CHECK(error([&](auto& c) { c.label_smoothing = 1.5f; }) ==
        "softmax_cross_entropy: smoothing is 1.5, expected 0 to 1");
  CHECK(error([&](auto& c) { c.augment.shift = -3; }).starts_with("augment_image: shift is -3 pixels, expected 0 to "));
  const std::string own_source = "train: a test or a validation of the training's own source would take batches from ";
  CHECK(error([&](auto& c) { c.validation = &training; }).starts_with(own_source));
  CHECK(test::error_of([&] { train(*model, arena, training, training, {}); }).starts_with(own_source));
  CHECK(test::error_of([&] { train(*model, of_other, training, test, {}); }) ==
        "train: parameter linear1.weight of the model is not in this ParameterArena; make one of this model");
  CHECK(test::error_of([&] { make_model("mlp", 1, {.channels = 0}); }) ==
        "make_model: 28 x 28 x 0, 10 classes, a width of 128 and 4 heads, expected 1 or more of each");
  LayerKeys keys(1);
  CHECK(test::error_of([&] { Linear(0, 5, keys); }) ==
        "a layer: its weight is (0, 5), expected at least one input and one output");
}

TEST_CASE("training on numbers gives the bits of training on the pixels that they were") {
  const MemorySource pixels = test::squares(24), numbers = test::as_numbers(pixels);
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    std::vector<std::pair<Floats, double>> results;
    for (const MemorySource* set : {&pixels, &numbers}) {
      const auto model = make_model("mlp", 1);
      ParameterArena arena(*model);
      Loader training(*set, {.batch = 5}), judged(*set, {.batch = 7, .shuffle = false});
      TrainConfig config;
      config.epochs = 2, config.precision = precision;
      const TrainResult result = train(*model, arena, training, judged, config);
      results.emplace_back(arena.values.to_vector<float>(), result.epochs.back().test.loss);
    }
    CHECK((results[0] == results[1]));
  }
  const AugmentOptions flip{.flip = true};
  CHECK(test::error_of([&] { prepare(InputKind::images, Loader(numbers, {}).next(), {}, &flip); }) ==
        "augment changes pixels of 8 bits, but the samples are f32; leave it out");
}

// Fits y = 3 a - 2 b + 1.
struct Line : Module {
  LayerKeys keys{1};
  Linear linear{2, 1, keys};
  Line() { add_child("linear", linear); }
  Tensor forward(const Tensor& x) override { return linear.forward(flatten(x)); }
  Tensor loss(const Tensor& y, const Tensor& x, const Tensor& targets) const override {
    CHECK(x.shape() == Shape{y.shape()[0], 1, 2, 1});
    const Tensor wrong = add(y, scale(targets.reshape(y.shape()), -1));
    return mean(mul(wrong, wrong));
  }
};

TEST_CASE("a module with a loss of its own learns a regression, whose accuracy is NaN") {
  Floats points, values;
  for (int i = 0; i < 30; ++i) {
    const float a = static_cast<float>(i % 6) - 2.5f, b = static_cast<float>(i / 6) - 2;
    points.insert(points.end(), {a, b});
    values.push_back(3 * a - 2 * b + 1);
  }
  const MemorySource set = from_tensors({{}, "line", ""}, Tensor::from(points, {30, 2}), Tensor::from(values, {30}));
  CHECK(set.info().label_type == DType::f32);
  CHECK(set.info().classes == 0);
  Floats learned;
  for (const int64_t accumulate : {1, 2}) {
    Line line;
    ParameterArena arena(line);
    Loader training(set, {.batch = 10 / accumulate}), judged(set, {.batch = 7, .shuffle = false});
    TrainConfig config;
    config.epochs = 100, config.accumulate = accumulate;
    config.optimizer = {.name = "adam", .learning_rate = 0.1f};
    config.target = Target{.is_loss = true, .value = 1e-5};
    const TrainResult result = train(line, arena, training, judged, config);
    CHECK(result.reached_target);
    CHECK(result.epochs.size() < 100);
    CHECK(result.epochs.front().test.loss > 1);
    CHECK(std::isnan(result.epochs.back().test.accuracy));
    CHECK(evaluate(line, judged).loss == result.epochs.back().test.loss);
    const Floats weight = line.linear.weight().to_vector<float>();
    CHECK(weight[0] == doctest::Approx(3).epsilon(0.01));
    CHECK(weight[1] == doctest::Approx(-2).epsilon(0.01));
    if (accumulate == 1) learned = weight;
    CHECK(weight[0] == doctest::Approx(learned[0]).epsilon(1e-3));
    config.target.reset();
    config.validation = &judged;
    config.patience = 2;
    CHECK(
        test::error_of([&] { train(line, arena, training, judged, config); }).starts_with("train: patience compares"));
  }
}

}  // namespace
}  // namespace hs
