// `halfstep-bench techniques`, `report` and `compare` as their users meet them.
#include "source_dir.h"
#include "tests/support/bench_outputs.h"

namespace {

using namespace hs::test;
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
  const std::string file = (folder / "r.json").string();
  const json record = check_outputs(tiny + "--price-per-hour 2");
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
    CHECK(row["cached_bytes"] == (row["experiment"]["cache"] == "none" ? 0 : (96 + 32) * (28 * 28 + 4)));
    if (row["group"] == "baseline") continue;
    const std::string verdict = row["verdict"];
    CHECK((verdict == "faster" || verdict == "slower" || verdict.starts_with("cannot tell: ")));
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
  write_text(file, record.dump());
  const Ended shown = run_bench_line("report " + file);
  const std::vector<std::string> out = lines_of(shown.out);
  const size_t answers = record["answer"].size();
  REQUIRE(answers >= 2);
  REQUIRE(out.size() > answers + rows.size() + 3);
  CHECK(out[2].starts_with("synthetic digits  On this machine: train"));
  CHECK(contains(record["answer"].dump(), "On by default: cache, prefetch, fast kernels (together "));
  for (size_t i = 4 + answers; i < 4 + answers + rows.size(); ++i) CHECK(out[i].starts_with("synthetic digits  "));
  for (const json& row : rows) {
    const bool is_on = row["on_by_default"];
    CHECK(is_on == (row["train_flags"] == "on by default"));
    if (!is_on && row["name"] != "baseline") CHECK(row["train_flags"].get<std::string>().starts_with("--"));
  }
  CHECK(contains(shown.out, "to be judged by peak bytes and not by seconds"));
  CHECK(contains(shown.out, "No row for graph: cpu captures no graphs."));
  const Ended same = run_successfully("compare " + file + " " + file);
  CHECK(contains(same.out, "cannot tell: 7 runs or more would do"));
}

TEST_CASE("a target that is reached, and one that is not") {
  const std::string train = "train --device cpu --model mlp --train 640 --test 64 --epochs 2 --quiet ";
  const Ended easy = run_successfully(train + "--target accuracy=0.05 --price-per-hour 1 --json -");
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

// A record of one run of training; writes copies of it with other times and accuracies.
struct Measured {
  const TemporaryFolder folder;
  json record = record_of("train --device cpu --model mlp --train 64 --test 16 --epochs 1 --quiet");
  std::string write(const char* name, double factor, double accuracy = 0.9, size_t runs = 5) {
    json& row = record["rows"][0];
    row["seconds_all"] = row["test_accuracy_all"] = json::array();
    for (size_t i = 0; i < runs; ++i) {
      row["seconds_all"].push_back(factor * (1 + 0.002 * static_cast<double>(i)));
      row["test_accuracy_all"].push_back(accuracy);
    }
    row["seconds"] = 1.004 * factor, row["test_accuracy"] = accuracy;
    std::ofstream(folder / name) << record;
    return " " + (folder / name).string();
  }
};

TEST_CASE("a planted regression ends with exit code 1") {
  Measured measured;
  const std::string a = measured.write("a", 1), b0 = measured.write("b0", 1), b2 = measured.write("b2", 1.02),
                    b10 = measured.write("b10", 1.1), one = measured.write("one", 1, 0.9, 1);
  run_successfully("compare" + a + b0 + " --fail-if-slower 3%");
  run_successfully("compare" + a + b2 + " --fail-if-slower 3%");
  CHECK(run_bench_line("compare" + a + b2 + " --fail-if-slower 1%").code == 1);
  const Ended slow = run_bench_line("compare" + a + b10 + " --fail-if-slower 3%");
  CHECK(slow.code == 1);
  CHECK(contains(slow.err, "mlp: 10.0 % slower, more than 3%, p = 0.008"));
  CHECK(contains(slow.out, "slower"));
  run_successfully("compare" + a + b10 + " --fail-if-slower 12");
  run_successfully("compare" + b10 + a + " --fail-if-slower 0");
  const json comparison = check_outputs("compare" + a + b10);
  CHECK(comparison["rows"][0]["verdict"] == "slower");
  CHECK(comparison["rows"][0]["change"].get<double>() == doctest::Approx(0.1));
  CHECK(comparison["environment"] == measured.record["environment"]);
  const Ended once = run_bench_line("compare" + a + one + " --fail-if-slower 1000");
  CHECK(once.code == 2);
  CHECK(contains(once.err, "5 and 1 runs, too few to tell"));
  json& rows = measured.record["rows"];
  rows.push_back(rows[0]);
  rows[1]["name"] = "second";
  const std::string two = measured.write("two", 1);
  const Ended gone = run_bench_line("compare" + two + a + " --fail-if-slower 3%");
  CHECK(gone.code == 2);
  CHECK(contains(gone.err, "second: only in"));
}

TEST_CASE("compare --run trains both in turns, and keeps what a comparison needs") {
  const TemporaryFolder folder;
  const auto recipe = [&](const char* name, int batch) {
    std::ofstream(folder / name) << json{{"device", "cpu"}, {"model", "mlp"}, {"train", 640}, {"test", 64},
                                         {"epochs", 1},     {"batch", batch}, {"repeat", 9},  {"seed", 99}};
    return "--recipe='" + (folder / name).string() + "'";
  };
  const std::string a = recipe("a", 64), b = recipe("b", 8);
  const json record = check_outputs("compare --quiet --repeat 3 --seed 7 --why --run " + a + " --run " + b);
  CHECK(record["config"] == json{{"before", a}, {"after", b}, {"interleaved", true}});
  REQUIRE(record["sides"].size() == 2);
  CHECK(record["sides"][0]["config"]["batch"] == 64);
  for (const json& side : record["sides"]) {
    const json& row = side["rows"][0];
    CHECK(row["seconds_all"].size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(row["runs"][i]["seed"] == 7 + i);
  }
  const json& row = record["rows"][0];
  CHECK(row["speed_up_low"] <= row["speed_up_high"]);
  CHECK(row["test_loss"]["probability"] <= 1);
  const std::string remarks = record["remarks"].dump();
  CHECK(contains(remarks, "different batch: 64 and 8"));
  CHECK(contains(remarks, "why: the step takes"));
  CHECK(contains(remarks, "8 times as many steps: 10 and 80"));
  CHECK_FALSE(contains(remarks, "not interleaved"));
  // The same from the record.
  std::ofstream(folder / "r.json") << record;
  CHECK(record_of("compare --why " + (folder / "r.json").string()) == record);
  // A target that is missed is a result, a run that fails is not.
  const Ended missed =
      run_bench({"compare", "--run", a + " --target accuracy=1 --lr 1e-9", "--run", b, "--repeat", "1"});
  CHECK(missed.code == 0);
  CHECK(contains(missed.err, "turn 1 of 1, "));
  const Ended failed = run_bench({"compare", "--run", a, "--run", b + " --data /nonexistent", "--quiet"});
  check_one_line(failed, 4, ": /nonexistent: not found; expected a folder");
}

TEST_CASE("a challenge is met, is missed, or cannot be judged") {
  Measured measured;
  json& record = measured.record;
  record["environment"]["date"] = "2026-01-02T03:04:05Z";
  const std::string slow = measured.write("slow", 2, 0.9), fast = measured.write("fast", 1, 0.898),
                    worse = measured.write("worse", 1, 0.88), two = measured.write("two", 1, 0.9, 2);
  const auto judged = [&](const std::string& line, int code, const std::string& part) {
    const Ended ended = run_bench_line("compare" + line);
    CAPTURE(line);
    CHECK(ended.code == code);
    CHECK(contains(code == 0 ? ended.out : ended.err, part));
    CHECK(contains(ended.out, "not interleaved: one was measured after the other (2026-01-02T03:04:05Z and 2026-01"));
  };
  judged(slow + fast + " --challenge 1.5", 0, "challenge: met: the second ends 2.00 times as fast as the first");
  judged(slow + fast + " --challenge 1.5 --lose 0.001", 1, "its accuracy changes by -0.0020 (allowed: -0.001)");
  judged(slow + worse + " --challenge 1.5", 1, "challenge: missed");
  judged(slow + fast + " --challenge 2.5", 1, "challenge: missed");
  judged(fast + slow + " --challenge 0.6", 1, "challenge: missed");
  judged(slow + two + " --challenge 1.5", 2, "challenge: cannot tell: 5 runs or more would do");
  record["rows"][0]["target"] = {{"accuracy", 0.9}, {"seconds_all", {5, 5.1, 5.2, 5.3, 5.4}}};
  const std::string late = measured.write("late", 1);
  record["rows"][0]["target"]["seconds_all"] = {2.9, 2.95, 3, 3.05, 3.1};
  const std::string early = measured.write("early", 2);
  judged(late + early + " --challenge 1.5", 0, "the second reaches accuracy=0.9 1.73 times as fast");
  record["rows"][0]["target"]["accuracy"] = 0.8;
  judged(late + measured.write("other", 2, 0.9, 3) + " --challenge 1.5", 2, "the two have different targets");
  record["rows"][0]["target"] = nullptr;
  judged(two + measured.write("one", 2, 0.9, 1) + " --challenge 1.5", 2,
         "challenge: cannot tell: 5 runs or more would do");
}

TEST_CASE("mistakes are one line and an exit code") {
  check_mistakes({
      {"techniques --quick --full", 2, "--quick and --full: give one"},
      {"techniques --repeat 0", 2, "--repeat 0: expected a whole number from 1"},
      {"techniques --target accuracy=97", 2, "--target accuracy=97: expected accuracy=NUMBER, above 0 and up to 1, or"},
      {"report", 2, "report RECORD: 0 given, expected 1 or more"},
      {"compare", 2, "compare RECORD: 0 given, expected 2, or --run FLAGS twice"},
      {"compare " HALFSTEP_SOURCE_DIR "/bench/results/cpu/mnist_cnn.json", 2, "compare RECORD: 1 given, expected 2"},
      {"compare a b --fail-if-slower x", 2, "--fail-if-slower x: expected percent"},
      {"compare a b --fail-if-slower -3%", 2, "--fail-if-slower -3%: expected percent"},
      {"compare a b --lose 0.1", 2, "--lose 0.1: is for --challenge X"},
      {"compare a b --repeat 3", 2, "--repeat: is for --run FLAGS"},
      {"compare --run --lr=1", 2, "--run: given 1 times, expected twice"},
      {"compare --run --lr=1 --run --lr=2 a", 2, "--run: trains both, and a is a record"},
      {"compare --run --lr=1 --run --lr=2 --repeat 2 --challenge 2", 2, "--repeat 2: too few runs to tell"},
      {"compare --run --lr=1 --run --lt=2", 2, "--run \"--lt=2\": --lt: unknown flag; did you mean --lr?"},
      {"compare --run --lr=1 --run --epochs='2", 2, "--run \"--epochs='2\": a quote has no end"},
      {"compare --run --lr=1 --run --repeat=2", 2,
       "--run \"--repeat=2\": leave --repeat out: runs are repeated from outside"},
      {"compare --run --lr=1 --run --resume=x", 2, "leave --resume out"},
      {"compare --run --lr=1 --run --json=x", 2, "--run \"--json=x\": --json writes a file of each run"},
      {"compare " HALFSTEP_SOURCE_DIR "/bench/results/cpu/mnist_cnn.json " HALFSTEP_SOURCE_DIR
       "/bench/results/cpu/techniques.json --why",
       3, "have no row in common"},
      {"compare " HALFSTEP_SOURCE_DIR "/bench/results/cpu/techniques.json " HALFSTEP_SOURCE_DIR
       "/bench/results/cpu/techniques.json --why",
       2, "techniques.json does not say where time went"},
  });
}

}  // namespace
