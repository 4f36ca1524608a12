// train --recipe, and what a recipe is made of: flags that change how a run is optimised.
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/bench_program.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs::test;
using nlohmann::json;

const std::string tiny = "train --device cpu --model mlp --train 96 --test 32 --batch 16 --epochs 2 --quiet ";

std::string weights(const json& record) { return record["rows"][0]["weights_sha256"]; }

TEST_CASE(
    "a recipe stands for its flags, those of the command line come before it, and the record holds what counted") {
  const TemporaryFolder folder;
  const std::string file = (folder / "recipe.json").string();
  std::ofstream(file) << R"({"optimizer": "nesterov", "lr": 0.05, "schedule": "one-cycle", "decay": "weights",
    "weight-decay": 5e-4, "augment": "shift=1", "kernel": ["gemm=naive", "sgd_step=simple"], "seed": 3})";
  const std::string flags =
      "--optimizer nesterov --lr 0.05 --schedule one-cycle --decay weights --weight-decay 5e-4 --augment shift=1 "
      "--kernel gemm=naive --kernel sgd_step=simple --seed 3 ";
  json spelt = record_of(tiny + flags), taken = record_of(tiny + "--recipe " + file);
  CHECK(taken["config"]["recipe"] == file);
  CHECK(weights(spelt) == weights(taken));
  spelt["config"].erase("recipe");
  taken["config"].erase("recipe");
  CHECK(spelt["config"] == taken["config"]);
  const json other = record_of(tiny + "--recipe " + file + " --seed 4");
  CHECK(other["config"]["seed"] == 4);
  CHECK(weights(other) == weights(record_of(tiny + flags.substr(0, flags.size() - 2) + "4")));
}

TEST_CASE("a recipe that is not one is refused in one line that names the place") {
  const TemporaryFolder folder;
  int number = 0;
  const auto recipe = [&](const std::string& text) {
    const auto path = folder / std::to_string(++number);
    std::ofstream(path) << text;
    return "train --recipe " + path.string();
  };
  check_mistakes({
      {recipe(R"({"learning-rate": 1})"), 2, "learning-rate: no flag of train that takes a value"},
      {recipe(R"({"epoch": 1})"), 2, "epoch: no flag of train that takes a value; did you mean epochs?"},
      {recipe(R"({"recipe": "x"})"), 2, "recipe: no flag of train"},
      {recipe(R"({"quiet": true})"), 2, "quiet: no flag of train that takes a value"},
      {recipe(R"({"epochs": [1]})"), 2, "epochs: expected a string or a number"},
      {recipe(R"({"kernel": [1, []]})"), 2, "kernel: expected a string, or a list of them"},
      {recipe(R"({"data": -1})"), 2, "data: expected a string"},
      {recipe(R"({"lr": 1, "epochs": 2, "lr": 2})"), 3, "the member lr is there twice"},
      {recipe(std::string("{}\0{", 4)), 3, "is not JSON, at byte 3 of 4"},
      {recipe(R"({"json": "victim"})"), 2, "json: a recipe names nothing to write; give --json on the command line"},
      {recipe(R"({"save": "victim"})"), 2, "save: a recipe names nothing to write"},
      {recipe(R"({"trace-steps": 3})"), 2, "trace-steps: a recipe names nothing to write"},
      {recipe(R"({"epochs": 0})"), 2, "--epochs 0: expected a whole number from 1"},
      {recipe(R"({"lr": "fast"})"), 2, "--lr fast: expected a number"},
      {recipe("[]"), 3, "a recipe is a JSON object of flags"},
      {recipe(R"({"lr": 1)"), 3, "not JSON"},
      {"train --recipe " + (folder / "none.json").string(), 4, "none.json"},
  });
}

TEST_CASE("of a name of any length a message has the beginning, and its own end") {
  const TemporaryFolder folder;
  std::ofstream(folder / "r") << "{\"" << std::string(500'000, 'x') << "\": 1}";
  const Ended ended = run_bench({"train", "--recipe", "r"}, {.folder = folder.path});
  check_one_line(ended, 2, "xxx: no flag of train that takes a value");
  CHECK(contains(ended.err, ": r: xxx"));
  CHECK(ended.err.size() < 2100);
  check_one_line(run_bench({"train", "--recipe", ""}), 2, "--recipe: the value is empty");
}

TEST_CASE("the linear rule scales the rate with the batch, warms up to it, and says so") {
  const std::string words =
      "train --device cpu --model mlp --train 640 --test 32 --epochs 18 --lr 0.001 --scale-lr 16 ";
  const Ended larger = run_bench_line(words + "--batch 32 --accumulate 2 --json -");
  CHECK(larger.code == 0);
  CHECK(
      contains(larger.err,
               "--scale-lr 16: batch 2 x 32, so the learning rate is 0.004 instead of 0.001, reached after 10 steps"));
  const json config = json::parse(larger.out)["config"];
  CHECK(config["learning_rate"] == 0.004);
  CHECK(config["warmup"] == 10);
  const Ended smaller = run_bench_line(words + "--batch 8");
  CHECK(contains(smaller.err, "so the learning rate is 0.0005 instead of 0.001\n"));
  const Ended same = run_bench_line(words + "--batch 16");
  CHECK_FALSE(contains(same.err, "--scale-lr"));
}

TEST_CASE("each switch of a recipe changes the weights, and training still learns") {
  const std::string base = "train --device cpu --model mlp --train 640 --test 200 --batch 16 --epochs 3 --quiet ";
  const json plain = record_of(base);
  for (const char* more : {"--ema 0.9", "--label-smoothing 0.1", "--schedule one-cycle --lr 0.003",
                           "--schedule step --step-every 60", "--optimizer lamb --lr 0.01", "--optimizer lars --lr 10",
                           "--optimizer nesterov --lr 0.05", "--beta2 0.9", "--weight-decay 0.01",
                           "--weight-decay 0.01 --decay weights", "--skip-outliers 1.2", "--skip-loss-outliers 0.97"}) {
    CAPTURE(more);
    const json record = record_of(base + more);
    CHECK(weights(record) != weights(plain));
    CHECK(record["rows"][0]["test_accuracy"] > 0.4);
  }
  const std::string two = base + "--accumulate 2 ";
  CHECK(weights(record_of(two + "--skip-loss-outliers 0.6")) != weights(record_of(two)));
}

TEST_CASE("lr-find: a range, a curve, and rates inside of it") {
  const json record = record_of("tune lr --device cpu --model mlp --batch 16 --steps 120 --from 1e-5 --to 100");
  const json& rows = record["rows"];
  CHECK(rows.size() > 20);
  CHECK(rows.size() < 120);                                                    // the loss explodes before the last rate
  CHECK(rows[0]["learning_rate"].get<double>() / 1e-5 == doctest::Approx(1));  // Approx has a part that is absolute
  for (size_t i = 1; i < rows.size(); ++i) CHECK(rows[i]["learning_rate"] > rows[i - 1]["learning_rate"]);
  CHECK(record["steepest"] < record["lowest"]);
  CHECK(record["lowest"] < rows.back()["learning_rate"]);
}

}  // namespace
