// bench/peers/torch_models.py, where a Python has PyTorch: from the same weights it trains to the same losses as
// halfstep, and it changes images as `augment` says.
#include <fmt/format.h>

#include <cmath>

#include "engine/random.h"
#include "tests/support/bench_program.h"
#include "tests/support/python.h"

namespace {

using namespace hs;
using namespace hs::test;

constexpr const char* script = "tests/bench/torch_models.py";

void write_text(const std::filesystem::path& file) {
  constexpr const char* words[] = {"the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs"};
  std::ofstream text(file);
  for (uint64_t i = 0; i < 300; ++i) {
    text << words[random_bits({4, RandomPurpose::synthetic, 1, 2, 0}, i) % std::size(words)] << ' ';
  }
}

// A step has all samples, so that the order does not matter.
TEST_CASE("PyTorch trains from our weights to our losses: optimizers, decay, schedules, smoothing, clipping") {
  if (!python_has("torch safetensors")) return;
  const TemporaryFolder folder;
  write_text(folder / "input.txt");
  const std::string weights = (folder / "weights").string(),
                    sizes = fmt::format("--model char_gpt --data {} --context 16 --train 64 --test 8 --batch 64 ",
                                        folder.path.string());
  // A rate of nearly nothing: what is saved are the initial weights.
  run_successfully("train --quiet --device cpu --epochs 1 --optimizer sgd --lr 1e-12 --save-model " + weights + " " +
                   sizes);
  for (const std::string flags :
       {"--epochs 12 --optimizer adamw --lr 0.001 --beta2 0.99 --weight-decay 0.1 --decay weights --clip 1 "
        "--schedule cosine --warmup 3",
        "--epochs 12 --optimizer nesterov --lr 0.05 --schedule one-cycle --weight-decay 0.05 --decay weights "
        "--label-smoothing 0.05",
        "--epochs 6 --optimizer adam --lr 0.003 --weight-decay 0.1 --decay all --schedule linear",
        "--epochs 6 --optimizer sgd --lr 0.1 --momentum 0.5 --weight-decay 0.1 --clip 0.1"}) {
    CAPTURE(flags);
    const json ours = record_of("train --quiet --device cpu --threads 1 " + sizes + flags)["rows"][0]["epochs"];
    const ChildResult result = run_python("train " + weights + " " + sizes + flags, script);
    REQUIRE(result.status == 0);
    const json theirs = json::parse(result.output);
    REQUIRE(theirs["epochs"].size() == ours.size());
    CHECK(theirs["steps"] == ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      CAPTURE(i);
      for (const char* loss : {"training_loss", "test_loss"}) {
        CHECK(std::abs(theirs["epochs"][i][loss].get<double>() - ours[i][loss].get<double>()) < 1e-4);
      }
      CHECK(theirs["epochs"][i]["learning_rate"] == theirs["rates"][i]);
    }
    CHECK(ours.back()["training_loss"] < 0.95 * ours.front()["training_loss"].get<double>());  // it did train
  }
}

TEST_CASE("PyTorch's batches of images are shifted with zeros from outside, mirrored, and normalised as ours") {
  if (!python_has("torch safetensors")) return;
  const TemporaryFolder folder(fast_place());
  CHECK(run_python("augment " + folder.path.string(), script).status == 0);
}

}  // namespace
