// train --recipe, and what a recipe is made of: flags that change how a run is optimised.
#include <cmath>
#include <limits>

#include "bench/measure/improvement.h"
#include "source_dir.h"
#include "tests/support/bench_program.h"

namespace {

using namespace hs::bench::measure;
using namespace hs::test;

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

TEST_CASE("the gradient noise scale is measured without changing a bit, and needs micro-batches") {
  const std::string train =
      "train --device cpu --model mlp --train 200 --test 32 --batch 16 --accumulate 4 --epochs 2 --quiet ";
  const json watched = record_of(train + "--noise-scale"), plain = record_of(train);
  CHECK(weights(watched) == weights(plain));
  CHECK(watched["rows"][0]["noise"]["steps"] == 2 * 3);  // of 64; the last of an epoch has 8
  CHECK(watched["rows"][0]["noise"]["trace"] > 0);
  CHECK(!plain["rows"][0].contains("noise"));
  check_mistakes(
      {{"train --noise-scale", 2, "--noise-scale: compares a micro-batch with its step; give --accumulate 2"}});
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
      {recipe(R"({"trace-steps": 3})"), 2, "trace-steps: a recipe names nothing to write"},
      {recipe(R"({"plugin": "x.cpp"})"), 2, "plugin: a recipe runs no code of its own; give --plugin on the command"},
      {recipe(R"({"epochs": 0})"), 2, "--epochs 0: expected a whole number from 1"},
      {recipe("[]"), 3, "a recipe is a JSON object of flags"},
      {recipe(R"({"lr": 1)"), 3, "not JSON"},
      {"train --recipe " + (folder / "none.json").string(), 4, "none.json"},
      {"train --recipe mnist", 2, "--recipe mnist: neither a file nor one of cifar10, mnist_99, tinyshakespeare"},
  });
  const json named = record_of(tiny + "--recipe mnist_99 --data synthetic");
  CHECK(named["config"]["learning_rate"] == 0.01);
  CHECK(named["config"]["recipe"].get<std::string>().ends_with("/share/halfstep/recipes/mnist_99.json"));
}

TEST_CASE("a record of train is a recipe: the same weights from the same settings") {
  const TemporaryFolder folder;
  const std::string file = (folder / "a.json").string(), saved = (folder / "saved").string();
  const auto repeated = [&](const std::string& flags, const std::vector<std::string>& differ = {}) {
    CAPTURE(flags);
    run_successfully("train --device cpu --quiet --json " + file + " " + flags);
    json first = json::parse(read_text(file)), again = record_of("train --quiet --recipe " + file);
    CHECK(weights(first) == weights(again));
    CHECK(again["config"]["recipe"] == file);
    CHECK(again["data"]["choice"] == first["data"]["choice"]);
    for (const auto& record : {&first, &again}) {
      (*record)["config"].erase("recipe");
      for (const std::string& name : differ) (*record)["config"].erase(name);
    }
    CHECK(first["config"] == again["config"]);
    return again;
  };
  const std::string small = "--model mlp --train 96 --test 32 --batch 16 ";
  const json plain = repeated("--data synthetic --epochs 1 " + small);
  CHECK(plain["data"]["train"] == 96);
  CHECK(plain["data"]["test"] == 32);
  repeated(
      small +
      "--optimizer sgd --momentum 0.8 --lr 0.05 --schedule step --step-every 3 --step-factor 0.5 --augment shift=1 "
      "--kernel gemm=naive --kernel sgd_step=simple --seed 7 --epochs 2 --validation 0.2 --validate-every 2st "
      "--patience 9 --cache none --prefetch 3 --target accuracy=0.001");
  repeated(
      "--model deep_cnn --train 16 --test 8 --batch 4 --epochs 1 --blocks 2 --precision bf16 --checkpoint all "
      "--accumulate 2 --schedule one-cycle");
  const json scaled = repeated(small + "--epochs 18 --scale-lr 8", {"scale_lr"});
  CHECK(scaled["config"]["warmup"] == 6);  // scaled once
  repeated(small + "--epochs 1 --save-every 1ep --keep 1 --save " + saved, {"save_every", "keep"});
  std::ofstream(folder / "note.txt") << std::string(400, 'a') + std::string(400, 'b');
  repeated("--model char_gpt --context 8 --blocks 1 --epochs 1 --batch 4 --train 16 --data " +
           (folder / "note.txt").string());

  run_successfully("train --quiet --json " + file + " --epochs 1 " + small);
  const json other = record_of("train --quiet --recipe " + file + " --seed 9");
  CHECK(other["config"]["seed"] == 9);
  CHECK(other["config"]["batch"] == 16);
  CHECK(contains(run_bench_line("profile --steps 2 --recipe " + file).out, "mlp on synthetic digits, batch 16"));
  json record = json::parse(read_text(file));
  json of_elsewhere = record;
  of_elsewhere["data"].erase("choice");  // as in the records of the repository
  std::ofstream(folder / "elsewhere.json") << of_elsewhere;
  const std::string elsewhere = "train --quiet --recipe " + (folder / "elsewhere.json").string();
  CHECK(weights(record_of(elsewhere + " --data synthetic")) == weights(record));
  record["config"]["plugin"] = {"x.cpp"};
  std::ofstream(folder / "code.json") << record;
  record["config"].erase("plugin");
  record["config"]["start_sha256"] = "ab";
  std::ofstream(folder / "start.json") << record;
  const std::string techniques = HALFSTEP_SOURCE_DIR "/bench/results/cpu/techniques.json";
  std::ofstream(folder / "broken.json") << R"({"schema": 1, "command": "train", "config": []})";
  const std::string begun = R"({"schema": 1, "command": "train", "data": {"choice": {}}, "config": )";
  std::ofstream(folder / "wrong.json") << begun << R"({"epochs": {}}})";
  std::ofstream(folder / "rate.json") << begun << R"({"learning_rate": "x"}})";
  check_mistakes({
      {elsewhere, 2, "elsewhere.json: does not say where its data were; give --data as well"},
      {"train --recipe " + (folder / "start.json").string(), 2,
       "start.json: its run began with the weights of a model"},
      {"train --recipe " + (folder / "code.json").string(), 2, "plugin: a recipe runs no code of its own"},
      {"train --recipe " + techniques, 3, "techniques.json: is a record of techniques, expected one of train"},
      {"train --recipe " + (folder / "broken.json").string(), 3, "broken.json: config and data: expected objects"},
      {"train --recipe " + (folder / "wrong.json").string(), 2, "epochs: expected a string or a number"},
      {"train --recipe " + (folder / "rate.json").string(), 2, "--lr x: expected a number"},
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
  const Ended larger = run_successfully(words + "--batch 32 --accumulate 2 --json -");
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
  for (const char* more :
       {"--ema 0.9", "--label-smoothing 0.1", "--schedule one-cycle --lr 0.003", "--schedule step --step-every 60",
        "--optimizer lamb --lr 0.01", "--optimizer lars --lr 10", "--optimizer schedule-free --lr 0.003",
        "--optimizer nesterov --lr 0.05", "--beta2 0.9", "--weight-decay 0.01", "--weight-decay 0.01 --decay weights",
        "--skip-outliers 1.2", "--skip-loss-outliers 0.97"}) {
    CAPTURE(more);
    const json record = record_of(base + more);
    CHECK(weights(record) != weights(plain));
    CHECK(record["rows"][0]["test_accuracy"] > 0.4);
  }
  const json muon =
      record_of("train --device cpu --train 64 --test 32 --epochs 1 --quiet --optimizer muon --momentum 0.95");
  CHECK(muon["config"]["momentum"] == 0.95);
  CHECK(muon["config"]["beta2"] == 0.999);
  const std::string two = base + "--accumulate 2 ";
  CHECK(weights(record_of(two + "--skip-loss-outliers 0.6")) != weights(record_of(two)));
}

TEST_CASE("lr-find: a range, a curve, and rates inside of it") {
  const json whole = record_of("tune lr --device cpu --model mlp --batch 16 --steps 27 --from 1e-6 --to 1e-5");
  CHECK(whole["rows"].back()["learning_rate"].get<double>() * 1e5 == doctest::Approx(1));  // it ends there
  CHECK(whole["steepest"].is_null());                                                      // nothing is learnt at these
  const json record =
      record_of("tune lr --device cpu --model mlp --batch 16 --steps 120 --from 1e-5 --to 100 --train 160");
  CHECK(record["data"]["train"] == 160);
  const json& rows = record["rows"];
  CHECK(rows.size() > 20);
  CHECK(rows.size() < 120);                                                    // the loss explodes before the last rate
  CHECK(rows[0]["learning_rate"].get<double>() / 1e-5 == doctest::Approx(1));  // Approx has a part that is absolute
  for (size_t i = 1; i < rows.size(); ++i) CHECK(rows[i]["learning_rate"] > rows[i - 1]["learning_rate"]);
  CHECK(record["steepest"] < record["lowest"]);
  CHECK(record["lowest"] < rows.back()["learning_rate"]);
}

// A training whose time is known: a product of what each flag costs. The batch and the rate belong together, and too
// large a rate never gets there.
struct Costs {
  double half, one_worker, one_cycle, best_rate;  // factors, and the best rate for a batch of 64

  double seconds(const json& settings) const {
    const auto word = [&](const char* flag, const std::string& otherwise) {
      return settings.contains(flag) ? settings[flag][0].get<std::string>() : otherwise;
    };
    const double batch = std::stod(word("--batch", "64")), given = std::stod(word("--scale-lr", "0"));
    const double rate = std::stod(word("--lr", "0.001")) * (given > 0 ? batch / given : 1);
    const double off = std::log(rate / (best_rate * batch / 64)), work = 64 / batch + batch / 256;
    if (off > std::log(20.0)) return std::numeric_limits<double>::infinity();
    double time = 10 * work * (1 + off * off);
    if (word("--precision", "f32") != "f32") time *= word("--precision", "") == "bf16" ? half : 3;
    if (word("--prefetch", "2") == "0") time *= one_worker;
    if (word("--schedule", "constant") == "one-cycle") time *= one_cycle;
    return time;
  }
};

// The least time of any combination of a candidate or none of each kind from here on.
double least_seconds(const Costs& costs, const json& settings, int64_t& combinations, size_t kind = 0) {
  if (kind == kinds().size()) return ++combinations, costs.seconds(settings);
  double least = least_seconds(costs, settings, combinations, kind + 1);
  for (const Change& change : candidates(kinds()[kind], settings)) {
    least = std::min(least, least_seconds(costs, changed(settings, change), combinations, kind + 1));
  }
  return least;
}

TEST_CASE("improve: as good as every combination within 5 % in a fraction of the runs; planted defaults are found") {
  const json bad = {{"--batch", {"8"}}, {"--precision", {"f16"}}, {"--cache", {"none"}}, {"--prefetch", {"0"}}};
  for (const Costs& costs : {Costs{0.7, 4, 1.5, 1e-3}, Costs{1.4, 2, 0.6, 1e-3}, Costs{0.5, 1.5, 1.2, 3e-3}}) {
    for (const json& start : {json::object(), bad}) {
      int64_t calls = 0;
      const Trainer trainer = [&](const json& settings, uint64_t seed, double limit) {
        ++calls;
        const double noise = 1 + 0.01 * static_cast<double>(seed % 3), seconds = costs.seconds(settings) * noise;
        return Trial{seconds <= limit ? seconds : std::numeric_limits<double>::infinity(), 0.98};
      };
      const Found found = improve(start, trainer, {.first_limit = 1e4});
      CAPTURE(found.settings.dump());
      CHECK(calls == found.runs);
      int64_t combinations = 0;
      CHECK(costs.seconds(found.settings) <= 1.05 * least_seconds(costs, start, combinations));
      CHECK(combinations > 500);
      CHECK(static_cast<double>(found.runs) <= 0.15 * static_cast<double>(combinations));
      std::set<std::string> found_kinds;
      for (const Change& change : found.changes) found_kinds.insert(change.kind);
      if (start != bad) continue;
      for (const char* kind : {"loader", "precision", "batch"}) CHECK_MESSAGE(found_kinds.contains(kind), kind);
    }
  }
}

TEST_CASE("improve: what loses accuracy is left out, a target out of reach changes nothing, and time ends the search") {
  const Trainer loses = [](const json& settings, uint64_t, double) {
    return settings.contains("--precision") ? Trial{1, 0.96} : Trial{10, 0.98};
  };
  CHECK(improve(json::object(), loses, {.lose = 0.002}).changes.empty());
  CHECK(improve(json::object(), loses, {.lose = 0.05}).settings == json{{"--precision", {"bf16"}}});
  const Trainer never = [](const json&, uint64_t, double) { return Trial(); };
  CHECK(improve(json::object(), never, {}).changes.empty());
  const Trainer never_waits = [](const json& settings, uint64_t, double) {
    return Trial{settings.contains("--prefetch") ? 1.0 : 10.0, 0.98, 0.01};
  };
  CHECK(improve(json::object(), never_waits, {}).changes.empty());  // what the loader does cannot be the reason
  const Trainer pays_together = [](const json& settings, uint64_t, double) {  // bf16 does with a large batch alone
    const double batch = settings.contains("--batch") ? std::stod(settings["--batch"][0].get<std::string>()) : 64;
    return Trial{1000 / batch * (settings.contains("--precision") ? batch < 512 ? 1.2 : 0.8 : 1), 0.98, 0};
  };
  const Found together = improve(json::object(), pays_together, {});
  CHECK(together.settings.dump() == R"({"--batch":["1024"],"--scale-lr":["64"],"--precision":["bf16"]})");
  REQUIRE(together.changes.size() == 2);  // --batch 512, then 1024: one change
  CHECK(together.changes[1].text() == "--batch 1024 --scale-lr 64");
  int64_t asked = 0;
  const Found ended = improve(json::object(), loses, {.lose = 1, .may_go_on = [&] { return ++asked <= 4; }});
  CHECK(ended.out_of_time);
  CHECK(ended.runs == 4);
}

TEST_CASE("improve: a search, a judgement with unseen seeds, and a recipe that train takes") {
  const TemporaryFolder folder;
  const std::string recipe = (folder / "r.json").string();
  const Ended ended =
      run_bench({"improve", "--run", "--model mlp --train 640 --test 128 --batch 4 --device cpu", "--quiet", "--quick",
                 "--minutes", "0.15", "--target", "accuracy=0.3", "--json", "-", "--out", recipe});
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  const json record = json::parse(ended.out);
  CHECK(record["rows"][0]["name"] == "as given");
  CHECK(record["rows"][0]["train_flags"] == "train --model mlp --batch 4 --device cpu --train 640 --test 128");
  CHECK(record["rows"][0]["seconds_all"].size() == 3);
  const std::string answer = record["answer"].dump();
  CHECK(contains(answer, "The search judged by the test set"));
  if (!record["changes"].empty()) CHECK(contains(answer, "Claim cannot tell: "));  // by three turns
  CHECK(record["search"]["runs"] > 1);
  run_successfully("train --quiet --epochs 1 --recipe " + recipe);
  check_mistakes({
      {"improve", 2, "improve: what is to be reached? give --target accuracy=0.98 or loss=1.6"},
      {"improve --target f1=1", 2, "--target f1=1: expected accuracy=NUMBER"},
      {"improve --target loss=1 --run --epoch=2", 2, "--run \"--epoch=2"},
  });
}

}  // namespace
