// `halfstep-bench techniques`, `report` and `compare` as their users meet them.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "source_dir.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/bench_program.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs::test;
using nlohmann::json;
const std::string tiny = "techniques --device cpu --train 96 --test 32 --epochs 2 --repeat 3 --quiet ";

TEST_CASE("techniques: who waits for the table sees each row's first run") {
  const Ended ended = run_bench_line("techniques --device cpu --train 32 --test 32 --epochs 1 --repeat 2");
  int64_t first_runs = 0;
  for (const std::string& line : lines_of(ended.err)) first_runs += line.ends_with(" s in the first pass");
  CHECK(first_runs == 1);  // the baseline, with which the others are compared
  CHECK(contains(ended.err, " times as fast as the baseline in the first pass\n"));
}

TEST_CASE("techniques: rows alone and together, four files, and the table") {
  const TemporaryFolder folder;
  const std::string base = (folder / "r").string();
  const Ended ended = run_bench_line(tiny + "--json " + base + ".json --csv " + base + ".csv --md " + base +
                                     ".md --html " + base + ".html --price-per-hour 2");
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  CHECK(folder.names() == std::set<std::string>{"r.json", "r.csv", "r.md", "r.html"});
  CHECK(lines_of(ended.err).back() == "report: " + base + ".html");
  const json record = json::parse(read_text(base + ".json"));
  CHECK(record["schema"] == "halfstep-bench-1");
  CHECK(record["command"] == "techniques");
  CHECK(record["config"]["interleaved"] == true);
  const json& rows = record["rows"];
  CHECK(rows[0]["name"] == "baseline");
  CHECK(rows[0]["group"] == "baseline");
  CHECK(rows[0]["kernels"]["conv2d_forward"] == "im2col");
  CHECK(!rows[0].contains("speed_up"));
  std::set<std::string> alone, cumulative;
  for (const json& row : rows) {
    CAPTURE(row["name"]);
    CHECK(row["seconds_all"].size() == 3);
    CHECK(row["seconds_low"] <= row["seconds"]);
    CHECK(row["seconds_high"] >= row["seconds"]);
    CHECK(row["runs"].size() == 3);
    CHECK(row["runs"][0]["steps"] == 4);  // the same samples in a step, whatever the technique
    CHECK(row["cost"]["per_run"] > 0);
    CHECK(row["experiment"]["batch"].get<int>() * row["experiment"]["accumulate"].get<int>() == 64);
    const int64_t bytes_of_a_sample = 28 * 28 + 4;
    CHECK(row["cached_bytes"] == (row["experiment"]["cache"] == "none" ? 0 : (96 + 32) * bytes_of_a_sample));
    if (row["group"] == "baseline") continue;
    CHECK((row["verdict"] == "faster" || row["verdict"] == "slower" || row["verdict"] == "within noise"));
    (row["group"] == "alone" ? alone : cumulative).insert(row["name"].get<std::string>());
    if (contains(row["name"], "accumulation")) {
      CHECK(row["for_memory"] == true);
      CHECK(row["bytes_ratio"] < 0.8);
    }
  }
  CHECK(alone.contains("fast kernels"));
  CHECK(alone.contains("accumulation (4 x 16)"));
  CHECK(cumulative.size() + 1 == alone.size());
  const json& last = rows.back();
  CHECK(last["kernels"]["conv2d_forward"] != "im2col");
  CHECK(last["experiment"]["precision"] != "f32");
  CHECK(last["experiment"]["accumulate"] == 4);
  CHECK(record["absent"][0]["name"] == "graph");

  // The answer comes first, as lines of their own, and its flags are those of rows.
  const std::vector<std::string> out = lines_of(ended.out);
  const size_t answers = record["answer"].size();
  REQUIRE(answers >= 2);
  REQUIRE(out.size() > answers + rows.size() + 3);
  CHECK(out[1].starts_with("synthetic digits  On this machine: train"));
  CHECK(contains(record["answer"].dump(), "On by default: cache, prefetch, fast kernels (together "));
  for (size_t i = 3 + answers; i < 3 + answers + rows.size(); ++i) CHECK(out[i].starts_with("synthetic digits  "));
  for (const json& row : rows) {
    const bool is_on = row["on_by_default"];
    CHECK(is_on == (row["train_flags"] == "on by default"));
    if (!is_on && row["name"] != "baseline") CHECK(row["train_flags"].get<std::string>().starts_with("--"));
  }
  CHECK(contains(ended.out, "to be judged by peak bytes and not by seconds"));
  CHECK(contains(ended.out, "No row for graph: cpu captures no graphs."));
  CHECK(lines_of(read_text(base + ".csv")).size() == rows.size() + 1);
  CHECK(contains(read_text(base + ".md"), "| baseline |"));
  CHECK(contains(read_text(base + ".html"), "<svg"));

  // The files again, from the record.
  for (const std::string kind : {"html", "md", "csv", "json"}) {
    CAPTURE(kind);
    const Ended again = run_bench_line("report " + base + ".json --" + kind + " -");
    CHECK(again.code == 0);
    CHECK(again.out == read_text(base + "." + kind));
  }
  const Ended table = run_bench_line("report " + base + ".json");
  CHECK(table.code == 0);
  CHECK(contains(table.out, "+ fast kernels"));
  const Ended same = run_bench_line("compare " + base + ".json " + base + ".json");
  CHECK(same.code == 0);
  CHECK(contains(same.out, "within noise"));
}

TEST_CASE("a target that is reached, and one that is not") {
  const std::string train = "train --device cpu --model mlp --train 640 --test 64 --epochs 2 --quiet ";
  const Ended easy = run_bench_line(train + "--target accuracy=0.05 --price-per-hour 1 --json -");
  REQUIRE_MESSAGE(easy.code == 0, easy.err);
  const json row = json::parse(easy.out)["rows"][0];
  CHECK(row["epochs"].size() == 1);
  CHECK(row["runs"][0]["ended_early"] == "the target accuracy 0.05 is reached");
  CHECK(row["target"]["reached_share"] == 1);
  CHECK(row["target"]["epochs"] == 1);
  CHECK(row["target"]["seconds"] == row["epochs"][0]["seconds"]);
  CHECK(row["target"]["evaluation_seconds"] == row["epochs"][0]["evaluation_seconds"]);
  CHECK(row["cost"]["to_target"] == row["cost"]["per_run"]);
  CHECK(contains(easy.err, "synthetic digits  target accuracy 0.05: reached by 100 % of the runs"));

  const TemporaryFolder folder;
  const Ended hard = run_bench_line(train + "--target accuracy=1 --lr 1e-9 --json " + (folder / "r.json").string());
  CHECK(hard.code == 1);
  CHECK(contains(hard.err, "--target accuracy=1: mlp reached it in 0 % of its runs"));
  const json missed = json::parse(read_text(folder / "r.json"))["rows"][0]["target"];
  CHECK(missed["seconds"].is_null());
  CHECK(missed["seconds_all"] == json::array({nullptr}));
}

TEST_CASE("what a run is judged by ends it: validations where there are any, tests as often as they are asked for") {
  const std::string train =
      "train --device cpu --model mlp --train 640 --test 64 --epochs 6 --batch 32 --quiet --json - ";
  const auto row_of = [&](const std::string& flags, int code = 0) {
    const Ended ended = run_bench_line(train + flags);
    REQUIRE_MESSAGE(ended.code == code, ended.err);
    return json::parse(ended.out)["rows"][0];
  };
  const json full = row_of("--test-every 4ep");
  CHECK(full["epochs"][0]["test_accuracy"].is_null());
  CHECK(full["epochs"][0]["evaluation_seconds"] == 0);
  for (const size_t tested : {3, 5}) CHECK(full["epochs"][tested]["test_accuracy"].is_number());
  CHECK(full["weights_sha256"] == row_of("")["weights_sha256"]);

  // Judged where the full run first is as good: the same steps, no more.
  const json watched = row_of("--validation 0.25 --validate-every 5st")["runs"][0]["validations"];
  const double goal = watched[4]["loss"];
  const json judged = row_of(fmt::format("--validation 0.25 --validate-every 5st --target loss={}", goal + 1e-9));
  const json& all = judged["runs"][0]["validations"];
  REQUIRE(all.size() <= 5);
  CHECK(all.back()["loss"] <= goal + 1e-9);
  for (size_t i = 0; i + 1 < all.size(); ++i) CHECK(all[i]["loss"] > goal);
  CHECK(judged["runs"][0]["steps"] == 5 * static_cast<int64_t>(all.size()));
  CHECK(judged["target"]["seconds"] == all.back()["training_seconds"]);
  CHECK(judged["target"]["best"] == all.back()["loss"]);

  const json tests = row_of("--test-every 5st --target accuracy=1", 1)["runs"][0];
  CHECK(tests["validations"].size() == 6 * 20 / 5);
  CHECK(tests["validations"].back()["accuracy"] == tests["epochs"].back()["test_accuracy"]);
  for (const char* bad : {"--test-every 3m", "--test-every 5st --validation 0.5", "--target f1=0.5",
                          "--target accuracy", "--target loss=0", "--target accuracy=nan"}) {
    CHECK_MESSAGE(run_bench_line(train + bad).code == 2, bad);
  }
}

TEST_CASE("--list and --dry-run measure nothing that is recorded") {
  const Ended list = run_bench_line("techniques --list");
  CHECK(list.code == 0);
  for (const char* name : {"mixed precision", "accumulation", "fast kernels", "graph"}) CHECK(contains(list.out, name));
  const TemporaryFolder folder;
  const Ended plan = run_bench_line(tiny + "--dry-run --json " + (folder / "r.json").string());
  REQUIRE_MESSAGE(plan.code == 0, plan.err);
  CHECK(contains(plan.out, " minutes\n"));
  CHECK(contains(plan.out, "seconds of a run"));
  CHECK(contains(plan.out, "peak MiB"));
  CHECK(contains(plan.out, "3 runs of each"));
  CHECK(folder.names().empty());
}

TEST_CASE("a planted regression ends with exit code 1") {
  const TemporaryFolder folder;
  const Ended base = run_bench_line("train --device cpu --model mlp --train 64 --test 16 --epochs 1 --quiet --json -");
  REQUIRE(base.code == 0);
  json record = json::parse(base.out);
  const auto write = [&](const std::string& name, double factor) {
    record["rows"][0]["seconds"] = 1.02 * factor;
    record["rows"][0]["seconds_all"] = {1.0 * factor, 1.01 * factor, 1.02 * factor, 1.03 * factor, 1.04 * factor};
    record["rows"][0]["test_accuracy_all"] = {0.9, 0.9, 0.9, 0.9, 0.9};
    std::ofstream(folder / name) << record;
    return (folder / name).string();
  };
  const std::string a = write("a", 1), b0 = write("b0", 1), b2 = write("b2", 1.02), b10 = write("b10", 1.1);
  CHECK(run_bench_line("compare " + a + " " + b0 + " --fail-if-slower 3%").code == 0);
  CHECK(run_bench_line("compare " + a + " " + b2 + " --fail-if-slower 3%").code == 0);
  const Ended slow = run_bench_line("compare " + a + " " + b10 + " --fail-if-slower 3%");
  CHECK(slow.code == 1);
  CHECK(contains(slow.err, "mlp: 10.0 % slower, more than 3%, p = 0.004"));
  CHECK(contains(slow.out, "slower"));
  CHECK(run_bench_line("compare " + a + " " + b10 + " --fail-if-slower 12").code == 0);
  CHECK(run_bench_line("compare " + b10 + " " + a + " --fail-if-slower 0").code == 0);
  const json comparison = check_outputs("compare " + a + " " + b10);
  CHECK(comparison["rows"][0]["verdict"] == "slower");
  CHECK(comparison["rows"][0]["change"].get<double>() == doctest::Approx(0.1));
  CHECK(comparison["environment"] == record["environment"]);
  CHECK(run_bench_line("compare " + a + " " + b10).code == 0);
  std::ofstream(folder / "once") << base.out;
  const Ended once = run_bench_line("compare " + a + " " + (folder / "once").string() + " --fail-if-slower 1000");
  CHECK(once.code == 2);
  CHECK(contains(once.err, "5 and 1 runs, too few to tell"));
}

TEST_CASE("mistakes are one line and an exit code") {
  const TemporaryFolder folder;
  std::ofstream(folder / "x.json") << "{}";
  const std::string bad = (folder / "x.json").string();
  check_mistakes({
      {"techniques --quick --full", 2, "--quick and --full: give one"},
      {"techniques --repeat 0", 2, "--repeat 0: expected a whole number from 1"},
      {"techniques --target accuracy=97", 2, "--target accuracy=97: expected accuracy=NUMBER, above 0 and up to 1, or"},
      {"techniques extra", 2, "extra: unexpected word"},
      {"techniques --json a --html a", 2, "--json and --html: both go to a"},
      {"techniques --html /nonexistent/x.html", 4, "--html /nonexistent/x.html: cannot be written"},
      {"report", 2, "report RECORD: 0 given, expected 1 or more"},
      {"report " + bad, 3, "x.json: schema is null"},
      {"report /nonexistent/x.json", 4, "/nonexistent/x.json: cannot be opened"},
      {"report " + bad + " " + bad, 3, "x.json: schema is null"},
      {"report " HALFSTEP_SOURCE_DIR "/bench/results/cpu/mnist_cnn.json --readme " + bad, 3,
       "x.json: expected one line"},
      {"report " + bad + " --readme r --html h", 2, "--readme: goes alone"},
      {"compare", 2, "compare RECORD: 0 given, expected 2, or --run FLAGS twice"},
      {"compare " HALFSTEP_SOURCE_DIR "/bench/results/cpu/mnist_cnn.json", 2, "compare RECORD: 1 given, expected 2"},
      {"compare a b c", 2, "c: unexpected word"},
      {"compare a b --fail-if-slower x", 2, "--fail-if-slower x: expected percent"},
      {"compare a b --fail-if-slower -3%", 2, "--fail-if-slower -3%: expected percent"},
  });
}

}  // namespace
