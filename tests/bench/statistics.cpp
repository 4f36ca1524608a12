// What the bench makes of measurements: intervals, comparisons, time to a target.
#include <fmt/ranges.h>

#include <cmath>
#include <random>

#include "bench/cli/statistics.h"
#include "bench/measure/comparison.h"
#include "bench/measure/noise_scale.h"
#include "bench/measure/row.h"
#include "bench/measure/target.h"
#include "bench/measure/techniques.h"
#include "bench/report/record.h"
#include "engine/error.h"
#include "source_dir.h"
#include "tests/support/bench_program.h"
#include "tests/support/bench_records.h"

namespace {

using namespace hs;
using namespace hs::bench;
using namespace hs::bench::measure;
using namespace hs::bench::report;
using namespace hs::test;

TEST_CASE("median and intervals") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(std::isnan(median({})));
  CHECK(std::isnan(median_interval({1}).low));
  // The logarithms' mean and 4.303 (Student's t of 2 degrees, 5 % in both tails) times its error.
  const Interval three = median_interval({1, std::exp(1), std::exp(2)});
  CHECK(std::log(three.high) == doctest::Approx(1 + 4.303 / std::sqrt(3)).epsilon(1e-4));
  CHECK(std::log(three.low) == doctest::Approx(1 - 4.303 / std::sqrt(3)).epsilon(1e-4));
  CHECK(std::isnan(median_interval({1, 2}).low));
  // 4.604 of 4 degrees at 1 %, and 2.228 of 10 at 5 %.
  CHECK(ratio_probability({1, 1, 1, 1, 1}, {1, std::exp(1), std::exp(2), std::exp(3), std::exp(4)}) ==
        doctest::Approx(0.0474).epsilon(0.01));
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
  // Passes in which neither, or one, reached a target.
  const double never = std::numeric_limits<double>::infinity();
  const std::vector<double> given = {2, never, 1.5, 2.6, never}, other = {1, never, 1.1, 1.05, never};
  CHECK(std::isnan(ratio_interval(given, other).low));
  CHECK(speed_up(given, other, 1).verdict.starts_with("cannot tell"));
  CHECK(speed_up({never, never, never, never, never}, {1, 1.1, 1.2, 1.3, 1.4}, 1).verdict == "faster");
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
  // Ties, with unequal groups: counted by hand over the 10 choices of three of 1, 2, 2, 3, 3.
  CHECK(probability_not_larger({1, 2}, {2, 3, 3}) == doctest::Approx(2.0 / 10));
  CHECK(probability_not_larger({2, 3}, {1, 2, 3}) == doctest::Approx(9.0 / 10));
  CHECK(smallest_probability(3, 3) == doctest::Approx(1.0 / 20));
  CHECK(smallest_probability(1, 1) == 0.5);
}

TEST_CASE("a comparison says what it cannot tell, and what else differs") {
  const Json before = good_record();
  Json after = before;
  after["rows"].erase(3);
  after["rows"][1] = row("mixed precision (bf16)", "alone", {5.0});
  after["environment"]["threads"] = 77;
  after["config"]["batch"] = 128;
  const Comparison comparison = compare(train_flags(), before, after, "A", "B");
  REQUIRE(comparison.rows.size() == 3);
  CHECK(comparison.rows[0].seconds.error == doctest::Approx(0.05 / 9));
  CHECK_FALSE(comparison.rows[1].seconds.can_tell());
  CHECK_FALSE(comparison.rows[1].is_regression(0));
  CHECK(comparison.only_one == std::vector<std::string>{"+ accumulation (4 x 16): only in A"});
  REQUIRE(comparison.differences.size() == 2);
  CHECK(contains(comparison.differences[0], "threads: "));
  CHECK(comparison.differences[1] == "batch: 64 and 128");
  const Table table = rows_of(comparison).table;
  const std::string few = "cannot tell: 6 runs or more would do";
  CHECK(table.lines[1].back() == few + "; accuracy " + few);
  // Of rows with the same name the first is meant.
  Json twice = before;
  twice["rows"].push_back(row("baseline", "baseline", {9.0}));
  CHECK(compare(train_flags(), before, twice, "A", "B").rows[0].seconds.after == before["rows"][0]["seconds"]);
}

TEST_CASE("accuracy, loss and time to a target are tested as seconds are") {
  Json before = good_record(), after;
  before["rows"] = Json::array({before["rows"][0]});
  after = before;
  Json& row = after["rows"][0];
  row["test_accuracy"] = 0.95;
  for (Json& accuracy : row["test_accuracy_all"]) accuracy = 0.95;
  for (size_t i = 0; i < 5; ++i) row["runs"][i]["epochs"][1]["test_loss"] = 0.3;
  before["rows"][0]["target"] = {{"accuracy", 0.9}, {"seconds_all", {1.0, 1.1, 1.2, 1.3, 1.4}}};
  row["target"] = {{"accuracy", 0.9}, {"seconds_all", {2.0, nullptr, 2.1, nullptr, nullptr}}};
  const auto compared = [&] { return compare(train_flags(), before, after, "A", "B", true).rows[0]; };
  const RowComparison all = compared();
  CHECK(all.seconds.verdict() == "cannot tell: more than 100 runs would do");
  CHECK(all.accuracy.verdict() == "lower");
  CHECK(all.accuracy.probability == doctest::Approx(2.0 / 252));
  CHECK(all.loss.verdict() == "higher");
  CHECK(all.target == "accuracy=0.9");
  CHECK(all.to_target.verdict() == "later");  // a run that missed it took longer than all others
  CHECK(std::isinf(all.to_target.after));
  CHECK(all.to_target.before == 1.2);
  CHECK(all.speed_up.contains(1));
  CHECK(std::isnan(compare(train_flags(), before, after, "A", "B").rows[0].speed_up.low));
  const report::Rows rows = rows_of(compare(train_flags(), before, after, "A", "B"));
  CHECK(rows.table.lines[0].back().ends_with("; accuracy lower; target later"));
  CHECK(rows.json[0]["verdict"] == all.seconds.verdict());
  CHECK(rows.json[0]["to_target"]["after"].is_null());
  CHECK(learned_by(compare(train_flags(), before, after, "A", "B")).lines.size() == 3);
  row["target"]["accuracy"] = 0.91;
  CHECK(compared().target == "");
}

TEST_CASE("runs that did not finish count as lost, and a claim is tested itself") {
  Json before = good_record(), after;
  before["rows"] = Json::array({row("x", "", {2.0, 2.1, 2.2, 2.3, 2.4})});
  after = before;
  after["rows"] = Json::array({row("x", "", {1.0, 1.1, 1.2, 1.3})});
  CHECK(compare(train_flags(), before, after, "A", "B").rows[0].accuracy_change == 0);
  after["rows"][0]["error"] = "diverged";
  const Comparison comparison = compare(train_flags(), before, after, "A", "B");
  CHECK(comparison.rows[0].runs_after == 5);
  CHECK(comparison.rows[0].accuracy_change == doctest::Approx(-0.97 / 5));
  CHECK(comparison.lost ==
        std::vector<std::string>{"x: 1 of 5 runs of B did not finish; they count as lost, as endless and with an "
                                 "accuracy of 0"});
  const std::vector<double> slow = {2, 2.1, 2.2, 2.3, 2.4}, fast = {1, 1.05, 1.1, 1.15, 1.2};
  CHECK(judge_claim(slow, fast, 1.5, true, 4).verdict == "met");
  CHECK(judge_claim(slow, fast, 1.5, false, 4).verdict == "missed");
  CHECK(judge_claim(slow, fast, 2.5, true, 4).verdict == "missed");
  CHECK(judge_claim(slow, fast, 1.9, true, 4).verdict.starts_with("cannot tell: about "));
  CHECK(judge_claim({2, 2.1, 2.2}, {1, 1, 1.1}, 1.5, true, 4).verdict == "cannot tell: 5 runs or more would do");
}

// Pages of verdicts on drawn runs: the share on which there is one.
struct Pages {
  std::mt19937 random;
  double spread, outliers;  // of the logarithms; the share of runs that take 30 % longer
  size_t turns;

  double draw(double scale = 1) {
    const double outlier = std::uniform_real_distribution(0.0, 1.0)(random) < outliers ? 1.3 : 1;
    return scale * outlier * std::exp(std::normal_distribution(0.0, spread)(random));
  }
  std::vector<double> runs(double scale = 1) {
    std::vector<double> all;
    for (size_t i = 0; i < turns; ++i) all.push_back(draw(scale));
    return all;
  }
  bool techniques(double scale) {
    Json rows = Json::array();
    const auto add = [&](const std::string& group, const std::string& flags) {
      rows.push_back({{"name", group},
                      {"group", group},
                      {"train_flags", flags},
                      {"on_by_default", flags.empty()},
                      {"peak_bytes", 1},
                      {"test_accuracy", 1},
                      {"seconds_all", runs(rows.empty() ? scale : 1)}});
    };
    add("baseline", "");
    for (int i = 0; i < 6; ++i) add("alone", "");
    for (int i = 0; i < 5; ++i) add("cumulative", i == 4 ? "--precision bf16" : "");
    add_comparisons(rows);
    const std::string answer = fmt::format("{}", fmt::join(advice(rows, "train"), " "));
    const auto is_told = [](const Json& row) { return row["verdict"] == "faster" || row["verdict"] == "slower"; };
    if (scale != 1) return is_told(rows[1]);
    return std::any_of(rows.begin() + 1, rows.end(), is_told) || !contains(answer, "Not decided: --precision");
  }
  Json side(double scale) {
    Json one = row("x", "", runs(scale));
    for (size_t i = 0; i < turns; ++i) {
      one["test_accuracy_all"][i] = 0.97 + 0.003 * std::normal_distribution()(random);
      one["runs"][i]["epochs"][1]["test_loss"] = 0.1 * draw();
    }
    return {{"rows", Json::array({one})}};
  }
  bool compare(double scale) {
    const Json after = side(1),
               before = side(scale);  // drawn in one order, as an argument list's depends on the compiler
    const RowComparison all = measure::compare(train_flags(), before, after, "A", "B").rows[0];
    if (scale != 1) return all.seconds.significant();
    return all.seconds.significant() || all.accuracy.significant() || all.loss.significant();
  }
  // Of improve, with one change: the whole, the change, and the claim of 1.5.
  bool improve(double scale) {
    const std::vector<double> given = runs(1.5 * scale), best = runs();
    return judge_claim(given, best, 1.5, true, 3).verdict == "met";
  }
  bool challenge(double scale) {
    const std::vector<double> best = runs(), given = runs(1.5 * scale);
    return judge_claim(given, best, 1.5, true, 4).verdict == "met";
  }
  bool profile(double scale) {
    const std::vector<double> with = runs(), without = runs(scale);
    const std::string verdict = speed_up(without, with, 2).verdict;
    return verdict == "faster" || verdict == "slower";
  }
  double share(bool (Pages::*page)(double), double scale) {
    const int pages = turns > 5 ? 500 : 1000;
    int told = 0;
    for (int i = 0; i < pages; ++i) told += (this->*page)(scale);
    return static_cast<double>(told) / pages;
  }
};

TEST_CASE("of equal runs at most 5 of 100 pages have a verdict; what is found of 10 % is in chapter 12") {
  const std::string page = hs::test::read_text(std::string(HALFSTEP_SOURCE_DIR) + "/docs/chapters/12_benchmarks.md");
  const std::pair<const char*, bool (Pages::*)(double)> all[] = {{"`techniques`, 12 rows", &Pages::techniques},
                                                                 {"`profile`, 1 of 2 switches", &Pages::profile},
                                                                 {"`compare`, 1 row", &Pages::compare},
                                                                 {"`compare --challenge`", &Pages::challenge},
                                                                 {"`improve`, 1 change", &Pages::improve}};
  for (const auto& [name, verdict] : all) {
    for (const size_t turns : {3, 5, 10}) {
      Pages quiet{.random = std::mt19937(1), .spread = 0.02, .outliers = 0, .turns = turns},
          busy{.random = std::mt19937(2), .spread = 0.05, .outliers = 0.1, .turns = turns};
      const double wrong = (quiet.share(verdict, 1) + busy.share(verdict, 1)) / 2;
      const std::string line = fmt::format("| {} | {} | {:.1f} % | {:.0f} % | {:.0f} % |", name, turns, wrong * 100,
                                           quiet.share(verdict, 1.1) * 100, busy.share(verdict, 1.1) * 100);
      constexpr double drawn = 0.014;  // twice the error of a share of 1,000 pages
      CHECK_MESSAGE(wrong <= 0.05 + drawn, line);
      CHECK_MESSAGE(contains(page, line + "\n"), line);
    }
  }
}

TEST_CASE("runs with a record each make one row") {
  Json rows = Json::array();
  for (const double seconds : {3.0, 1.0, 2.0}) {
    Json one = row("x", "", {seconds});
    one["parts"] = {{"wait", seconds / 10}};
    one["peak_bytes"] = 100 * seconds;
    one["target"] = {{"accuracy", 0.9}, {"reached_share", 1}, {"seconds", seconds}, {"seconds_all", {seconds}}};
    rows.push_back(one);
  }
  rows[0]["target"]["seconds"] = nullptr, rows[0]["target"]["reached_share"] = 0;
  const Json merged = merge_rows(rows);
  CHECK(merged["seconds"] == 2);
  CHECK(merged["seconds_all"] == Json({3.0, 1.0, 2.0}));
  CHECK(merged["runs"].size() == 3);
  CHECK(merged["parts"]["wait"].get<double>() == doctest::Approx(0.2));
  CHECK(merged["peak_bytes"] == 300);
  CHECK(merged["target"]["seconds"] == 1.5);
  CHECK(merged["target"]["seconds_all"] == Json({nullptr, 1.0, 2.0}));
  CHECK(merged["target"]["reached_share"].get<double>() == doctest::Approx(2.0 / 3));
}

// What takes longer in a record of train.
struct Longer {
  Json& record;
  Json& row = record["rows"][0];
  double all = row["seconds"].get<double>();  // before

  void set(const char* name, const Json& value) const { record["config"][name] = value; }
  void by(double seconds) const {
    row["seconds"] = row["seconds"].get<double>() + seconds;
    for (Json& each : row["seconds_all"]) each = each.get<double>() + seconds;
  }
  void part(const char* name, double times) const {  // all of the run
    row["parts"][name] = row["parts"][name].get<double>() + times * all;
    by(times * all);
  }
  void steps(double times) const { row["runs"][0]["steps"] = row["runs"][0]["steps"].get<double>() * times; }
  void whole(double times) const {
    steps(times);
    by(row["seconds"].get<double>() * (times - 1));
    for (Json& each : row["parts"]) each = each.get<double>() * times;
  }
  // All calls of a slot, or the time after each of them. Spans that begin later move.
  void kernel(const std::string& slot, bool itself = true) const {
    Json& step = row["step"];
    const double extra = step["seconds"].get<double>();
    for (size_t n = 0; n < step["lanes"][1]["spans"].size(); ++n) {
      const Json call = step["lanes"][1]["spans"][n];
      if (!call["name"].get<std::string>().starts_with(slot + " ")) continue;
      const double from = call["end"];
      step["seconds"] = step["seconds"].get<double>() + extra;
      for (Json& lane : step["lanes"]) {
        for (Json& span : lane["spans"]) {
          const bool within = span == call ? itself : span["end"] >= from;
          if (span["start"] >= from) span["start"] = span["start"].get<double>() + extra;
          if (!within) continue;
          const bool is_phase = span["start"] < from && &lane == &step["lanes"][0];
          if (is_phase) part(span["name"].get<std::string>().c_str(), 1);
          span["end"] = span["end"].get<double>() + extra;
        }
      }
    }
  }
};

TEST_CASE("--why names the cause that was planted, among others, and whichever record is the first") {
  Json base = record_of("train --device cpu --threads 1 --train 640 --test 64 --epochs 1 --quiet");
  REQUIRE(base["rows"][0]["step"]["lanes"][1]["name"] == "compute");
  const std::string forward = "conv2d_pool_relu_forward", backward = "conv2d_pool_relu_backward";
  base["kernels"] = {{forward, "direct"}, {backward, "direct"}, {"gemm", "blocked"}, {"dropout_mask", "simd"}};
  struct Planted {
    const char *what, *setting;
    std::function<void(const Longer& b)> plant;
  };
  const auto forward_and_backward = [](const Longer& b, double times) {
    b.part("forward", times), b.part("backward", times);
  };
  const std::vector<Planted> all = {
      {"kernel conv2d_pool_relu_forward (direct) takes", " ms a step", [&](auto& b) { b.kernel(forward); }},
      {"kernel conv2d_pool_relu_backward (direct -> naive)", "; --kernel none -> conv2d_pool_relu_backward=naive",
       [&](auto& b) {
         b.kernel(backward), b.record["kernels"][backward] = "naive", b.set("kernels", {backward + "=naive"});
       }},
      {"kernel gemm (blocked -> simple)", "; --tuning none -> t",
       [](auto& b) {
         b.kernel("gemm"), b.record["kernels"]["gemm"] = "simple", b.set("tuning", {{"file", "t"}});
       }},
      {"kernel dropout_mask (simd)", "; commit ",
       [](auto& b) { b.kernel("dropout_mask"), b.record["environment"]["commit"] = "x"; }},
      {"kernel conv2d_pool_relu_forward", "; --precision f32 -> bf16",
       [&](auto& b) { b.kernel(forward), b.set("precision", "bf16"); }},
      {"the time between kernels", " ms a step", [&](auto& b) { b.kernel(forward, false); }},
      {"the step takes", "; --fuse on -> off", [&](auto& b) { forward_and_backward(b, 1), b.set("fuse", "off"); }},
      {"the step takes", "; --threads 1 -> 4",
       [&](auto& b) { forward_and_backward(b, 1), b.record["environment"]["threads"] = 4; }},
      {"the step takes", "; cpu ", [&](auto& b) { forward_and_backward(b, 1), b.record["environment"]["cpu"] = "x"; }},
      {"the step takes", "; --model mnist_cnn -> x", [&](auto& b) { forward_and_backward(b, 1), b.set("model", "x"); }},
      {"the step takes", "8 times as many steps: 10 and 80",
       [&](auto& b) { forward_and_backward(b, 1), b.steps(8), b.set("batch", 8); }},
      {"the step takes", "; --batch 64 -> 16, --accumulate 1 -> 4",
       [&](auto& b) { forward_and_backward(b, 1), b.set("batch", 16), b.set("accumulate", 4); }},
      {"backward takes", "; --checkpoint off -> all",
       [](auto& b) { b.part("backward", 1), b.set("checkpoint", "all"); }},
      {"the update takes", "; --optimizer adam -> lamb",
       [](auto& b) { b.part("update", 1), b.set("optimizer", "lamb"); }},
      {"waiting for data", "; --cache ram -> none", [](auto& b) { b.part("wait", 1), b.set("cache", "none"); }},
      {"waiting for data", "; --prefetch 2 -> 0", [](auto& b) { b.part("wait", 1), b.set("prefetch", 0); }},
      {"waiting for data", " s a run", [](auto& b) { b.part("wait", 1); }},
      {"the upload of batches", "; --pin on -> off", [](auto& b) { b.part("upload", 1), b.set("pin", "off"); }},
      {"saving takes", "; --save-every none -> 1st", [](auto& b) { b.part("save", 1), b.set("save_every", "1st"); }},
      {"the sum over ranks", "; count none -> 4",
       [](auto& b) {
         b.part("exchange", 1), b.row["ranks"] = {{"count", 4}};
       }},
      {"what no phase counts", " ms a step", [](auto& b) { b.by(b.all); }},
      {"evaluation takes", "; --test 64 -> 6400",
       [](auto& b) { b.row["runs"][0]["evaluation_seconds"] = 2 * b.all, b.record["data"]["test"] = 6400; }},
      {"evaluation takes", "; --validation 0.0 -> 0.1",
       [](auto& b) {
         b.row["runs"][0]["validations"] = {{{"seconds", b.all}}}, b.set("validation", 0.1);
       }},
      {"the amount of training", "3 times as many samples: 640 and 1920; --epochs 1 -> 3",
       [](auto& b) {
         b.whole(3), b.set("epochs", 3);
         for (const int i : {0, 0}) b.row["runs"][0]["epochs"].push_back(b.row["runs"][0]["epochs"][i]);
       }},
      {"the amount of training", "2 times as many samples: 640 and 1280; --train 640 -> 1280",
       [](auto& b) { b.whole(2), b.record["data"]["train"] = 1280; }},
      {"the amount of training", "2 times as many samples: 640 and 320; --patience 0 -> 2",
       [](auto& b) { b.whole(0.5), b.set("patience", 2); }},
  };
  for (const char* device : {"cpu", "cuda"}) {
    base["environment"]["device"] = device;
    for (const Planted& planted : all) {
      Json after = base;
      const Longer b{after};
      for (const char* other : {"wait", "update", "backward"}) b.part(other, 0.1);
      planted.plant(b);
      const std::string sentence = why(train_flags(), base, after, "A", "B"),
                        back = why(train_flags(), after, base, "B", "A"), what = planted.what;
      CAPTURE(sentence);
      CAPTURE(back);
      // A GPU's phases are launches alone.
      const bool is_phase = what == "backward takes" || what == "the update takes" || what == "what no phase counts";
      if (is_phase && base["environment"]["device"] == "cuda") continue;
      CHECK(sentence.starts_with(what));
      CHECK(contains(sentence, planted.setting));
      CHECK(back.substr(0, back.find_first_of('(')).starts_with(what.substr(0, what.find_first_of('('))));
    }
  }
  CHECK(why(train_flags(), base, base, "A", "B") == "there is no difference");
  CHECK_THROWS_WITH_AS(why(train_flags(), base, good_record(), "A", "B"),
                       doctest::Contains("--why: B does not say where"), Error);
}

TEST_CASE("time to target: until the first evaluation that reaches it, over the runs that do") {
  const auto run = [](const std::vector<double>& accuracies) {
    RunRecord record;
    for (const double accuracy : accuracies) record.result.epochs.push_back({0.1, 2.0, {accuracy, 0.1}, 0.5});
    record.result.seconds = 2.0 * static_cast<double>(accuracies.size());
    return record;
  };
  const std::vector<RunRecord> runs = {run({0.90, 0.96, 0.95}), run({0.97, 0.96, 0.98}), run({0.1, 0.2, 0.3})};
  Goal goal;
  goal.target = {.value = 0.96}, goal.price_per_hour = 36;
  Json row = to_json(Row{"x", runs, ""}, goal);
  CHECK(row["target"]["reached_share"].get<double>() == doctest::Approx(2.0 / 3));
  CHECK(row["target"]["seconds"] == 3);  // (4 + 2) / 2
  CHECK(row["target"]["seconds_all"] == Json::array({4.0, 2.0, nullptr}));
  CHECK(row["target"]["seconds_low"].is_null());  // of two runs
  CHECK(row["target"]["best"] == 0.98);
  CHECK(row["target"]["evaluation_seconds"] == 0.75);
  CHECK(row["target"]["epochs"] == 1.5);
  CHECK(row["cost"]["per_run"].get<double>() == doctest::Approx(0.01 * 7.5));
  CHECK(row["cost"]["to_target"].get<double>() == doctest::Approx(0.01 * 3.75));
  CHECK_THROWS_WITH_AS(check_goal(Json::array({row}), goal), doctest::Contains("x reached it in 67 % of its runs"),
                       Error);
  CHECK(to_json(Row{"x", runs, "lost"}, goal, 1)["target"]["reached_share"] == 0.5);
  goal.target = {.value = 0.99};
  row = to_json(Row{"x", runs, ""}, goal);
  CHECK(row["target"]["reached_share"] == 0);
  CHECK(row["target"]["seconds"].is_null());
  CHECK(row["cost"]["to_target"].is_null());
  // Validations, where there are any, are what counts; and the least loss.
  std::vector<RunRecord> judged = {runs[0]};
  judged[0].result.validations = {
      {1, 5, {0.5, 0.9}, 0.25, 1.5}, {1, 9, {0.6, 0.4}, 0.25, 2.5}, {2, 5, {0.6, 0.3}, 0.25, 9}};
  row = to_json(Row{"x", judged, ""}, {.target = Target{.is_loss = true, .value = 0.4}});
  CHECK(row["target"]["seconds"] == 2.5);
  CHECK(row["target"]["evaluation_seconds"] == 0.5);
  CHECK(row["target"]["best"] == 0.3);
  CHECK_FALSE(to_json(Row{"x", runs, ""}).contains("target"));
}

TEST_CASE("the noise scale of gradients whose covariance is known") {
  // 40 numbers of mean 0.5 and deviation 2: trace 160, squared norm 10, so 16 samples.
  constexpr int dimensions = 40, micro_batch = 4, micro_batches = 8;
  std::mt19937_64 random(1);
  NoiseScale noise(micro_batch, micro_batch * micro_batches);
  for (int step = 0; step < 4000; ++step) {
    double first = 0, whole = 0;
    for (int d = 0; d < dimensions; ++d) {
      double sum = 0;
      for (int i = 0; i < micro_batches; ++i) {
        const double mean_of_batch = std::normal_distribution(0.5, 2 / std::sqrt(double{micro_batch}))(random);
        if (i == 0) first += mean_of_batch * mean_of_batch;
        sum += mean_of_batch;
      }
      whole += sum * sum / (micro_batches * micro_batches);
    }
    noise.add(first, whole);
  }
  noise.add(INFINITY, 1);  // skipped
  CHECK(noise.steps() == 4000);
  CHECK(noise.trace() == doctest::Approx(160).epsilon(0.02));
  CHECK(noise.squared_norm() == doctest::Approx(10).epsilon(0.02));
  CHECK(noise.samples() == doctest::Approx(16).epsilon(0.04));
}

}  // namespace
