// resnet8: what the head of its file promises, and ten steps against PyTorch in double (tests/golden/README.md).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/autograd.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"
#include "source_dir.h"
#include "tests/support/npy.h"

namespace hs {
namespace {

using Floats = std::vector<float>;

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

// Written so that NaN fails.
void check_within(double error, double tolerance) {
  CAPTURE(error);
  CHECK_FALSE(!(std::fabs(error) <= tolerance));
}

NpyArray golden(const std::string& name) {
  return read_npy(std::filesystem::path(HALFSTEP_SOURCE_DIR) / "tests/golden/resnet8" / (name + ".npy"));
}

template <class Values>
double distance(const Floats& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) squares += std::pow(double{got[i]} - expected[i], 2);
  return std::sqrt(squares);
}

// The seed, sizes and settings are those of tests/golden/make_resnet8.py.
void follow_golden_run() {
  constexpr int64_t batch = 4, steps = 10, side = 12, pixels = side * side * 3;
  const AmbientScope scope;
  ambient().recording = ambient().training = true;
  const auto model = make_model("resnet8", 33, {.rows = side, .columns = side, .channels = 3});
  ParameterArena arena(*model);
  const auto optimizer = make_optimizer(arena, {.name = "sgd", .learning_rate = 0.02f, .momentum = 0.9f});
  const NpyArray images = golden("images"), labels = golden("labels"), losses = golden("losses"),
                 gradients = golden("gradients"), statistics = golden("statistics"), logits = golden("logits");
  REQUIRE(images.shape == std::vector<int64_t>{batch * steps, side, side, 3});
  REQUIRE(gradients.shape == std::vector<int64_t>{2, model->parameter_count()});
  const auto input = [&](size_t step) {
    return normalize_image(
        Tensor::from(images.as<uint8_t>().subspan(step * batch * pixels, batch * pixels), {batch, side, side, 3}),
        {0.45f, 0.25f});
  };
  for (size_t step = 0; step < steps; ++step) {
    CAPTURE(step);
    const Tensor y = Tensor::from(labels.as<int32_t>().subspan(step * batch, batch), {batch});
    optimizer->zero_gradients();
    const Tensor loss = softmax_cross_entropy(model->forward(input(step)), y);
    backward(loss);
    check_within(loss.item() - losses.as<double>()[step], 1e-5);
    if (step == 0 || step + 1 == steps) {
      auto expected = gradients.as<float>().subspan(step == 0 ? 0 : static_cast<size_t>(model->parameter_count()));
      double of_weight = 0;  // the length of the weight's gradient, in a layer's bias
      for (const NamedParameter& parameter : model->parameters()) {
        if (parameter.is_statistic) continue;
        CAPTURE(parameter.name);
        const Floats got = parameter.value->grad().to_vector<float>();
        const auto reference = expected.first(got.size());
        expected = expected.subspan(got.size());
        double length = distance(Floats(got.size()), reference);
        REQUIRE(length > 0);
        // A batch norm takes the bias before it away: its gradient is rounding errors on both sides.
        const bool is_taken_away = parameter.name.find("conv") != std::string::npos && parameter.name.ends_with("bias");
        if (is_taken_away) length = of_weight;
        check_within(distance(got, reference) / length, 1e-5);
        of_weight = length;
      }
    }
    optimizer->step();
  }
  Floats values;
  for (const NamedParameter& parameter : model->parameters()) {
    if (!parameter.is_statistic) continue;
    const Floats own = parameter.value->to_vector<float>();
    values.insert(values.end(), own.begin(), own.end());
  }
  check_within(distance(values, statistics.as<float>()) / distance(Floats(480), statistics.as<float>()), 1e-5);
  const Inference evaluation;
  const Floats evaluated = model->forward(input(0)).to_vector<float>();
  check_within(distance(evaluated, logits.as<double>()) / distance(Floats(40), logits.as<double>()), 1e-5);
}

TEST_CASE("ten steps of resnet8 follow PyTorch, and so do its statistics") { follow_golden_run(); }

TEST_CASE("ten steps of resnet8 follow PyTorch, with ops that are not fused") {
  const AmbientScope scope;
  ambient().fuse = false;
  follow_golden_run();
}

}  // namespace
}  // namespace hs
