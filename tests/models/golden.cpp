// Ten training steps against PyTorch in double (tests/golden/README.md): of mnist_cnn, resnet8 and char_gpt the losses,
// the first and the last gradients, and what else the files have; of every optimizer that PyTorch has, with groups of
// parameters and schedules, the losses and the final weights. A mistake in a layout or a formula shows here.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <utility>

#include "engine/autograd.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/layers.h"
#include "models/models.h"
#include "models/training/train_step.h"
#include "source_dir.h"
#include "tests/support/npy.h"

namespace hs {
namespace {

using Floats = std::vector<float>;

constexpr int64_t steps = 10;

Tensor golden(const char* folder, const std::string& name) {
  return read_npy(std::filesystem::path(HALFSTEP_SOURCE_DIR) / "tests/golden" / folder / (name + ".npy"));
}

// ||a - b||
template <class T>
double distance(const Floats& a, std::span<const T> b) {
  REQUIRE(a.size() == b.size());
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(squares);
}

// Written so that NaN fails.
void check_small(double error) {
  CAPTURE(error);
  CHECK_FALSE(!(std::fabs(error) <= 1e-5));
}

template <class T>
void check_close(const Floats& got, std::span<const T> expected) {
  const double length = distance(Floats(expected.size()), expected);
  REQUIRE(length > 0);
  check_small(distance(got, expected) / length);
}

// The trained parameters, or their gradients, against those that are one after another in `expected`.
void check_parameters(StagedModel& model, std::span<const float> expected, bool gradients) {
  REQUIRE(std::ssize(expected) == model.parameter_count());
  double of_weight = 0;  // the length of the weight's gradient, in a layer's bias
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.is_statistic) continue;
    CAPTURE(parameter.name);
    const Floats got = (gradients ? parameter.value->grad() : *parameter.value).to_vector<float>();
    const auto reference = expected.first(got.size());
    expected = expected.subspan(got.size());
    double length = distance(Floats(got.size()), reference);
    REQUIRE(length > 0);
    // A batch norm takes the bias before it away: its gradient is rounding errors on both sides.
    const bool is_taken_away = model.parameter_count(true) > 0 && parameter.name.ends_with("bias") &&
                               parameter.name.find("conv") != std::string::npos;
    if (is_taken_away) length = of_weight;
    check_small(distance(got, reference) / length);
    of_weight = length;
  }
}

void set_parameters(StagedModel& model, std::span<const float> values) {
  REQUIRE(std::ssize(values) == model.parameter_count());
  for (const NamedParameter& parameter : model.parameters()) {
    const auto size = static_cast<size_t>(parameter.value->size());
    parameter.value->detach().copy_from(Tensor::from(values.first(size), parameter.value->shape()));
    values = values.subspan(size);
  }
}

// Trains by SGD, on the images or tokens and the labels of each step. gradients(step): the expected ones, of the first
// step, 0, and the last.
void follow(StagedModel& model, float learning_rate, const Tensor& losses,
            const std::function<std::pair<Tensor, Tensor>(size_t step)>& batch,
            const std::function<std::span<const float>(size_t step)>& gradients) {
  REQUIRE(losses.shape() == Shape{steps});
  ParameterArena arena(model);
  const auto optimizer = make_optimizer(arena, {.name = "sgd", .learning_rate = learning_rate, .momentum = 0.9f});
  for (size_t step = 0; step < steps; ++step) {
    CAPTURE(step);
    const auto [x, labels] = batch(step);
    optimizer->zero_gradients();
    const Tensor loss = softmax_cross_entropy(model.forward(x), labels);
    backward(loss);
    check_small(loss.item() - values_of<double>(losses)[step]);
    if (step == 0 || step + 1 == steps) check_parameters(model, gradients(step), true);
    optimizer->step();
  }
}

// The batch of a step, from the files of images and labels.
std::function<std::pair<Tensor, Tensor>(size_t step)> image_batches(const char* folder, int64_t batch,
                                                                    PixelScale scale) {
  const Tensor images = golden(folder, "images"), labels = golden(folder, "labels");
  REQUIRE(images.shape()[0] == batch * steps);
  REQUIRE(labels.shape() == Shape{batch * steps});
  return [=](size_t step) {
    const Shape shape{batch, images.shape()[1], images.shape()[2], images.shape()[3]};
    const auto pixels = static_cast<size_t>(shape.size()), n = static_cast<size_t>(batch);
    return std::pair(
        normalize_image(Tensor::from(values_of<uint8_t>(images).subspan(step * pixels, pixels), shape), scale),
        Tensor::from(values_of<int32_t>(labels).subspan(step * n, n), {batch}));
  };
}

TEST_CASE("ten steps of mnist_cnn follow PyTorch") {
  const AmbientScope scope;
  ambient().recording = true;
  ambient().training = false;  // the golden run has no dropout
  const auto model = make_model("mnist_cnn", 1);
  const auto of_all = [&](const std::string& what) {
    Floats all;
    for (const NamedParameter& parameter : model->parameters()) {
      const Tensor file = golden("mnist_cnn", what + "." + parameter.name);
      all.insert(all.end(), values_of<float>(file).begin(), values_of<float>(file).end());
    }
    return all;
  };
  const Floats first = of_all("gradient1"), last = of_all("gradient10");
  set_parameters(*model, of_all("initial"));
  follow(*model, 0.01f, golden("mnist_cnn", "losses"), image_batches("mnist_cnn", 8, {0.1307f, 0.3081f}),
         [&](size_t step) { return std::span(step == 0 ? first : last); });
  check_parameters(*model, of_all("final"), false);
}

// The seed, sizes and settings are those of tests/golden/make_resnet8.py.
TEST_CASE("ten steps of resnet8 follow PyTorch, and so do its statistics, with ops that are fused or not") {
  for (const bool fuse : {true, false}) {
    CAPTURE(fuse);
    const AmbientScope scope;
    ambient().recording = ambient().training = true;
    ambient().fuse = fuse;
    const auto model = make_model("resnet8", 33, {.rows = 12, .columns = 12, .channels = 3});
    const Tensor gradients = golden("resnet8", "gradients"), statistics = golden("resnet8", "statistics"),
                 logits = golden("resnet8", "logits");
    const auto batches = image_batches("resnet8", 4, {0.45f, 0.25f});
    const auto size = static_cast<size_t>(model->parameter_count());
    follow(*model, 0.02f, golden("resnet8", "losses"), batches,
           [&](size_t step) { return values_of<float>(gradients).subspan(step == 0 ? 0 : size, size); });
    Floats values;
    for (const NamedParameter& parameter : model->parameters()) {
      if (!parameter.is_statistic) continue;
      const Floats own = parameter.value->to_vector<float>();
      values.insert(values.end(), own.begin(), own.end());
    }
    check_close(values, values_of<float>(statistics));
    const Inference evaluation;
    check_close(model->forward(batches(0).first).to_vector<float>(), values_of<double>(logits));
  }
}

TEST_CASE("ten steps of char_gpt follow PyTorch") {
  constexpr int64_t batch = 4, context = 16;
  const AmbientScope scope;
  ambient().recording = true;
  const auto model = make_model("char_gpt", 1, {1, context + 1, 1, 11, 2, InputKind::tokens, 32, 4});
  const Tensor windows = golden("char_gpt", "windows"), first = golden("char_gpt", "gradients1"),
               last = golden("char_gpt", "gradients10");
  REQUIRE(windows.shape() == Shape{steps * batch, context + 1});
  set_parameters(*model, values_of<float>(golden("char_gpt", "initial")));
  const auto windows_of = [&](size_t step) {
    constexpr auto bytes = static_cast<size_t>(batch * (context + 1));
    const Tensor images =
        Tensor::from(values_of<uint8_t>(windows).subspan(step * bytes, bytes), {batch, 1, context + 1, 1});
    const auto [tokens, labels] = prepare(InputKind::tokens, {images, {}}, {});
    return std::pair(tokens, labels);
  };
  follow(*model, 0.1f, golden("char_gpt", "losses"), windows_of,
         [&](size_t step) { return values_of<float>(step == 0 ? first : last); });
}

// The model of tests/golden/make_optimizers.py.
struct OneLayer : Module {
  LayerKeys keys{1};
  Linear linear{20, 10, keys};
  OneLayer() { add_child("linear", linear); }
  Tensor forward(const Tensor& x) override { return linear.forward(x); }
};

TEST_CASE("ten steps of every optimizer that PyTorch has follow it, with groups of parameters and schedules") {
  constexpr int64_t batch = 8;
  const auto file = [](const char* name) { return golden("optimizers", name); };
  const Tensor cases = file("cases"), losses = file("losses"), weights = file("final_weight"),
               biases = file("final_bias"), inputs = file("inputs"), labels = file("labels");
  const std::vector<std::string> optimizers = {"sgd", "nesterov", "adam", "adamw", "muon"},
                                 schedules = {"constant", "linear", "cosine", "step", "one-cycle"};
  const auto count = static_cast<size_t>(cases.shape()[0]);
  REQUIRE(count == 11);
  REQUIRE(values_of<double>(losses).size() == count * steps);
  const AmbientScope scope;
  ambient().recording = true;
  for (size_t i = 0; i < count; ++i) {
    const auto c = values_of<double>(cases).subspan(i * 7, 7);
    OptimizerConfig config{.name = optimizers.at(static_cast<size_t>(c[0])),
                           .learning_rate = static_cast<float>(c[1]),
                           .momentum = static_cast<float>(c[2]),
                           .weight_decay = static_cast<float>(c[3]),
                           .decay_vectors = c[4] != 0};
    const std::string& schedule = schedules.at(static_cast<size_t>(c[5]));
    config.schedule = {.kind = parse_schedule(schedule), .total_steps = steps, .every = 3, .factor = 0.5f};
    CAPTURE(i);
    CAPTURE(config.name);
    CAPTURE(schedule);
    OneLayer model;
    ParameterArena arena(model);
    model.linear.weight().detach().copy_from(Tensor::from(values_of<float>(file("weight")), {20, 10}));
    model.linear.bias().detach().copy_from(Tensor::from(values_of<float>(file("bias")), {10}));
    const auto optimizer = make_optimizer(arena, config);
    for (int64_t step = 0; step < steps; ++step) {
      CAPTURE(step);
      const auto first = static_cast<size_t>(step * batch);
      const Tensor x = Tensor::from(values_of<float>(inputs).subspan(first * 20, batch * 20), {batch, 20});
      const Tensor y = Tensor::from(values_of<int32_t>(labels).subspan(first, batch), {batch});
      optimizer->zero_gradients();
      const Tensor loss = softmax_cross_entropy(model.forward(x), y, {}, static_cast<float>(c[6]));
      backward(loss);
      check_small(loss.item() - values_of<double>(losses)[i * steps + static_cast<size_t>(step)]);
      optimizer->step();
    }
    check_close(model.linear.weight().to_vector<float>(), values_of<float>(weights).subspan(i * 200, 200));
    check_close(model.linear.bias().to_vector<float>(), values_of<float>(biases).subspan(i * 10, 10));
  }
}

}  // namespace
}  // namespace hs
