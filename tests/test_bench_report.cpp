// What halfstep-bench makes of its figures, called directly: statistics, records, tables, comparisons, checklists,
// HTML.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/checklist.h"
#include "bench/comparison.h"
#include "bench/energy.h"
#include "bench/html_report.h"
#include "bench/outputs.h"
#include "bench/presentation.h"
#include "bench/readme_tables.h"
#include "bench/record.h"
#include "bench/report.h"
#include "bench/statistics.h"
#include "bench/svg.h"
#include "bench/table.h"
#include "bench/target.h"
#include "engine/error.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/bench_program.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::bench;
using hs::test::Cells;
using hs::test::check_self_contained;
using hs::test::check_well_formed;
using hs::test::contains;
using hs::test::parse_csv;
using hs::test::TemporaryFolder;
namespace fs = std::filesystem;

// Times around `center`, spread by a few tenths of a percent; another `phase`, other noise.
std::vector<double> times(double center, int count, double phase = 0) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) all.push_back(center * (1 + 0.005 * std::sin(2.4 * i + phase)));
  return all;
}

Json row(const std::string& name, const std::string& group, const std::vector<double>& seconds) {
  std::vector<double> accuracies(seconds.size(), 0.97);
  Json runs = Json::array();
  const Json epochs = {{{"training_loss", 0.3}, {"test_loss", 0.2}, {"test_accuracy", 0.95}, {"seconds", 1.0}},
                       {{"training_loss", 0.2}, {"test_loss", 0.1}, {"test_accuracy", 0.97}, {"seconds", 1.0}}};
  for (size_t i = 0; i < seconds.size(); ++i) {
    runs.push_back({{"seed", i + 1},
                    {"evaluation_seconds", 0.1},
                    {"steps", 100},
                    {"skipped_steps", 0},
                    {"loss_scale", 1.0},
                    {"epochs", epochs}});
  }
  const Interval interval = median_interval(seconds);
  return {{"name", name},
          {"seconds", median(seconds)},
          {"seconds_low", finite_or_null(interval.low)},
          {"seconds_high", finite_or_null(interval.high)},
          {"seconds_all", seconds},
          {"samples_per_second", 8000 / median(seconds)},
          {"stall_share", nullptr},
          {"test_accuracy", 0.97},
          {"test_accuracy_all", accuracies},
          {"final_loss", 0.2},
          {"peak_bytes", 9463040},
          {"epochs", epochs},
          {"runs", runs},
          {"group", group}};
}

// A record of `techniques` with three rows that makes no mistake.
Json good_record() {
  Json record = new_record("techniques", Device::cpu);
  record["environment"]["commit"] = "0123456789ab";
  record["data"] = {{"name", "mnist"}, {"synthetic", false}, {"train", 4000}, {"test", 1000}, {"source", "mnist"}};
  record["config"] = {{"model", "mnist_cnn"},
                      {"epochs", 2},
                      {"batch", 64},
                      {"optimizer", "adam"},
                      {"learning_rate", 1e-3},
                      {"seed", 1},
                      {"schedule", "constant"},
                      {"warmup", 0},
                      {"interleaved", true},
                      {"warmed_up", true},
                      {"target_accuracy", 0.96},
                      {"price_per_hour", nullptr}};
  record["rows"] = {row("baseline", "baseline", times(2, 5)), row("mixed precision (bf16)", "alone", times(1, 5, 1)),
                    row("accumulation (4 x 16)", "alone", times(2.004, 5, 2)),
                    row("accumulation (4 x 16)", "cumulative", times(1.2, 5, 3))};
  for (size_t i = 1; i < 4; ++i) add_comparison(record["rows"][i], record["rows"][0]);
  record["rows"][2]["for_memory"] = record["rows"][3]["for_memory"] = true;
  record["rows"][2]["peak_bytes"] = 4731520;
  record["rows"][2]["bytes_ratio"] = 0.5;
  record["rows"][1]["experiment"] = {{"precision", "bf16"}, {"batch", 64}, {"accumulate", 1}, {"graph", false}};
  record["absent"] = {{{"name", "graph"}, {"reason", "cpu captures no graphs"}}};
  return record;
}

Json of_table(const Table& table) { return to_json(std::vector<Table>{table}); }

TEST_CASE("median and intervals") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(std::isnan(median({})));
  CHECK(std::isnan(median_interval({1}).low));
  const Interval three = median_interval({3, 1, 2});
  CHECK(three.low == 1);
  CHECK(three.high == 3);
  const std::vector<double> a = times(2, 20), b = times(1, 20, 1);
  const Interval interval = median_interval(a);
  CHECK(interval.low <= median(a));
  CHECK(interval.high >= median(a));
  CHECK(interval.high - interval.low < 0.02);
  CHECK(interval.low < interval.high);
  CHECK(median_interval(a).low == interval.low);
  CHECK(ratio_interval(a, b).contains(2));
  CHECK_FALSE(ratio_interval(a, b).contains(1));
  // What slows a pass down slows both: the ratio does not see it.
  CHECK(ratio_interval({1, 2, 3, 4, 50}, {1, 2, 3, 4, 50}).low == 1);
  CHECK(ratio_interval({1, 2, 3, 4, 50}, {1, 2, 3, 4, 50}).high == 1);
}

TEST_CASE("Mann-Whitney: exact for few values, the normal approximation for many") {
  CHECK(probability_not_larger({1, 2, 3}, {4, 5, 6}) == doctest::Approx(1.0 / 20));
  CHECK(probability_not_larger({4, 5, 6}, {1, 2, 3}) == 1);
  // U = 8 of 9: one of 20 divisions is larger, one as large.
  CHECK(probability_not_larger({1, 2, 4}, {3, 5, 6}) == doctest::Approx(2.0 / 20));
  CHECK(probability_not_larger({1, 1}, {1, 1}) == 1);
  CHECK(probability_not_larger({}, {1}) == 1);
  // 0..11 and 3.5..14.5: U = 108, its mean 72, its variance 300, z = 35.5 / 17.32 = 2.0496
  std::vector<double> a, b;
  for (int i = 0; i < 12; ++i) a.push_back(i), b.push_back(i + 3.5);
  CHECK(probability_not_larger(a, b) == doctest::Approx(0.0202).epsilon(0.002));
  CHECK(probability_not_larger(std::vector<double>(15, 1), std::vector<double>(15, 1)) == 1);
  CHECK(smallest_probability(3, 3) == doctest::Approx(1.0 / 20));
  CHECK(smallest_probability(1, 1) == 0.5);
}

TEST_CASE("a record survives the way through a file, and every committed record is one") {
  const TemporaryFolder folder;
  const Json record = good_record();
  std::ofstream(folder / "record.json") << to_text(record);
  CHECK(read_record(folder / "record.json") == record);
  int committed = 0;
  for (const char* part : {"cpu", "target"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(HALFSTEP_SOURCE_DIR "/bench/results") / part)) {
      if (entry.is_directory()) continue;
      INFO(entry.path().string());
      CHECK_NOTHROW(read_record(entry.path()));
      ++committed;
    }
  }
  CHECK(committed >= 10);
}

TEST_CASE("what is no record is refused by name") {
  struct Damage {
    void (*apply)(Json& record);
    const char* message;
  };
  const Damage damages[] = {
      {[](Json& r) { r = Json::array(); }, "is not a JSON object"},
      {[](Json& r) { r["schema"] = "halfstep-bench-2"; },
       "its schema is 'halfstep-bench-2', expected halfstep-bench-1"},
      {[](Json& r) { r.erase("schema"); }, "its schema is ''"},
      {[](Json& r) { r.erase("environment"); }, "environment is missing"},
      {[](Json& r) { r.erase("rows"); }, "has no rows"},
      {[](Json& r) { r["environment"]["cores"] = "two"; }, "cores is \"two\", expected a whole number from 0"},
      {[](Json& r) { r["environment"]["date"] = nullptr; }, "date is null, expected a text"},
      {[](Json& r) { r["data"]["synthetic"] = 0; }, "synthetic is 0, expected true or false"},
      {[](Json& r) { r["rows"][1].erase("name"); }, "name is missing"},
      {[](Json& r) { r["rows"][1] = 5; }, "is not an object"},
      {[](Json& r) { r["rows"][0]["seconds"] = -1; }, "row 'baseline': seconds is -1, expected a number from 0"},
      {[](Json& r) { r["rows"][0]["test_accuracy"] = 97; }, "test_accuracy is 97, expected a number from 0 to 1"},
      {[](Json& r) { r["rows"][0]["seconds"] = 1.0; }, "seconds is 1, but the median of seconds_all is 2"},
      {[](Json& r) { r["rows"][0]["seconds"] = nullptr; }, "neither times nor an error"},
      {[](Json& r) { r["rows"][0]["seconds_all"] = {2.0}; }, "5 accuracies of 1 runs"},
      {[](Json& r) { r["rows"][0]["epochs"][0].erase("seconds"); }, "an epoch: seconds is missing"},
      {[](Json& r) { r["rows"][0]["runs"][1]["seed"] = -1; }, "a run: seed is -1"},
      {[](Json& r) { r["headline"] = 5; }, "headline is 5, expected a text"},
      {[](Json& r) { r["remarks"] = "one"; }, "remarks is \"one\", expected a list"},
      {[](Json& r) {
         r["remarks"] = {"one", 2};
       },
       "remarks: 2 is no text"},
      {[](Json& r) { r["tables"] = Json::object(); }, "tables is {}, expected a list"},
      {[](Json& r) { r["tables"] = {5}; }, "table '': is not an object"},
      {[](Json& r) {
         r["tables"] = of_table({{"a", "b"}, {{"1", "2"}, {"1"}}, "T"});
       },
       "table 'T': a line of 1 cells under 2 heads"},
      {[](Json& r) {
         r["tables"] = of_table({{"a"}, {{"1", "2"}}});
       },
       "a line of 2 cells under 1 heads"},
      {[](Json& r) { r["tables"] = of_table({}); }, "has no heads"},
      {[](Json& r) {
         r["tables"] = of_table({{"a"}, {{"1"}}});
         r["tables"][0]["lines"][0][0] = "nan";
       },
       "a cell is nan, expected -"},
      {[](Json& r) {
         r["tables"] = of_table({{"a"}, {{"1"}}});
         r["tables"][0]["lines"][0][0] = "-inf %";
       },
       "a cell is -inf %, expected -"},
      {[](Json& r) {
         r["tables"] = of_table({{"a"}, {{"1"}}});
         r["tables"][0]["lines"][0][0] = 1;
       },
       "a line: 1 is no text"},
      {[](Json& r) {
         r["tables"] = of_table({{"a"}, {{"1"}}});
         r["tables"][0].erase("heads");
       },
       "heads is missing"},
  };
  for (const Damage& damage : damages) {
    Json record = good_record();
    damage.apply(record);
    CHECK_THROWS_WITH_AS(check_record(record, "FILE"), doctest::Contains(damage.message), Error);
    CHECK_THROWS_WITH_AS(check_record(record, "FILE"), doctest::Contains("FILE: "), Error);
  }
  const TemporaryFolder folder;
  std::ofstream(folder / "half.json") << to_text(good_record()).substr(0, 300);
  CHECK_THROWS_WITH_AS(read_record(folder / "half.json"), doctest::Contains("is not JSON, at byte"), Error);
  CHECK_THROWS_WITH_AS(read_record(folder / "none.json"), doctest::Contains("cannot be read"), Error);
  CHECK_THROWS_WITH_AS(read_record(folder.path), doctest::Contains("is a directory"), Error);
  Json newer = good_record();
  newer["a member of tomorrow"] = 1;
  newer["rows"][0]["another"] = "x";
  CHECK_NOTHROW(check_record(newer, "FILE"));
}

TEST_CASE("NaN and infinity become null, bytes that are not UTF-8 are replaced") {
  CHECK(finite_or_null(std::nan("")).is_null());
  CHECK(finite_or_null(INFINITY).is_null());
  CHECK(finite_or_null(std::vector<double>{1, NAN}) == Json::array({1.0, nullptr}));
  CHECK(contains(to_text(Json{{"host", "a\xff"}}), "\xef\xbf\xbd"));
  for (const char* cell : {"nan", "-nan", "inf", "-inf", "+inf %", "nan ms"}) CHECK(is_not_finite(cell));
  for (const char* cell : {"", "-", "+", "1", "-2.5 %", "nano", "inf/NaN", "info", "none"})
    CHECK_FALSE(is_not_finite(cell));
  CHECK(of_table({{"a", "b"}, {{"nan %", "1"}}})[0]["lines"][0] == Json::array({"-", "1"}));
}

TEST_CASE("regressions of 0, 2 and 10 percent") {
  const Json before = good_record();
  const auto slowed = [&](double factor) {
    Json after = before;
    after["rows"][0] = row("baseline", "baseline", times(2 * factor, 5, 0.7));
    return compare(before, after, "A", "B").rows[0];
  };
  const RowComparison same = slowed(1), small = slowed(1.02), large = slowed(1.1);
  CHECK_FALSE(same.is_regression(0.03));
  CHECK_FALSE(same.is_regression(0));
  CHECK_FALSE(small.is_regression(0.03));
  CHECK(small.is_regression(0.01));
  CHECK(large.is_regression(0.03));
  CHECK(large.change == doctest::Approx(0.1).epsilon(0.1));
  CHECK(large.probability == doctest::Approx(1.0 / 252));
  CHECK_FALSE(slowed(0.9).is_regression(0));
  CHECK(slowed(0.9).significant());
}

TEST_CASE("a comparison says what it cannot tell, and what else differs") {
  const Json before = good_record();
  Json after = before;
  after["rows"].erase(3);
  after["rows"][1] = row("mixed precision (bf16)", "alone", {5.0});
  after["environment"]["threads"] = 77;
  after["config"]["batch"] = 128;
  const Comparison comparison = compare(before, after, "A", "B");
  REQUIRE(comparison.rows.size() == 3);
  CHECK(comparison.rows[0].can_tell);
  CHECK_FALSE(comparison.rows[1].can_tell);
  CHECK_FALSE(comparison.rows[1].is_regression(0));
  CHECK(comparison.only_one == std::vector<std::string>{"+ accumulation (4 x 16): only in A"});
  REQUIRE(comparison.differences.size() == 2);
  CHECK(contains(comparison.differences[0], "threads: "));
  CHECK(comparison.differences[1] == "batch: 64 and 128");
  const Table table = to_table(comparison);
  CHECK(table.lines[0].back() == "within noise");
  CHECK(table.lines[1].back() == "too few runs to tell");
}

TEST_CASE("rows say whether a difference is inside the noise") {
  const Json rows = good_record()["rows"];
  CHECK(rows[1]["verdict"] == "faster");
  CHECK(rows[1]["speed_up"].get<double>() == doctest::Approx(2).epsilon(0.01));
  CHECK(rows[2]["verdict"] == "within noise");
  Json slower = row("slow", "alone", times(3, 5, 1)), once = row("once", "alone", {1.0});
  add_comparison(slower, rows[0]);
  CHECK(slower["verdict"] == "slower");
  add_comparison(once, row("baseline", "baseline", {2.0}));
  CHECK(once["verdict"] == "too few runs to tell");
  CHECK(once["speed_up_low"].is_null());
}

TEST_CASE("tables: text, Markdown and CSV have the same rows, and cells cannot break them") {
  Json record = good_record();
  record["rows"][0]["name"] = "a|b \"c\"<";
  const Table table = results_table(record);
  CHECK(table.lines.size() == 4);
  for (const auto& line : table.lines) CHECK(line.size() == table.heads.size());
  CHECK(std::ranges::find(table.heads, "stall") == table.heads.end());  // nobody measured it
  CHECK(table.lines[1].back() == "faster");
  CHECK(table.lines[2].back() == "within noise; -50 % bytes");
  CHECK(table.lines[3][0] == "+ accumulation (4 x 16)");

  const std::string md = markdown(record);
  CHECK(contains(md, "| a\\|b \"c\"\\< | 2.00 |"));
  CHECK(contains(md, "No row for graph: cpu captures no graphs."));
  CHECK(contains(md, "accumulation (4 x 16): made to save memory, to be judged by peak bytes and not by seconds."));
  CHECK(contains(md, "mnist: 4000 for training, 1000 for the test."));
  CHECK(contains(md, "commit 0123456789ab"));

  const std::string lines = csv(record);
  CHECK(std::ranges::count(lines, '\n') == 5);
  CHECK(contains(lines, "\r\n\"halfstep-bench-1\",\"techniques\",\"mnist\",\"cpu\","));
  CHECK(contains(lines, ",\"a|b \"\"c\"\"<\",\"baseline\",2.0,"));
  const std::string head = lines.substr(0, lines.find("\r\n")),
                    last = lines.substr(lines.rfind("\r\n", lines.size() - 3));
  CHECK(std::ranges::count(head, ',') == std::ranges::count(last, ','));
}

TEST_CASE("the README's tables come from records, between the markers") {
  Json train = good_record(), peer = good_record();
  train["command"] = "train";
  train["rows"] = {row("mnist_cnn", "", {2.0})};
  train["config"]["kernels"] = {"conv2d_forward=im2col"};
  peer = {{"schema", "halfstep-peer-1"},
          {"environment", {{"cpu", "C"}, {"cores", 2}, {"threads", 2}, {"device", "cpu"}, {"torch", "2.15.0+cu"}}},
          {"rows", {row("torch", "", {1.0})}}};
  peer["rows"][0].update({{"model", "mnist_cnn"},
                          {"train", 4000},
                          {"test", 1000},
                          {"epochs", 2},
                          {"batch", 64},
                          {"learning_rate", 1e-3},
                          {"mode", "eager"},
                          {"channels_last", true}});
  CHECK_NOTHROW(check_record(peer, "peer"));
  const std::string tables = readme_tables({train, good_record(), peer});
  CHECK(contains(tables, "mnist_cnn: 4000 training and 1000 test digits, 2 epochs, batch 64, learning rate 0.001"));
  const size_t torch = tables.find("| PyTorch 2.15.0, eager, channels last | 2 | 1.00 | 8000 | 97.00 % | 1 |");
  const size_t ours = tables.find("| halfstep with conv2d_forward=im2col | ");
  REQUIRE(torch != std::string::npos);
  REQUIRE(ours != std::string::npos);
  CHECK(torch < ours);  // the faster first
  CHECK(contains(tables, "`halfstep-bench techniques`, mnist_cnn"));
  CHECK(contains(tables, "Measured on "));
  CHECK(contains(tables, "commit 0123456789ab"));

  const std::string page = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n";
  CHECK(with_tables(page, "new\n", "F") == "a\n<!-- results:begin -->\nnew\n<!-- results:end -->\nb\n");
  CHECK(with_tables(with_tables(page, "x", "F"), "new\n", "F") == with_tables(page, "new\n", "F"));
  for (const std::string broken : {"", "<!-- results:end -->\n<!-- results:begin -->\n", "<!-- results:begin -->\n"}) {
    CHECK_THROWS_WITH_AS(with_tables(broken, "new", "F"), doctest::Contains("F: expected one line"), Error);
  }
  CHECK_THROWS_AS(with_tables(page + page, "new", "F"), Error);
}

TEST_CASE("time to target: until the first evaluation that reaches it, over the runs that do") {
  const auto run = [](const std::vector<double>& accuracies) {
    RunRecord record;
    for (const double accuracy : accuracies) record.result.epochs.push_back({0.1, 2.0, {accuracy, 0.1}, 0.5});
    record.result.seconds = 2.0 * static_cast<double>(accuracies.size());
    return record;
  };
  const std::vector<RunRecord> runs = {run({0.90, 0.96, 0.95}), run({0.97, 0.96, 0.98}), run({0.1, 0.2, 0.3})};
  CHECK_FALSE(reached(runs[2].result, 0.96));
  Json row = Json::object();
  Goal goal;
  goal.accuracy = 0.96, goal.price_per_hour = 36;
  add_goal(row, runs, goal);
  CHECK(row["target"]["reached_share"].get<double>() == doctest::Approx(2.0 / 3));
  CHECK(row["target"]["seconds"] == 3);  // (4 + 2) / 2
  CHECK(row["target"]["evaluation_seconds"] == 0.75);
  CHECK(row["target"]["epochs"] == 1.5);
  CHECK(row["cost"]["per_run"].get<double>() == doctest::Approx(0.01 * 7.5));
  CHECK(row["cost"]["to_target"].get<double>() == doctest::Approx(0.01 * 3.75));
  row["name"] = "x";
  row["test_accuracy_all"] = {0.95, 0.98, 0.3};
  CHECK_THROWS_WITH_AS(check_goal(Json::array({row}), goal), doctest::Contains("x reached it in 67 % of its runs"),
                       Error);
  goal.accuracy = 0.99;
  add_goal(row, runs, goal);
  CHECK(row["target"]["reached_share"] == 0);
  CHECK(row["target"]["seconds"].is_null());
  CHECK(row["cost"]["to_target"].is_null());
  Json none = Json::object();
  add_goal(none, runs, Goal());
  CHECK(none.empty());
}

TEST_CASE("energy: the packages together, once around at most; and why there is none") {
  const TemporaryFolder folder;
  CHECK(contains(EnergyMeter(Device::cpu, folder / "none").why_not(), "no RAPL counters in "));
  const auto write = [&](const std::string& package, int64_t microjoules) {
    fs::create_directories(folder / package);
    std::ofstream(folder / package / "energy_uj") << microjoules;
    std::ofstream(folder / package / "max_energy_range_uj") << 1000000;
  };
  write("intel-rapl:0", 200000), write("intel-rapl:1", 900000), write("intel-rapl:0:0", 0);
  EnergyMeter meter(Device::cpu, folder.path);
  CHECK(meter.why_not() == "");
  meter.start();
  write("intel-rapl:0", 500000), write("intel-rapl:1", 100000), write("intel-rapl:0:0", 900000);
  REQUIRE(meter.joules());
  CHECK(*meter.joules() == doctest::Approx(0.3 + 0.2));
}

const Mistake& find(const std::vector<Mistake>& all, const std::string& name) {
  const auto found = std::ranges::find_if(all, [&](const Mistake& m) { return contains(m.name, name); });
  REQUIRE_MESSAGE(found != all.end(), name);
  return *found;
}

TEST_CASE("the mistakes: none in a good record, and each found in a record that makes it") {
  for (const Mistake& mistake : mistakes(good_record())) {
    CAPTURE(mistake.name);
    CHECK_FALSE(mistake.made);
  }
  CHECK(std::ranges::count_if(mistakes(good_record()), &Mistake::of_the_article) == 7);
  struct Made {
    const char* name;
    void (*apply)(Json& record);
  };
  const Made all[] = {
      {"instead of the time to a target", [](Json& r) { r["config"]["target_accuracy"] = nullptr; }},
      {"hidden bottleneck", [](Json& r) { r["rows"][3]["stall_share"] = 0.4; }},
      {"same learning rate", [](Json& r) { r["config"]["batch"] = 256; }},
      {"without validation", [](Json& r) { r["rows"][0]["epochs"][0]["test_accuracy"] = nullptr; }},
      {"Unstable mixed precision", [](Json& r) { r["rows"][1]["runs"][0]["skipped_steps"] = 200; }},
      {"Keeping nothing", [](Json& r) { r["environment"]["commit"] = "0123456789ab-dirty"; }},
      {"One run",
       [](Json& r) {
         for (Json& row : r["rows"]) row["seconds_all"] = row["test_accuracy_all"] = {0.5};
       }},
      {"cold start", [](Json& r) { r["config"].erase("warmed_up"); }},
      {"without loss scaling", [](Json& r) { r["rows"][1]["experiment"]["precision"] = "f16"; }},
      {"memory technique", [](Json& r) { r["rows"][2]["peak_bytes"] = nullptr; }},
  };
  for (const Made& made : all) {
    CAPTURE(made.name);
    Json record = good_record();
    made.apply(record);
    CHECK(find(mistakes(record), made.name).made);
    CHECK(contains(html_report(record), "<span class=\"no\">warning</span>"));
  }
  CHECK_FALSE(contains(html_report(good_record()), "<span class=\"no\">warning</span>"));
  Json scaled = good_record();
  scaled["config"]["batch"] = 256, scaled["config"]["learning_rate"] = 4e-3;
  CHECK_FALSE(find(mistakes(scaled), "same learning rate").made);
}

TEST_CASE("the checklist is filled in from the run") {
  const auto answer = [](const Json& record, const std::string& question) {
    for (const Check& check : checklist(record)) {
      if (contains(check.question, question)) return check.answer;
    }
    FAIL(question);
    return Check::Answer::unknown;
  };
  using enum Check::Answer;
  Json record = good_record();
  CHECK(answer(record, "success defined") == yes);
  CHECK(answer(record, "cost logged") == no);
  CHECK(answer(record, "mixed precision") == yes);
  CHECK(answer(record, "loader fast") == unknown);
  CHECK(answer(record, "larger batch warmed") == yes);
  CHECK(answer(record, "several seeds") == yes);
  CHECK(answer(record, "baseline's") == yes);
  record["rows"][0]["stall_share"] = 0.5;
  record["rows"][3]["stall_share"] = 0.01;
  record["rows"][1]["test_accuracy"] = 0.96;
  record["config"]["batch"] = 256;
  record["config"]["target_accuracy"] = nullptr;
  CHECK(answer(record, "success defined") == no);
  CHECK(answer(record, "loader fast") == yes);
  CHECK(answer(record, "larger batch warmed") == no);
  CHECK(answer(record, "baseline's") == no);
}

// A record of another command than train and techniques, with names that want to break what shows them.
Json table_record() {
  Json record = new_record("doctor", Device::cpu);
  record["environment"]["cpu"] = "a <b> & \"c\" | d, 'e'";
  record["data"] = {{"name", "<i>|&\""}, {"synthetic", false}};
  record["rows"] = {{{"name", "a \"b\", c\nd"}, {"milliseconds", 1.5}, {"peak", {{"bytes", 3}, {"of", nullptr}}}},
                    {{"name", "<td>"}, {"milliseconds", std::nan("")}, {"list", {1, 2}}, {"late", true}}};
  record["verdict"] = {{"name", "<u>"}, {"reason", "&"}, {"advice", "\""}};
  present(record, "a <headline> | b",
          {{{"part", "what", "ms"}, {{"<td>|", "a&b", "1.5"}, {"x", "nano", "-"}}, "title <t>", 2}}, {"one <s> | two"});
  return record;
}

TEST_CASE("tables of a record: escaped in Markdown and HTML, aligned on the terminal, rows as CSV") {
  const Json record = table_record();
  CHECK_NOTHROW(check_record(record, "F"));
  const std::string html = html_report(record);
  check_well_formed(html);
  for (const char* part : {"<b>", "<i>", "<td>|", "<t>", "<u>", "<s>", "<headline>", "& ", "\"c\""}) {
    CAPTURE(part);
    CHECK_FALSE(contains(html.substr(html.find("</style>")), part));
  }
  CHECK(contains(html, "a &lt;b&gt; &amp; &quot;c&quot; | d, &#39;e&#39;"));
  CHECK(contains(html, "<td>&lt;td&gt;|</td><td class=\"left\">a&amp;b</td><td>1.5</td>"));

  const std::string md = markdown(record);
  CHECK(contains(md, "a \\<headline> \\| b. a \\<b> & \"c\" \\| d, 'e', "));
  CHECK(contains(md, "\n**title \\<t>**\n\n| part | what | ms |\n|---|---|---:|\n| \\<td>\\| | a&b | 1.5 |\n"));
  CHECK(contains(md, "\none \\<s> \\| two\n"));

  const std::string terminal = to_terminal(record);
  CHECK(terminal ==
        "a <headline> | b\n\n<i>|&\"  title <t>\ndata    part   what   ms\n<i>|&\"  <td>|  a&b   1.5\n"
        "<i>|&\"  x      nano    -\n\n<i>|&\"  one <s> | two\n");

  const std::string lines = csv(Json::parse(to_text(record)));
  CHECK(lines.starts_with("schema,command,data,device,date,commit,name,milliseconds,peak.bytes,peak.of,late\r\n"));
  CHECK(contains(lines, ",\"<i>|&\"\"\","));
  CHECK(contains(lines, ",\"a \"\"b\"\", c\nd\",1.5,3,,\r\n"));
  CHECK(lines.ends_with(",\"<td>\",,,,true\r\n"));
  const Cells cells = parse_csv(lines);
  REQUIRE(cells.size() == 3);
  for (const auto& line : cells) CHECK(line.size() == cells[0].size());
  CHECK(cells[1][6] == "a \"b\", c\nd");
}

TEST_CASE("what is written has no NaN and is UTF-8, and a record that contradicts itself is not written") {
  const TemporaryFolder folder;
  const auto write = [&](const Json& record) {
    CLI::App app;
    Flags flags(app);
    Outputs outputs;
    outputs.declare(flags);
    app.parse(fmt::format("--json {0}/r.json --csv {0}/r.csv --html {0}/r.html", folder.path.string()), false);
    flags.read();
    outputs.open();
    outputs.write(record);
  };
  Json broken = table_record();
  broken["tables"][0]["lines"][0].push_back("more");
  CHECK_THROWS_WITH_AS(write(broken), doctest::Contains("a line of 4 cells under 3 heads"), Error);
  CHECK(folder.names().empty());
  Json record = table_record();
  record["environment"]["cpu"] = "a\xff";
  write(record);
  const Json read = read_record(folder / "r.json");
  CHECK(read["rows"][1]["milliseconds"].is_null());
  CHECK(hs::test::read_text(folder / "r.csv") == csv(read));
  CHECK(hs::test::read_text(folder / "r.html") == html_report(read));
  CHECK(contains(html_report(read), "a\xef\xbf\xbd"));
}

TEST_CASE("every committed record is shown in all ways, those too that were written before there were tables") {
  const std::map<std::string, const char*> parts = {{"memory", "Memory by purpose over one step"},
                                                    {"conv", "The ladder of each kernel"},
                                                    {"loader", "Loading and computing"},
                                                    {"scaler", "Gradients that are zero"}};
  std::set<std::string> seen;
  for (const auto& entry : fs::recursive_directory_iterator(HALFSTEP_SOURCE_DIR "/bench/results/cpu")) {
    if (entry.is_directory()) continue;
    INFO(entry.path().string());
    const Json record = read_record(entry.path());
    const std::string html = html_report(record), command = text(record, "command");
    check_well_formed(html);
    check_self_contained(html);
    CHECK(contains(html, "<td>"));
    const Cells rows = parse_csv(csv(record));
    REQUIRE(rows.size() > 1);
    for (const auto& line : rows) CHECK(line.size() == rows[0].size());
    const Cells shown = hs::test::parse_markdown(markdown(record));
    CHECK(shown.size() > 1);
    if (!parts.contains(command)) continue;
    seen.insert(command);
    CHECK(contains(html, parts.at(command)));
    CHECK(contains(html, "<svg"));
  }
  CHECK(seen.size() == parts.size());
  const Json curve = read_record(HALFSTEP_SOURCE_DIR "/bench/results/cpu/memory-deep_cnn.json");
  CHECK(contains(html_report(curve), "Bytes against time"));
}

TEST_CASE("the HTML report: well formed, self-contained, with all its parts") {
  Json record = good_record();
  const std::string html = html_report(record);
  check_well_formed(html);
  check_self_contained(html);
  for (const char* part : {"What each technique buys", "Accuracy against time", "class=\"mark\"", "class=\"whisker\"",
                           "Common mistakes", "Checklists", "Machine and build", "prefers-color-scheme: dark"}) {
    CAPTURE(part);
    CHECK(contains(html, part));
  }
  CHECK_FALSE(contains(html, "Memory by purpose"));
  record["rows"][0]["step"] = {
      {"seconds", 0.003},
      {"purposes",
       {{{"name", "parameters"}, {"live_bytes", {100, 100, 100}}},
        {{"name", "activations"}, {"live_bytes", {0, 500, 20}}}}},
      {"lanes",
       {{{"name", "loader 1"}, {"spans", {{{"name", "fill"}, {"start", 0.0}, {"end", 0.001}}}}},
        {{"name", "compute"}, {"spans", {{{"name", "forward"}, {"start", 0.001}, {"end", 0.003}}}}}}}};
  record["rows"][0]["scale"] = {
      {"first", 65536}, {"changes", {{{"after_step", 3}, {"scale", 32768}}}}, {"last", 32768}};
  record["rows"][0]["steps"] = 9;
  record["rows"][0]["parts"] = {{"wait", 0.5}, {"upload", 0.0}, {"forward", nullptr}, {"backward", 1.5}};
  const std::string full = html_report(record);
  check_well_formed(full);
  check_self_contained(full);
  for (const char* part : {"Memory by purpose over one step", "Where a step", "Loss scale", "2^16",
                           "Where the seconds went", ">backward<"}) {
    CAPTURE(part);
    CHECK(contains(full, part));
  }
}

TEST_CASE("the HTML report escapes what it shows, and says that digits are synthetic") {
  Json record = good_record();
  record["environment"]["cpu"] = "<script>alert(\"1\" & '2')</script>";
  record["environment"]["device_facts"] = {{"name", "</style><b>"}};
  record["data"]["synthetic"] = true;
  record["rows"][1]["name"] = "<i>\"";
  const std::string html = html_report(record);
  check_well_formed(html);
  CHECK_FALSE(contains(html, "<script"));
  CHECK_FALSE(contains(html, "<b>"));
  CHECK_FALSE(contains(html, "<i>"));
  CHECK(contains(html, "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)"));
  CHECK(contains(html, "synthetic digits"));
  CHECK(escape("a&b<c>\"'") == "a&amp;b&lt;c&gt;&quot;&#39;");
}

TEST_CASE("a record of failed runs, and one with nothing but a head, are shown too") {
  Json record = good_record();
  record["rows"][1] = {{"name", "broken"},
                       {"group", "alone"},
                       {"seconds", nullptr},
                       {"seconds_all", Json::array()},
                       {"samples_per_second", nullptr},
                       {"test_accuracy", nullptr},
                       {"test_accuracy_all", Json::array()},
                       {"final_loss", nullptr},
                       {"error", "the loss became nan"}};
  CHECK_NOTHROW(check_record(record, "F"));
  check_well_formed(html_report(record));
  CHECK(contains(markdown(record), "failed: the loss became nan"));
  CHECK(contains(csv(record), "\"the loss became nan\""));
  const Json head = new_record("info", Device::cpu);
  check_well_formed(html_report(head));
  CHECK(find(mistakes(record), "Unstable").made);
}

}  // namespace
