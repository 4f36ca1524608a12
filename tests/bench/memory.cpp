// `halfstep-bench profile memory`, and --checkpoint of `train`, as their users meet them.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/bench_outputs.h"
#include "tests/support/bench_program.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs::test;
using nlohmann::json;

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
}

TEST_CASE("memory: a plan has the peaks that the run itself predicts, and writes no file") {
  const std::string small = "profile memory --device cpu --model mlp --batch 4 --steps 1 --budget 1M --curve ";
  const json record = hs::test::record_of(small + "--quiet");
  CHECK(
      contains(record["remarks"][0].get<std::string>(), "accumulation: forward and backward of 4 batches of 4 take "));
  const TemporaryFolder folder;
  const Ended plan = run_bench_line(small + "--dry-run --html " + (folder / "r.html").string());
  REQUIRE_MESSAGE(plan.code == 0, plan.err);
  CHECK(contains(plan.out, "synthetic digits: 12 rows, 1 timed steps of each: about "));
  const std::vector<std::string> lines = lines_of(plan.out);
  for (size_t i = 0; i < 6; ++i) {
    const std::string predicted = record["tables"][0]["lines"][2 * i][3];
    CHECK(lines.at(2 + i).ends_with(" " + predicted));
  }
  CHECK(folder.names().empty());
}

TEST_CASE("memory: mistakes are one line with exit code 2") {
  check_mistakes({{"profile memory --budget much", 2, "--budget much: expected a number of bytes"}});
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

}  // namespace
