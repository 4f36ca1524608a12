// LoRA (models/lora.h): its formula and gradients, that the base keeps its bits and has no gradients or moments, that
// training is any other training, and files that peft's names and halfstep's checks rule.
#include <algorithm>
#include <cmath>

#include "data/loader/loader.h"
#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/files/input_file.h"
#include "engine/files/output_file.h"
#include "engine/parallel.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/files/model_file.h"
#include "models/lora.h"
#include "models/training/checkpoint_plan.h"
#include "models/training/train.h"
#include "models/training/train_step.h"
#include "tests/support/made_images.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rule_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

using Floats = std::vector<float>;

const ModelSizes small = {1, 17, 1, rule_symbols, 2, InputKind::tokens, 32, 4};

std::unique_ptr<StagedModel> adapted(const LoraOptions& options, const ModelSizes& sizes = small) {
  auto model = make_model("char_gpt", 2, sizes);
  LayerKeys keys(7);
  model->adapt(options, keys);
  return model;
}

// Adapters as after some training: B is not zero.
void set_adapters(StagedModel& model, double size = 0.3) {
  uint32_t which = 0;
  for (const NamedParameter& parameter : model.parameters()) {
    if (!is_adapter(parameter.name)) continue;
    parameter.value->copy_from(random_tensor(parameter.value->shape(), ++which, -size, size));
  }
}

Floats frozen_values(StagedModel& model) {
  Floats all;
  for (const NamedParameter& parameter : model.parameters()) {
    if (!parameter.is_frozen) continue;
    const Floats values = parameter.value->to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

Floats logits(StagedModel& model) {
  const Inference scope;
  const MemorySource set = rule_text(5, 16);
  Loader loader(set, {.batch = 5, .shuffle = false});
  const auto [tokens, labels] = prepare(InputKind::tokens, loader.next(), {});
  return model.forward(tokens).to_vector<float>();
}

double max_difference(const Floats& a, const Floats& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max<double>(largest, std::fabs(a[i] - b[i]));
  return largest;
}

TEST_CASE("char_gpt with rank 4: 32,768 trained values beside 812,288 frozen ones, eight tensors a block") {
  const auto model = adapted({.rank = 4}, {1, 129, 1, 65, 0, InputKind::tokens});
  CHECK(model->parameter_count() == 32'768);
  CHECK(model->parameter_count(false, true) == 812'288);
  const auto parameters = model->parameters();
  CHECK(std::ranges::count_if(parameters, [](const auto& p) { return !p.is_frozen; }) == 4 * 8);
  const auto shape_of = [&](const std::string& name) {
    const auto found = std::ranges::find(parameters, name, &NamedParameter::name);
    REQUIRE(found != parameters.end());
    CHECK_FALSE(found->is_frozen);
    return found->value->shape();
  };
  CHECK(shape_of("transformer.h.0.attn.c_attn.lora_A.weight") == Shape{4, 128});
  CHECK(shape_of("transformer.h.0.attn.c_attn.lora_B.weight") == Shape{384, 4});
  CHECK(shape_of("transformer.h.3.mlp.c_proj.lora_A.weight") == Shape{4, 512});
  CHECK(shape_of("transformer.h.3.mlp.c_proj.lora_B.weight") == Shape{128, 4});
  CHECK(std::ranges::count_if(parameters, [](const auto& p) { return p.name.ends_with("lora_A.weight"); }) == 16);
}

TEST_CASE("adapters are added once") {
  const auto model = adapted({.rank = 4});
  LayerKeys keys(7);
  CHECK(
      error_of([&] { model->adapt({.rank = 4}, keys); }, ExitCode::usage).starts_with("adapt: the layer has adapters"));
}

TEST_CASE("A starts uniform in +-1/sqrt(in), B with zeros, so that the network computes what it did") {
  const auto base = make_model("char_gpt", 2, small), model = adapted({.rank = 3});
  for (const NamedParameter& parameter : model->parameters()) {
    if (parameter.is_frozen) continue;
    const Floats values = parameter.value->to_vector<float>();
    const auto [least, most] = std::ranges::minmax(values);
    if (parameter.name.ends_with("lora_B.weight")) {
      CHECK(least == 0);
      CHECK(most == 0);
      continue;
    }
    const double bound = 1 / std::sqrt(static_cast<double>(parameter.value->shape()[1]));
    CHECK(most <= bound);
    CHECK(least >= -bound);
    CHECK(most > 0.8 * bound);
    CHECK(least < -0.8 * bound);
  }
  CHECK(logits(*model) == logits(*base));
  set_adapters(*model);
  CHECK(logits(*model) != logits(*base));
}

// y = x W + (alpha / r) (x A^T) B^T, by the one matrix that it is: W + (alpha / r) A^T B^T.
TEST_CASE("a layer's result and its gradients are those of the formula") {
  constexpr int64_t N = 5, in = 7, out = 6, rank = 2;
  constexpr double factor = 3.0 / rank;
  const AmbientScope scope;
  ambient().recording = true;
  LayerKeys keys(1);
  Tensor weight = random_tensor({in, out}, 1), x = random_tensor({N, in}, 2);
  const Tensor dy = random_tensor({N, out}, 3);
  class Frozen : public Linear {
   public:
    using Linear::Linear;
    void freeze_and_adapt(LayerKeys& of) { freeze(), adapt({.rank = rank, .alpha = 3}, of); }
  } layer(weight);
  layer.freeze_and_adapt(keys);
  uint32_t which = 10;
  for (const NamedParameter& parameter : layer.parameters()) {
    if (!parameter.is_frozen) parameter.value->copy_from(random_tensor(parameter.value->shape(), ++which));
  }
  ParameterArena arena(layer);
  REQUIRE(arena.parameters().size() == 2);
  x.set_requires_grad(true);
  const Tensor y = layer.forward(x);
  backward(y, dy);

  const NoGrad plain;
  const Tensor A = *arena.parameters()[0].value, B = *arena.parameters()[1].value, dW = matmul(x, dy, {}, {true});
  const GemmOptions both_transposed{.transpose_a = true, .transpose_b = true};
  const Tensor merged = add(weight, scale(matmul(A, B, {}, both_transposed), factor));
  const auto check_close = [](const Tensor& got, const Tensor& expected) {
    CHECK(max_difference(got.to_vector<float>(), expected.to_vector<float>()) < 2e-5);
  };
  check_close(y, matmul(x, merged));
  check_close(x.grad(), matmul(dy, merged, {}, {.transpose_b = true}));
  check_close(A.grad(), scale(matmul(B, dW, {}, both_transposed), factor));
  check_close(B.grad(), scale(matmul(dW, A, {}, both_transposed), factor));
}

struct Outcome {
  TrainResult result;
  Floats adapters, base;
  size_t gradients, optimizer;  // bytes
};

Outcome train_adapters(TrainConfig config, const std::vector<Segment>& segments = {}, bool all = false) {
  const MemorySource set = rule_text(320, 16), unseen = rule_text(64, 16, 1);
  const auto model = all ? make_model("char_gpt", 2, small) : adapted({.rank = 4});
  model->set_segments(segments);
  reset_peak(Device::cpu);
  ParameterArena arena(*model);
  Loader training(set, {.batch = 32, .seed = 3}), test(unseen, {.batch = 30, .shuffle = false});
  size_t gradients = 0, optimizer = 0;
  TrainHooks hooks;
  hooks.on_epoch = [&](int64_t, const EpochResult&) {  // when no activation has a gradient
    const MemoryStats stats = memory_stats(Device::cpu);
    gradients = stats.live_by_purpose[static_cast<size_t>(MemoryPurpose::gradients)];
    optimizer = stats.live_by_purpose[static_cast<size_t>(MemoryPurpose::optimizer)];
  };
  const TrainResult result = train(*model, arena, training, test, config, hooks);
  return {result, arena.values.to_vector<float>(), frozen_values(*model), gradients, optimizer};
}

TrainConfig config_of(Precision precision = Precision::f32) {
  TrainConfig config;
  config.epochs = 5;  // 50 steps
  config.precision = precision;
  config.optimizer = {.name = "adamw", .learning_rate = 1e-2f, .weight_decay = 0.1f};
  return config;
}

TEST_CASE("50 steps: the loss falls, the base keeps every bit, gradients and moments are those of the adapters alone") {
  const Floats before = frozen_values(*adapted({.rank = 4}));
  const int64_t trained = adapted({.rank = 4})->parameter_count();
  const Outcome all = train_adapters(config_of(), {}, true);
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    CAPTURE(std::string(name(precision)));
    const Outcome run = train_adapters(config_of(precision));
    CHECK(run.base == before);
    CHECK(run.result.epochs.back().training_loss < run.result.epochs.front().training_loss - 0.05);
    const auto arena_bytes = run.adapters.size() * sizeof(float);
    CHECK(arena_bytes < static_cast<size_t>(2 * trained) * sizeof(float));  // and the gaps between them
    CHECK(run.gradients == arena_bytes);
    CHECK(run.optimizer < 2 * arena_bytes + 1024);  // two moments, and some counters
    CHECK(run.optimizer >= 2 * arena_bytes);
    CHECK(run.gradients * 4 < all.gradients);
  }
}

TEST_CASE("merged: one weight for each layer, which computes what layer and adapter did") {
  const LoraOptions options{.rank = 3, .alpha = 5};
  const auto model = adapted(options), plain = make_model("char_gpt", 99, small);
  set_adapters(*model);
  const auto merged = merged_parameters(*model, options);
  const auto parameters = plain->parameters();
  REQUIRE(merged.size() == parameters.size());
  for (size_t i = 0; i < merged.size(); ++i) {
    CHECK(merged[i].name == parameters[i].name);
    parameters[i].value->copy_from(merged[i].tensor);
  }
  const Floats expected = logits(*model);
  CHECK(max_difference(logits(*plain), expected) < 1e-5);
  CHECK(max_difference(expected, logits(*make_model("char_gpt", 2, small))) > 0.01);
  // What has no adapter keeps its bits.
  CHECK(merged[0].tensor.to_vector<float>() == parameters_of(*model)[0].tensor.to_vector<float>());
}

TEST_CASE("adapters in a folder: peft's names and settings, and the same values again") {
  const TemporaryFolder folder;
  const LoraOptions options{.rank = 3, .alpha = 5};
  const auto model = adapted(options);
  set_adapters(*model);
  {
    OutputFolder out(folder / "adapters");
    write_adapters(out, *model, options, "abc");
    out.keep();
  }
  const SafetensorsFile file(folder / "adapters" / "adapter_model.safetensors");
  CHECK(file.entries().size() == 2 * 8);
  const SafetensorsEntry* entry = file.find("base_model.model.transformer.h.1.mlp.c_fc.lora_B.weight");
  REQUIRE(entry != nullptr);
  CHECK(entry->shape == std::vector<int64_t>{128, 3});
  const std::vector<uint8_t> bytes = read_file(folder / "adapters" / "adapter_config.json", 10'000);
  const std::string config(bytes.begin(), bytes.end());
  for (const char* part : {R"("peft_type": "LORA")", R"("r": 3)", R"("lora_alpha": 5)", R"("fan_in_fan_out": false)",
                           R"("target_modules": ["c_attn", "c_fc", "c_proj"])"}) {
    CHECK(config.find(part) != std::string::npos);
  }
  const auto again = make_model("char_gpt", 2, small);
  const LoraOptions read = load_adapters(*again, "abc", folder / "adapters");
  CHECK(read.rank == 3);
  CHECK(read.alpha == 5);
  CHECK(logits(*again) == logits(*model));

  CHECK_THROWS_WITH_AS(load_adapters(*make_model("char_gpt", 2, small), "abd", folder / "adapters"),
                       doctest::Contains("trained on the model with the SHA-256 abc, and this one has abd"), Error);
  ModelSizes wider = small;
  wider.width = 64;
  CHECK_THROWS_WITH_AS(load_adapters(*make_model("char_gpt", 2, wider), "abc", folder / "adapters"),
                       doctest::Contains("its tensors do not fit the model"), Error);
  CHECK_THROWS_WITH_AS(load_adapters(*make_model("mlp", 2), "abc", folder / "adapters"),
                       doctest::Contains("its tensors do not fit the model"), Error);
  save_model(folder / "adapters" / "adapter_model.safetensors", *make_model("mlp", 2), {"mlp", {}, {0, 1}, "digits"});
  CHECK_THROWS_WITH_AS(load_adapters(*make_model("char_gpt", 2, small), "abc", folder / "adapters"),
                       doctest::Contains("the format halfstep model, expected halfstep adapters"), Error);
}

TEST_CASE("models of images: adapters on all layers but the head, and the gradients of the merged weights' formula") {
  for (const std::string& name : model_names(InputKind::images)) {
    CAPTURE(name);
    const ModelSizes sizes = {name == "resnet8" ? 32 : 28, 28, 1, 10, 2};
    const Tensor images = random_tensor({6, sizes.rows, 28, 1}, 30);
    const LoraOptions options{.rank = 3, .alpha = 5};
    const auto base = make_model(name, 2, sizes), model = make_model(name, 2, sizes);
    LayerKeys keys(7);
    model->adapt(options, keys);
    const AmbientScope scope;
    ambient().training = false;  // batch norm by its running statistics in both
    CHECK(model->forward(images).to_vector<float>() == base->forward(images).to_vector<float>());
    set_adapters(*model, 0.1);
    const auto parameters = base->parameters();
    const std::vector<NamedTensor> merged = merged_parameters(*model, options);
    REQUIRE(merged.size() == parameters.size());
    for (size_t i = 0; i < merged.size(); ++i) parameters[i].value->copy_from(merged[i].tensor);

    ParameterArena all(*base), adapters(*model);
    const Tensor expected = base->forward(images), y = model->forward(images), dy = random_tensor(y.shape(), 40);
    CHECK(max_difference(y.to_vector<float>(), expected.to_vector<float>()) < 2e-5);
    backward(expected, dy), backward(y, dy);
    const NoGrad plain;
    const GemmOptions transposed{.transpose_a = true, .transpose_b = true};
    const auto& trained = adapters.parameters();  // A and B of each layer
    REQUIRE(trained.size() == 2 * std::ranges::count(parameters, ParameterRole::matrix, &NamedParameter::role));
    for (size_t i = 0; i < trained.size(); i += 2) {
      const std::string layer = trained[i].name.substr(0, trained[i].name.find("lora_A"));
      CAPTURE(layer);
      const Tensor dW = std::ranges::find(parameters, layer + "weight", &NamedParameter::name)->value->grad();
      const Tensor A = *trained[i].value, B = *trained[i + 1].value;
      const auto check_close = [&](Tensor got, const Tensor& formula) {
        const Floats values = scale(formula, options.factor()).to_vector<float>();
        CHECK(max_difference(got.to_vector<float>(), values) < 1e-4 * std::fabs(std::ranges::max(values)));
      };
      check_close(Tensor(A).grad(), matmul(B, dW, {}, transposed));
      check_close(Tensor(B).grad(), matmul(dW, A, {}, transposed));
    }
  }
}

TEST_CASE("a frozen body keeps its bits, batch norm's statistics too, and has no history; the head learns") {
  const auto bright_by_class = [](int64_t n, int64_t i) { return 25 * (n % 10) + i % 7; };
  const MemorySource set = made_images({28, 28, 1}, {0.5f, 0.3f}, 160, bright_by_class);
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    CAPTURE(std::string(name(precision)));
    const auto model = make_model("resnet8", 2, {28, 28, 1});
    model->freeze(Freeze::body);
    const auto values = [&](bool of_head) {
      Floats all;
      for (const NamedParameter& parameter : model->parameters()) {
        const Floats own = parameter.value->to_vector<float>();
        if (parameter.is_head == of_head) all.insert(all.end(), own.begin(), own.end());
      }
      return all;
    };
    const Floats body = values(false), head = values(true);
    ParameterArena arena(*model);
    CHECK(arena.values.size() == 64 * 10 + 64);
    Loader training(set, {.batch = 32, .seed = 3}), test(set, {.batch = 30, .shuffle = false});
    const auto [images, labels] = prepare(InputKind::images, training.next(), set.info().scale);
    const Tensor logits = model->forward(images);
    CHECK_FALSE(model->stages()[0].forward(images).requires_grad());
    {
      const Inference scope;
      CHECK(model->forward(images).to_vector<float>() == logits.to_vector<float>());
    }
    const StepCosts costs = measure_stages(*model, images, labels);
    CHECK(costs.stages[0].saved == 0);
    CHECK(costs.stages[4].saved > 0);
    if (precision == Precision::bf16) model->set_segments({{0, 2}, {3, 5}});
    TrainConfig config = config_of(precision);
    config.optimizer.clip = 10;
    config.optimizer.average_decay = precision == Precision::f16 ? 0.5f : 0;
    const TrainResult result = train(*model, arena, training, test, config);
    CHECK(values(false) == body);
    CHECK(values(true) != head);
    CHECK(result.epochs.back().training_loss < result.epochs.front().training_loss - 0.05);
  }
}

TEST_CASE("the costs of stages are measured where the first of them is frozen, as with adapters") {
  const auto model = adapted({.rank = 4});
  const ParameterArena arena(*model);
  const MemorySource set = rule_text(5, 16);
  Loader loader(set, {.batch = 5, .shuffle = false});
  const auto [tokens, labels] = prepare(InputKind::tokens, loader.next(), {});
  const StepCosts costs = measure_stages(*model, tokens, labels);
  CHECK(costs.stages[0].saved == 0);
  CHECK(costs.stages[1].saved > 0);
}

TEST_CASE("ranks that do not fit are refused") {
  CHECK_THROWS_WITH_AS(adapted({.rank = 33}), doctest::Contains("expected a rank from 1 to 32"), Error);
}

}  // namespace
}  // namespace hs::test
