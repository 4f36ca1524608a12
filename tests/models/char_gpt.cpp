// char_gpt: what the head of its file promises, and that the training loop trains it as it trains any other model.
// PyTorch's losses and gradients: tests/models/golden.cpp. That nothing sees a later token:
// tests/kernels/causal_attention.cpp. The same bits with threads, checkpoints and micro-batches: tests/weights.lock.
#include <cmath>

#include "data/loader/loader.h"
#include "engine/ambient.h"
#include "models/files/model_file.h"
#include "models/training/train.h"
#include "models/training/train_step.h"
#include "tests/support/rule_text.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace hs::test {
namespace {

using Floats = std::vector<float>;

ModelSizes text_sizes(int64_t context, int64_t symbols, int64_t blocks = 0, int64_t width = 128, int64_t heads = 4) {
  return {1, context + 1, 1, symbols, blocks, InputKind::tokens, width, heads};
}
const ModelSizes small = text_sizes(16, rule_symbols, 2, 32);

Batch first_batch(const MemorySource& set) {
  Loader loader(set, {.batch = set.info().count, .shuffle = false});
  return loader.next();
}

TEST_CASE("char_gpt has 812,288 parameters for Tiny Shakespeare, with nanoGPT's names") {
  const auto model = make_model("char_gpt", 1, text_sizes(128, 65));
  CHECK(model->parameter_count() == 812'288);
  CHECK(model->stages().size() == 6);
  CHECK(model->input_kind() == InputKind::tokens);
  const auto parameters = model->parameters();
  REQUIRE(parameters.size() == 2 + 4 * 6 + 1);
  const std::pair<const char*, Shape> beginning[] = {{"transformer.wte.weight", {65, 128}},
                                                     {"transformer.wpe.weight", {128, 128}},
                                                     {"transformer.h.0.ln_1.weight", {128}},
                                                     {"transformer.h.0.attn.c_attn.weight", {128, 384}},
                                                     {"transformer.h.0.attn.c_proj.weight", {128, 128}},
                                                     {"transformer.h.0.ln_2.weight", {128}},
                                                     {"transformer.h.0.mlp.c_fc.weight", {128, 512}},
                                                     {"transformer.h.0.mlp.c_proj.weight", {512, 128}}};
  for (size_t i = 0; i < std::size(beginning); ++i) {
    CHECK(parameters[i].name == beginning[i].first);
    CHECK(parameters[i].value->shape() == beginning[i].second);
  }
  CHECK(parameters.back().name == "transformer.ln_f.weight");
}

TEST_CASE("matrices start normal with deviation 0.02, the last of each half block smaller, norms with 1") {
  const auto model = make_model("char_gpt", 3, text_sizes(128, 65)),
             same = make_model("char_gpt", 3, text_sizes(128, 65));
  const auto parameters = model->parameters(), others = same->parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, value, role, is_statistic, is_frozen, is_head] = parameters[p];
    CHECK_FALSE(is_statistic);
    CHECK(is_vector(role) == (value->shape().rank() == 1));
    CAPTURE(name);
    const Floats values = value->to_vector<float>();
    CHECK(values == others[p].value->to_vector<float>());
    if (value->shape().rank() == 1) {
      CHECK(values == Floats(128, 1));
      continue;
    }
    double sum = 0, squares = 0, inside = 0;
    const double deviation = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(8) : 0.02;
    for (const float v : values) {
      sum += v;
      squares += double{v} * v;
      inside += std::fabs(v) < deviation;
    }
    const auto n = static_cast<double>(values.size());
    CHECK(std::fabs(sum / n) < 5 * deviation / std::sqrt(n));
    CHECK(std::sqrt(squares / n) == doctest::Approx(deviation).epsilon(5 / std::sqrt(2 * n)));
    CHECK(inside / n == doctest::Approx(0.6827).epsilon(5 * 0.68 / std::sqrt(n)));  // a normal distribution
    if (p > 0) CHECK(values[0] != parameters[p - 1].value->to_vector<float>()[0]);
  }
}

TEST_CASE("a batch of windows: the first symbols are read, the last ones predicted; images and text are not mixed up") {
  const auto model = make_model("char_gpt", 1, small), images = make_model("mlp", 1);
  Batch batch = first_batch(rule_text(3, 16));
  const auto [tokens, labels] = prepare(InputKind::tokens, batch, {});
  CHECK(tokens.shape() == Shape{3, 16});
  CHECK(labels.shape() == Shape{48});
  const auto window = batch.images.to_vector<uint8_t>();
  const auto token = tokens.to_vector<int32_t>(), label = labels.to_vector<int32_t>();
  int wrong = 0;
  for (size_t i = 0; i < 48; ++i) {
    wrong += token[i] != window[i / 16 * 17 + i % 16] || label[i] != window[i / 16 * 17 + i % 16 + 1];
  }
  CHECK(wrong == 0);

  const AugmentOptions flip{.flip = true};
  CHECK_THROWS_WITH_AS(prepare(InputKind::tokens, batch, {}, &flip), doctest::Contains("augment changes images"),
                       Error);
  batch.images = Tensor::zeros({3, 28, 28, 1}, DType::u8);
  CHECK_THROWS_WITH_AS(prepare(InputKind::tokens, batch, {}), doctest::Contains("expected u8 (N, 1, T + 1, 1)"), Error);
  batch.images = Tensor::zeros({3, 1, 17, 1}, DType::f32);  // normalised on the host
  CHECK_THROWS_WITH_AS(prepare(InputKind::tokens, batch, {}), doctest::Contains("expected u8 (N, 1, T + 1, 1)"), Error);
  CHECK_THROWS_WITH_AS(make_model("char_gpt", 1), doctest::Contains("model char_gpt: reads a text, but the data are"),
                       Error);
  CHECK_THROWS_WITH_AS(make_model("mlp", 1, small), doctest::Contains("model mlp: reads images, but the data are"),
                       Error);
  CHECK_THROWS_WITH_AS(make_model("char_gpt", 1, text_sizes(16, 11, 2, 30)), doctest::Contains("a width of 30"), Error);
}

// A broken mask falls below ln 2 = 0.693; without attention, positions or one of the gradients the loss stays above.
// The first symbol of a window cannot be known, so the best is 15/16 ln 2 + 1/16 ln 11 = 0.80.
TEST_CASE("char_gpt learns a rule down to the entropy of its coin, and not below" *
          doctest::skip(with_address_sanitizer)) {
  TrainConfig config;
  config.epochs = 12;
  config.optimizer = {.name = "adamw",
                      .learning_rate = 5e-3f,
                      .beta2 = 0.99f,
                      .weight_decay = 0.1f,
                      .decay_vectors = false,
                      .clip = 1,
                      .schedule = {.kind = ScheduleKind::cosine, .warmup_steps = 20}};
  const MemorySource set = rule_text(640, 16), unseen = rule_text(64, 16, 1);
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    CAPTURE(std::string(name(precision)));
    config.precision = precision;
    const auto model = make_model("char_gpt", 2, small);
    ParameterArena arena(*model);
    Loader training(set, {.batch = 32, .seed = 3}), test(unseen, {.batch = 30, .shuffle = false});
    const TrainResult result = train(*model, arena, training, test, config);
    CHECK(result.epochs.front().test.loss > 1.5);
    CHECK(result.epochs.back().test.loss < 1.05);
    CHECK(result.epochs.back().test.loss > 0.79);
    CHECK(result.epochs.back().test.accuracy > 0.4);  // one of two, but for the first symbols of a window
    CHECK(result.epochs.back().test.accuracy < 0.6);
  }
}

TEST_CASE("a model's file keeps its sizes and the vocabulary, whatever bytes are in it") {
  const TemporaryFolder folder;
  const auto model = make_model("char_gpt", 9, small);
  const std::string zero(1, '\0');
  const Vocabulary characters = {zero,     "\n",     "\"",     "\\",         "\x7f", "\u0080",
                                 "\u00e4", "\u202e", "\uFEFF", "\U0001F600", "["};
  save_model(folder / "c", *model, {"char_gpt", small, {0, 1}, "rule", characters});
  CHECK(load_model(folder / "c").description.vocabulary == characters);
  const Vocabulary vocabulary = {zero, "\n", "\x7f", "\x80", "\xff", "a", "b", "c", "d", "e", "f"};
  save_model(folder / "m", *model, {"char_gpt", small, {0, 1}, "rule", vocabulary});
  const LoadedModel loaded = load_model(folder / "m");
  CHECK(loaded.description.vocabulary == vocabulary);
  CHECK(loaded.description.sizes.context() == 16);
  CHECK(loaded.description.sizes.width == 32);
  CHECK(loaded.description.sizes.heads == 4);
  CHECK(loaded.description.sizes.blocks == 2);
  const Inference scope;
  const auto [tokens, labels] = prepare(InputKind::tokens, first_batch(rule_text(2, 16)), {});
  CHECK(loaded.model->forward(tokens).to_vector<float>() == model->forward(tokens).to_vector<float>());

  const SafetensorsFile file(folder / "m");
  CHECK(file.metadata().at("vocabulary") == "000a7f80ff616263646566");
  for (const auto& [value, part] : {std::pair("0", "two hexadecimal digits"),
                                    {"0g", "two hexadecimal digits"},
                                    {"[\"a\"", "a JSON list of characters"},
                                    {"[\"a\", \"bc\"]", "a JSON list of characters"},
                                    {"[\"a\"]", "a vocabulary of 1 symbols, expected 11"},
                                    {"00", "a vocabulary of 1 symbols, expected 11"}}) {
    Metadata metadata = file.metadata();
    metadata["vocabulary"] = value;
    write_safetensors(folder / "bad", parameters_of(*model), metadata);
    CHECK_THROWS_WITH_AS(load_model(folder / "bad"), doctest::Contains(part), Error);
  }
}

}  // namespace
}  // namespace hs::test
