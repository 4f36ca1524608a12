// Ten training steps against PyTorch in double (tests/golden/README.md): of mnist_cnn the losses, the first and the
// last gradients and the final weights; of every optimizer that PyTorch has, with groups of parameters and schedules,
// the losses and the final weights. A mistake in a layout or a formula shows here.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/autograd.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/layers.h"
#include "models/models.h"
#include "source_dir.h"
#include "tests/support/npy.h"

namespace hs {
namespace {

NpyArray golden(const std::string& name, const char* folder = "mnist_cnn") {
  return read_npy(std::filesystem::path(HALFSTEP_SOURCE_DIR) / "tests/golden" / folder / (name + ".npy"));
}

// ||got - reference|| / ||reference||
double relative_error(const Tensor& got, std::span<const float> reference) {
  const auto values = got.to_vector<float>();
  REQUIRE(values.size() == reference.size());
  double difference = 0, length = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = reference[i], d = values[i] - expected;
    difference += d * d;
    length += expected * expected;
  }
  REQUIRE(length > 0);
  return std::sqrt(difference / length);
}

// The same of a file of mnist_cnn, which has the tensor's shape.
double relative_error(const Tensor& got, const std::string& name) {
  const NpyArray file = golden(name);
  REQUIRE(static_cast<int>(file.shape.size()) == got.shape().rank());
  for (int axis = 0; axis < got.shape().rank(); ++axis)
    REQUIRE(file.shape[static_cast<size_t>(axis)] == got.shape()[axis]);
  return relative_error(got, file.as<float>());
}

// Written so that NaN fails.
void check_within(double error, double tolerance) {
  CAPTURE(error);
  CHECK_FALSE(!(std::fabs(error) <= tolerance));
}

void follow_golden_run() {
  constexpr int64_t batch = 8, steps = 10;
  const AmbientScope scope;
  ambient().recording = true;
  ambient().training = false;  // the golden run has no dropout

  const auto model = make_model("mnist_cnn", 1);
  ParameterArena arena(*model);
  for (const NamedParameter& parameter : arena.parameters()) {
    const NpyArray file = golden("initial." + parameter.name);
    parameter.value->detach().copy_from(Tensor::from(file.as<float>(), parameter.value->shape()));
    CHECK(relative_error(*parameter.value, "initial." + parameter.name) == 0);
  }
  const auto optimizer = make_optimizer(arena, {.name = "sgd", .learning_rate = 0.01f, .momentum = 0.9f});

  const NpyArray images = golden("images"), labels = golden("labels"), losses = golden("losses");
  REQUIRE(images.shape == std::vector<int64_t>{batch * steps, 28, 28, 1});
  REQUIRE(labels.shape == std::vector<int64_t>{batch * steps});
  REQUIRE(losses.shape == std::vector<int64_t>{steps});
  for (int64_t step = 1; step <= steps; ++step) {
    CAPTURE(step);
    const auto first = static_cast<size_t>((step - 1) * batch);
    const Tensor x = normalize_image(
        Tensor::from(images.as<uint8_t>().subspan(first * 784, batch * 784), {batch, 28, 28, 1}), {0.1307f, 0.3081f});
    const Tensor y = Tensor::from(labels.as<int32_t>().subspan(first, batch), {batch});
    optimizer->zero_gradients();
    const Tensor loss = softmax_cross_entropy(model->forward(x), y);
    backward(loss);
    check_within(loss.item() - losses.as<double>()[static_cast<size_t>(step - 1)], 1e-5);
    if (step == 1 || step == steps) {
      for (const NamedParameter& parameter : arena.parameters()) {
        CAPTURE(parameter.name);
        const std::string file = "gradient" + std::to_string(step) + "." + parameter.name;
        check_within(relative_error(parameter.value->grad(), file), 1e-5);
      }
    }
    optimizer->step();
  }
  for (const NamedParameter& parameter : arena.parameters()) {
    CAPTURE(parameter.name);
    check_within(relative_error(*parameter.value, "final." + parameter.name), 1e-5);
  }
}

TEST_CASE("ten steps of mnist_cnn follow PyTorch") { follow_golden_run(); }

// The model of tests/golden/make_optimizers.py.
struct OneLayer : Module {
  LayerKeys keys{1};
  Linear linear{20, 10, keys};
  OneLayer() { add_child("linear", linear); }
  Tensor forward(const Tensor& x) override { return linear.forward(x); }
};

TEST_CASE("ten steps of every optimizer that PyTorch has follow it, with groups of parameters and schedules") {
  constexpr int64_t batch = 8, steps = 10;
  const auto file = [](const char* name) { return golden(name, "optimizers"); };
  const NpyArray cases = file("cases"), losses = file("losses"), weights = file("final_weight"),
                 biases = file("final_bias"), inputs = file("inputs"), labels = file("labels");
  const std::vector<std::string> optimizers = {"sgd", "nesterov", "adam", "adamw", "muon"},
                                 schedules = {"constant", "linear", "cosine", "step", "one-cycle"};
  const auto count = static_cast<size_t>(cases.shape.at(0));
  REQUIRE(count == 11);
  REQUIRE(losses.as<double>().size() == count * steps);
  const AmbientScope scope;
  ambient().recording = true;
  for (size_t i = 0; i < count; ++i) {
    const auto c = cases.as<double>().subspan(i * 7, 7);
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
    model.linear.weight().detach().copy_from(Tensor::from(file("weight").as<float>(), {20, 10}));
    model.linear.bias().detach().copy_from(Tensor::from(file("bias").as<float>(), {10}));
    const auto optimizer = make_optimizer(arena, config);
    for (int64_t step = 0; step < steps; ++step) {
      CAPTURE(step);
      const auto first = static_cast<size_t>(step * batch);
      const Tensor x = Tensor::from(inputs.as<float>().subspan(first * 20, batch * 20), {batch, 20});
      const Tensor y = Tensor::from(labels.as<int32_t>().subspan(first, batch), {batch});
      optimizer->zero_gradients();
      const Tensor loss = softmax_cross_entropy(model.forward(x), y, {}, static_cast<float>(c[6]));
      backward(loss);
      check_within(loss.item() - losses.as<double>()[i * steps + static_cast<size_t>(step)], 1e-5);
      optimizer->step();
    }
    check_within(relative_error(model.linear.weight(), weights.as<float>().subspan(i * 200, 200)), 1e-5);
    check_within(relative_error(model.linear.bias(), biases.as<float>().subspan(i * 10, 10)), 1e-5);
  }
}

}  // namespace
}  // namespace hs
