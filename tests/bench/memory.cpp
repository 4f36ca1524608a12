// `halfstep-bench profile memory`, and --checkpoint of `train`, as their users meet them.
#include <cstdlib>
#include <limits>

#include "bench/measure/memory_budget.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/random_stages.h"
#include "tests/support/thrown.h"

namespace {

using namespace hs::test;

Ended run(const std::string& line) { return run_bench_line(line + " --device cpu"); }
json record_of(const std::string& line) { return hs::test::record_of(line + " --device cpu --quiet"); }

int64_t sum(const json& by_purpose) {
  int64_t total = 0;
  for (const auto& [purpose, bytes] : by_purpose.items()) total += bytes.get<int64_t>();
  return total;
}

TEST_CASE("memory: a row for every combination, predictions that hold, purposes that add up, and a timeline") {
  const json record = record_of("profile memory --model deep_cnn --blocks 6 --batch 4 --steps 1 --budget 8M --curve");
  CHECK(record["config"]["budget_bytes"] == 8 << 20);
  CHECK(record["accumulation_cost"]["micro_batches"] == 4);
  CHECK(record["accumulation_cost"]["ratio"] > 0);
  REQUIRE(record["rows"].size() == 12);
  size_t i = 0;
  for (const char* precision : {"f32", "bf16"}) {
    for (const char* checkpoint : {"off", "all", "budget=auto"}) {
      for (const int accumulate : {1, 4}) {
        const json& row = record["rows"][i++];
        CAPTURE(row["precision"]);
        CAPTURE(row["checkpoint"]);
        CAPTURE(row["accumulate"]);
        CHECK(row["precision"] == precision);
        CHECK(row["checkpoint"] == checkpoint);
        CHECK(row["accumulate"] == accumulate);
        CHECK(row["peak_bytes"] <= row["predicted_peak_bytes"]);
        CHECK(row["peak_bytes"].get<double>() >= 0.95 * row["predicted_peak_bytes"].get<double>());
        CHECK(sum(row["at_peak"]) == row["peak_bytes"]);
        CHECK(row["segments"].empty() == (checkpoint == std::string("off")));
        CHECK(row["step_ms"] > 0);
        CHECK(row["largest_batch"] >= 0);
        CHECK(row.contains("timeline") == (accumulate == 1));
        // The same bits whatever is checkpointed: the first row of the same precision and accumulation.
        const json& off = record["rows"][i - 1 - (i - 1) % 6 + (i - 1) % 2];
        CHECK(off["checkpoint"] == "off");
        CHECK(row["weights_sha256"] == off["weights_sha256"]);
        CHECK(row["peak_bytes"] <= off["peak_bytes"]);
        if (accumulate == 1) {
          const json& timeline = row["timeline"];
          CHECK(timeline["points"].size() <= 128);
          CHECK(timeline["points"].size() > 50);
          int64_t largest = 0;
          for (const json& point : timeline["points"]) largest = std::max(largest, sum(point["live"]));
          CHECK(largest <= row["peak_bytes"]);
          CHECK(static_cast<double>(largest) >= 0.95 * row["peak_bytes"].get<double>());
        }
      }
    }
  }
  CHECK(record["rows"][2]["largest_batch"] > record["rows"][0]["largest_batch"]);
  const json& curve = record["curve"];
  REQUIRE(curve.size() == 12);
  CHECK(curve[0]["checkpoint"] == "off");
  CHECK(curve[1]["checkpoint"] == "budget=auto");
  for (const json& point : curve) {
    CHECK(point["weights_sha256"] == curve[0]["weights_sha256"]);
    CHECK(point["peak_bytes"] <= point["predicted_peak_bytes"]);
  }
  CHECK(curve[2]["peak_bytes"] < curve[0]["peak_bytes"]);
  CHECK(curve[11]["segments"].empty());
  // The sentence names the fastest of the rows of the same steps that have half of the bytes.
  const json *best = nullptr, &all = record["rows"][0];
  for (const json& row : record["rows"]) {
    if (row["accumulate"] != 1 || 2 * row["peak_bytes"].get<int64_t>() > all["peak_bytes"].get<int64_t>()) continue;
    if (!best || row["step_ms"] < (*best)["step_ms"]) best = &row;
  }
  REQUIRE(best);
  const std::string type = (*best)["precision"] == "f32" ? "" : " --precision bf16",
                    plan = (*best)["checkpoint"] == "off"
                               ? ""
                               : " --checkpoint " + best->at("checkpoint").get<std::string>();
  CHECK(record["remarks"][1].get<std::string>().starts_with("half the bytes: train" + type + plan + " (-"));
}

TEST_CASE("memory: a run says what accumulation costs") {
  const json record =
      hs::test::record_of("profile memory --device cpu --model mlp --batch 4 --steps 1 --budget 1M --curve --quiet");
  CHECK(
      contains(record["remarks"][0].get<std::string>(), "accumulation: forward and backward of 4 batches of 4 take "));
}

TEST_CASE("memory: mistakes are one line with exit code 2") {
  check_mistakes(
      {{"profile memory --budget much", 2, "--budget much: expected a number of bytes"},
       {"train --memory much", 2, "--memory much: expected a number of bytes"},
       {"train --memory 9M --checkpoint all", 2, "--memory 9M: chooses what is recomputed, and so does"},
       {"train --memory 9M --save nowhere", 2, "--memory 9M: may choose another way when the run is resumed"},
       {"train --memory 9M --graph-steps 2", 2, "--memory 9M: may accumulate, which a graph of 2 steps cannot"}});
}

TEST_CASE("train --checkpoint: the same weights, the plan in the record and on the screen") {
  const std::string small = "train --model deep_cnn --blocks 8 --train 24 --test 8 --epochs 1 --batch 8";
  const json off = record_of(small);
  CHECK(off["rows"][0]["checkpoint_plan"].is_null());
  CHECK(off["config"]["checkpoint"] == "off");
  CHECK(off["config"]["blocks"] == 8);
  for (const char* what : {"all", "every=3", "budget=auto"}) {
    const json on = record_of(small + " --checkpoint " + what);
    CAPTURE(what);
    CHECK(on["rows"][0]["weights_sha256"] == off["rows"][0]["weights_sha256"]);
    CHECK(on["rows"][0]["final_loss"] == off["rows"][0]["final_loss"]);
    CHECK(on["rows"][0]["peak_bytes"] < off["rows"][0]["peak_bytes"]);
  }
  const json row = record_of(small + " --checkpoint budget=auto")["rows"][0];
  const json& plan = row["checkpoint_plan"];
  CHECK(plan["stages"].size() == 8 + 3);  // conv, blocks, linear, loss
  CHECK(row["peak_bytes"] <= plan["predicted_peak_bytes"]);
  CHECK(row["peak_bytes"].get<double>() >= 0.95 * plan["predicted_peak_bytes"].get<double>());
  const Ended shown = run(small + " --quiet --checkpoint budget=auto");
  CHECK(contains(shown.out, "block8"));
  CHECK(contains(shown.out, "recomputed, segment 1"));
  CHECK(contains(shown.out, "kept"));
  CHECK(contains(shown.out, "peak predicted"));

  // The limit that the message names is met.
  const Ended small_budget = run(small + " --checkpoint budget=1M --quiet");
  CHECK(small_budget.code == 2);
  CHECK(small_budget.out.empty());
  const size_t needs = small_budget.err.find("this step needs ");
  REQUIRE_MESSAGE(needs != std::string::npos, small_budget.err);
  const std::string bytes = std::to_string(std::stoll(small_budget.err.substr(needs + 16)));
  CHECK(record_of(small + " --checkpoint budget=" + bytes)["rows"][0]["peak_bytes"] <= std::stoll(bytes));
  CHECK(run(small + " --quiet --checkpoint budget=" + std::to_string(std::stoll(bytes) - 1)).code == 2);

  check_mistakes({{"train --checkpoint half", 2, "--checkpoint half: expected off, all, every=N"}});
}

bool is_long() { return std::getenv("HALFSTEP_LONG_TESTS") != nullptr; }

// A model whose bytes and times are straight lines in the samples of a micro-batch.
struct LinearModel {
  hs::StepCosts one;  // for a sample
  int64_t parameters = 0, tree = 0, measuring = 0;

  explicit LinearModel(Dice& dice) {
    parameters = dice(0, 4000);
    if (dice(0, 2) == 0) tree = dice(1, 500);
    measuring = dice(0, 200);
    const int64_t input = dice(1, 60), stages = dice(2, 12) + 1;
    one.stages = random_stages(dice, stages, input);
  }
  hs::bench::measure::MicroBatch at(int64_t batch, int64_t samples, hs::Precision precision) const {
    hs::bench::measure::MicroBatch micro;
    micro.batch = batch;
    micro.accumulate = samples / batch;
    micro.precision = precision;
    micro.costs = one;
    const bool half = precision != hs::Precision::f32;
    for (hs::StageCost& stage : micro.costs.stages) {
      for (int64_t* bytes : {&stage.input, &stage.output, &stage.saved}) *bytes *= half ? batch : 2 * batch;
      for (int64_t* bytes : {&stage.forward_peak, &stage.unrecorded_peak, &stage.backward_peak}) {
        *bytes = *bytes * (half ? batch : 2 * batch) + 20;  // workspace
      }
      for (double* ms : {&stage.forward_ms, &stage.backward_ms}) *ms = *ms * (half ? 1.2 : 1) * double(batch) + 1;
    }
    micro.constant = parameters;
    micro.costs.fixed = parameters + samples + 10 * batch;
    for (int64_t parts = micro.accumulate; parts > 1; parts /= 2) micro.left_over += tree;
    micro.other_peak = micro.costs.fixed + 100 * batch;
    micro.costs.measuring_peak = micro.costs.fixed + measuring * batch;
    return micro;
  }
};

TEST_CASE("--memory: within 5 % of the fastest that there is, and a larger budget gives no slower plan") {
  using hs::Precision;
  using namespace hs::bench::measure;
  double worst = 1;
  for (uint32_t which = 0; which < (is_long() ? 1000 : 30); ++which) {
    CAPTURE(which);
    Dice dice{8, which};
    const LinearModel model(dice);
    const MemoryChoice choice = {
        dice(2, 96), dice(1, 4),
        dice(0, 1) ? std::vector{Precision::f32} : std::vector{Precision::f32, Precision::bf16}};
    const int64_t samples = choice.batch * choice.accumulate;
    std::vector<MicroBatch> all;
    int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
    for (int64_t batch = 1; batch <= samples; ++batch) {
      for (const Precision precision : choice.precisions) {
        if (samples % batch == 0) all.push_back(model.at(batch, samples, precision));
      }
    }
    for (const MicroBatch& micro : all) {
      least = std::min(least, micro.least());
      most = std::max(most, predict(micro.costs, {}).peak + micro.left_over);
    }
    int64_t budget = 0;
    const auto choose = [&] {
      return choose_within(budget, choice, [&](int64_t b, Precision p) { return model.at(b, samples, p); });
    };
    double slowest = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i <= 20; ++i) {
      budget = least + (most - least) * i / 20;
      CAPTURE(budget);
      const MemoryPlan plan = choose();
      const double time = plan.chosen.milliseconds(plan.checkpoint.predicted.extra_ms);
      CHECK(plan.checkpoint.predicted.peak <= budget);
      CHECK(plan.chosen.batch * plan.chosen.accumulate == samples);
      CHECK(time <= slowest);
      slowest = time;
      double fastest = std::numeric_limits<double>::infinity();
      for (const MicroBatch& micro : all) {
        if (micro.least() > budget) continue;
        fastest = std::min(fastest, micro.milliseconds(micro.within(budget).predicted.extra_ms));
      }
      worst = std::max(worst, time / fastest);
      CHECK(time <= 1.05 * fastest);
      // What was measured on the way was within the budget, but for the smallest, which had to be.
      for (const MicroBatch& micro : plan.considered) {
        if (micro.batch > 1 && model.tree == 0) CHECK(std::max(micro.least(), micro.costs.measuring_peak) <= budget);
      }
    }
    budget = 1 << 30;
    CHECK(choose().considered.size() == 2);
    CHECK(choose().chosen.batch == samples);
    budget = least - 1;
    CHECK(contains(hs::test::error_of(choose), "needs " + std::to_string(least) + " bytes or more"));
  }
  MESSAGE("at most " << worst << " times the fastest");
}

// A run of `train` that needs few bytes and little time.
std::string random_training(Dice& dice) {
  const std::string model =
      dice.of<std::string>({"mlp", "mnist_cnn", "deep_cnn --blocks 3", "deep_cnn --blocks 9", "resnet8"});
  std::string line = fmt::format("train --epochs 1 --model {} --train {} --test {} --batch {} --optimizer {}", model,
                                 dice(20, 60), dice(1, 40), dice.of<int64_t>({1, 2, 6, 7, 8, 12, 16, 24}),
                                 dice.of<std::string>({"sgd", "adam", "lamb"}));
  for (const char* more : {" --accumulate 2", " --reduce tree", " --precision bf16", " --precision auto", " --clip 1",
                           " --ema 0.9", " --validation 0.3 --patience 1", " --cache device", " --prefetch 3"}) {
    const bool is_type = contains(more, "precision");
    if (dice(0, 3) == 0 && !(is_type && contains(line, "precision"))) line += more;
  }
  return line;
}

TEST_CASE("train --memory: no run goes past its budget, nor past what was predicted") {
  const auto samples_of = [](const json& record) {
    return record["config"]["batch"].get<int64_t>() * record["config"]["accumulate"].get<int64_t>();
  };
  int64_t cases = 0, searches_beyond = 0;
  for (uint32_t which = 100; cases < (is_long() ? 1000 : 40); ++which) {
    Dice dice{8, which};
    const std::string line = random_training(dice);
    CAPTURE(line);
    const json plain = record_of(line), &without = plain["rows"][0];
    const int64_t most = without["peak_bytes"];
    const Ended none = run(line + " --memory 1 --quiet");
    CHECK(none.code == 2);
    const size_t needs = none.err.find(" needs ");
    REQUIRE_MESSAGE(needs != std::string::npos, none.err);
    const int64_t least = std::stoll(none.err.substr(needs + 7));
    for (const int64_t budget : {least, dice(least, std::max(least, most)), std::max(least, most + most / 10)}) {
      CAPTURE(budget);
      const json record = record_of(line + " --memory " + std::to_string(budget)), &row = record["rows"][0];
      const json& plan = row["memory_plan"];
      CHECK(plan["budget_bytes"] == budget);
      CHECK(plan["predicted_peak_bytes"] <= budget);
      CHECK(row["peak_bytes"] <= plan["predicted_peak_bytes"]);
      CHECK(row["checkpoint_plan"]["predicted_peak_bytes"] == plan["predicted_peak_bytes"]);
      for (const json& micro : plan["considered"]) {
        searches_beyond += micro["batch"] > 1 && micro["measuring_peak_bytes"] > budget;
      }
      if (plan["bits"] == "same bits as without --memory") CHECK(row["weights_sha256"] == without["weights_sha256"]);
      CHECK(samples_of(record) == samples_of(plain));
      ++cases;
    }
  }
  MESSAGE(cases << " budgets; in " << searches_beyond << " the search itself needed more");
  CHECK(searches_beyond <= cases / 10);  // estimates are not exact
}

}  // namespace
