// What a training shows of itself over time: halfstep-bench train --trace, whose file is what viewers of traces expect,
// the course in its record, and its page.
#include <signal.h>

#include <cmath>
#include <map>

#include "bench/measure/experiment.h"
#include "bench/measure/row.h"
#include "bench/measure/step_profile.h"
#include "engine/error.h"
#include "tests/support/bench_program.h"

namespace hs::test {
namespace {

using bench::measure::trace_events;
using bench::measure::trace_file;

const std::string tiny = "train --quiet --model mlp --train 96 --test 32 --batch 8 --epochs 1 --threads 1";

json trace_of(const std::string& line) {
  const Ended ended = run_successfully(line + " --trace -");
  return json::parse(ended.out);
}

std::vector<json> of_kind(const json& trace, const char* kind, const std::string& name = "") {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == kind && (name.empty() || event["name"] == name)) found.push_back(event);
  }
  return found;
}

std::map<int64_t, std::string> rows_of(const json& trace) {
  std::map<int64_t, std::string> rows;
  for (const json& event : of_kind(trace, "M", "thread_name")) {
    CHECK(rows.try_emplace(event["tid"], event["args"]["name"]).second);
  }
  return rows;
}

// What the format asks of every event, and that those of a row lie within each other or beside each other.
void check_trace(const json& trace) {
  const auto rows = rows_of(trace);
  std::map<int64_t, std::vector<std::pair<double, double>>> open;
  std::map<int64_t, double> last;
  for (const json& event : trace["traceEvents"]) {
    REQUIRE(event["name"].is_string());
    REQUIRE(event["pid"].is_number_integer());
    const std::string kind = event["ph"];
    if (kind == "M") continue;
    const double begin = event["ts"];
    REQUIRE(std::isfinite(begin));
    CHECK(begin >= 0);
    if (kind == "C") {
      for (const auto& [name, value] : event["args"].items()) CHECK(value.is_number());
      continue;
    }
    REQUIRE(kind == "X");
    const int64_t row = event["tid"];
    CHECK(rows.contains(row));
    const double end = begin + event["dur"].get<double>();
    CHECK(end >= begin);
    CHECK(begin >= last[row]);
    last[row] = begin;
    auto& around = open[row];
    constexpr double rounding = 1e-6;  // microseconds: begin + (end - begin) is not always end
    while (!around.empty() && around.back().second <= begin + rounding) around.pop_back();
    if (!around.empty()) CHECK(end <= around.back().second + rounding);
    around.emplace_back(begin, end);
  }
}

}  // namespace

TEST_CASE("a trace: the rows, the spans within each other, the counters") {
  const json trace = trace_of(tiny + " --trace-steps 4 --precision f16 --prefetch 2 --workers 2");
  check_trace(trace);
  std::multiset<std::string> rows;
  for (const auto& [row, name] : rows_of(trace)) rows.insert(name);
  CHECK(rows.count("training") == 1);
  CHECK(rows.count("compute") == 1);
  CHECK(rows.count("loader 1") + rows.count("loader 2") >= 1);
  CHECK(of_kind(trace, "X", "step").size() == 4);
  for (const char* part : {"wait", "forward", "update"}) {
    CAPTURE(part);
    CHECK(of_kind(trace, "X", part).size() == 4);
  }
  CHECK(of_kind(trace, "X", "fill").size() >= 2);  // some were made before the first of these steps
  CHECK(of_kind(trace, "X", "evaluate").empty());
  CHECK(of_kind(trace, "X", "backward").size() == 8);  // the part of the step, and in it autograd's own
  const std::vector<json> updates = of_kind(trace, "X", "adam_step");
  REQUIRE(updates.size() == 4);
  CHECK(updates[0]["cat"] == "device");
  CHECK(updates[0]["args"].contains("variant"));
  const std::vector<json> scales = of_kind(trace, "C", "loss scale");
  REQUIRE(scales.size() == 4);
  CHECK(scales[0]["args"]["scale"] == 65536);
  const std::vector<json> memory = of_kind(trace, "C", "memory");
  REQUIRE(!memory.empty());
  for (const json& sample : memory) CHECK(sample["args"]["parameters"] > 0);
  CHECK(trace["otherData"]["config"]["precision"] == "f16");
  CHECK(trace["otherData"]["dropped_spans"] == 0);
}

TEST_CASE("without a loss scale there is no such counter, and without threads no such row") {
  const json trace = trace_of(tiny + " --trace-steps 2 --prefetch 0");
  check_trace(trace);
  CHECK(of_kind(trace, "C", "loss scale").empty());
  for (const auto& [row, name] : rows_of(trace)) CHECK_FALSE(name.starts_with("loader"));
  // It is the training loop that makes its batches.
  const std::vector<json> fills = of_kind(trace, "X", "fill"), waits = of_kind(trace, "X", "wait");
  REQUIRE(fills.size() == 2);
  REQUIRE(waits.size() == 2);
  CHECK(fills[0]["tid"] == waits[0]["tid"]);
}

TEST_CASE("names and facts with any characters make a valid file, and what was left out is said") {
  bench::measure::StepProfile steps;
  steps.profile.rows = {"training", "a \"row\"\n\x01\xff"};
  steps.profile.spans = {{"step", "", 1, 0, 0, 0.5, 1.0}, {"tab\t", "\\", -1, 1, 0, 0.6, 0.7}};
  const json trace = json::parse(trace_file({trace_events(steps)}, 7, {{"cpu", "<\x1f>\xc3"}}));
  check_trace(trace);
  CHECK(of_kind(trace, "X", "tab\t").size() == 1);
  CHECK(of_kind(trace, "X", "tab\t")[0]["args"]["variant"] == "\\");
  CHECK(trace["otherData"]["dropped_spans"] == 7);
  CHECK(json::parse(trace_file({trace_events({})}, 0, json::object()))["traceEvents"].size() == 1);
}

TEST_CASE("several processes: each with its own number and start, and its sums, which may overlap") {
  bench::measure::StepProfile steps;
  steps.profile.start = 100;
  steps.profile.rows = {"training"};
  steps.profile.spans = {{"step", "", 1, 0, 0, 0.5, 1.0}};
  steps.sums = {{"b", 40, 100.75, 101.0}, {"a", 20, 100.5, 101.25}};
  const json trace = json::parse(trace_file(
      {trace_events(steps, {.id = 0, .name = "rank 0"}), trace_events(steps, {.id = 1, .name = "rank 1", .start = 2})},
      0, json::object()));
  const std::vector<json> names = of_kind(trace, "M", "process_name"), spans = of_kind(trace, "X");
  REQUIRE(names.size() == 2);
  REQUIRE(spans.size() == 2);
  for (const int64_t rank : {0, 1}) {
    const auto i = static_cast<size_t>(rank);
    CHECK(names[i]["pid"] == rank);
    CHECK(names[i]["args"]["name"] == "rank " + std::to_string(rank));
    CHECK(spans[i]["pid"] == rank);
    CHECK(spans[i]["ts"] == 5e5 + 2e6 * static_cast<double>(rank));
    const std::vector<json> begins = of_kind(trace, "b"), ends = of_kind(trace, "e");
    REQUIRE(begins.size() == 4);
    REQUIRE(ends.size() == 4);
    const json &begin = begins[2 * i + 1], &end = ends[2 * i + 1];
    CHECK(begin["name"] == "a");
    CHECK(begin["pid"] == rank);
    CHECK(begin["ts"] == spans[i]["ts"]);
    CHECK(begin["args"]["bytes"] == 20);
    CHECK(end["ts"] == spans[i]["ts"].get<double>() + 7.5e5);
    for (const char* member : {"name", "pid", "cat", "id"}) CHECK(begin[member] == end[member]);
  }
  std::set<std::string> ids;
  for (const json& begin : of_kind(trace, "b")) ids.insert(begin["id"]);
  CHECK(ids.size() == 4);
}

TEST_CASE("the step that a record shows is one of median length, with times of its own") {
  bench::measure::StepProfile steps;
  steps.profile.rows = {"training", "compute", "loader 1"};
  for (const double length : {3.0, 1.0, 2.0}) {
    const double begin = 10 * length;
    steps.profile.spans.push_back({"step", "", 1, 0, 0, begin, begin + length});
    steps.profile.spans.push_back({"forward", "", -1, 0, 1, begin, begin + length / 2});
    steps.profile.spans.push_back({"relu", "", -1, 0, 2, begin, begin + length / 4});
    steps.profile.spans.push_back({"relu_forward", "simple", -1, 1, 0, begin, begin + length / 4});
    steps.profile.spans.push_back({"fill", "", 5, 2, 0, begin - 1, begin + length + 1});
  }
  BytesByPurpose bytes{};
  for (const double time : {1.0, 19.0, 20.5, 21.0, 30.5}) {
    bytes[0] += 100;
    steps.profile.memory.push_back({time, bytes});
  }
  const json step = bench::measure::typical_step(steps);
  CHECK(step["seconds"] == 2.0);
  REQUIRE(step["lanes"].size() == 3);
  CHECK(step["lanes"][0] ==
        json{{"name", "training"}, {"spans", {{{"name", "forward"}, {"start", 0.0}, {"end", 1.0}}}}});
  CHECK(step["lanes"][1]["spans"][0]["name"] == "relu_forward simple");
  CHECK(step["lanes"][2]["spans"][0]["end"] == 2.0);  // what is outside of the step is cut off
  CHECK(step["purposes"] == json{{{"name", "parameters"}, {"live_bytes", {200, 300, 400}}}});
  CHECK(bench::measure::typical_step({}).is_null());
}

TEST_CASE("the course of a run: shares of each interval, which grow so that there are never many") {
  bench::measure::Course course(7, 100, 10), resumed_after_last_step(7, 100, 10);
  resumed_after_last_step.on_epoch({.training_loss = 1, .seconds = 0, .test = {0.5, 3}});
  CHECK(resumed_after_last_step.so_far().result.epochs.size() == 1);
  Progress progress{.epoch = 1, .step = 0, .steps_per_epoch = 10, .loss = 2, .seconds = 0, .parts = {}};
  constexpr int64_t steps = 1000;
  for (int64_t step = 0; step < steps; ++step) {
    progress.epoch = 1 + step / 10;
    progress.step = 1 + step % 10;
    progress.seconds += 1;
    progress.parts.wait += step < steps / 2 ? 0.75 : 0.25;
    progress.parts.forward += 0.125;
    progress.parts.replay += 0.0625;
    course.on_step(progress);
    if (progress.step < 10) continue;
    course.on_epoch({.training_loss = 1, .seconds = 10, .test = {0.5, 3}, .evaluation_seconds = 1});
  }
  ++progress.epoch, progress.step = 1, progress.seconds += 1;
  course.on_step(progress);
  bench::measure::Row row{.name = "m", .runs = {course.so_far()}, .error = ""};
  const json shown = to_json(row), &points = shown["course"];
  CHECK(points.size() >= 30);
  CHECK(points.size() < 60);
  double last = 0;
  for (const json& point : points) {
    const double seconds = point["seconds"];
    CHECK(seconds > last);
    CHECK(point["compute"] == 0.1875);
    if (seconds <= steps / 2) CHECK(point["wait"] == 0.75);
    if (last >= steps / 2 && seconds <= steps) CHECK(point["wait"] == 0.25);
    last = seconds;
  }
  CHECK(last > 0.9 * steps);
  CHECK(shown["epochs"].size() == steps / 10 + 1);
  CHECK(shown["epochs"][0]["test_accuracy"] == 0.5);
  CHECK(shown["epochs"].back()["seconds"] == 1.0);
  CHECK(shown["epochs"].back()["test_accuracy"].is_null());
  CHECK(shown["runs"][0]["steps"] == steps + 1);
  CHECK(shown["samples_per_second"] == 10.0);
}

TEST_CASE("a trace beside other results, and a run that fails") {
  const TemporaryFolder folder;
  const std::string trace = (folder / "trace.json").string(), record = (folder / "r.json").string();
  run_successfully(tiny + " --trace-steps 2 --trace " + trace + " --json " + record);
  check_trace(json::parse(read_text(trace)));
  CHECK(json::parse(read_text(record))["rows"][0]["step"]["lanes"].size() >= 2);
  const json course = record_of(
      "train --quiet --model mnist_cnn_large --train 640 --test 1 --epochs 2 --threads 1")["rows"][0]["course"];
  REQUIRE(!course.empty());
  for (const json& point : course) {
    CHECK(point["wait"] >= 0);
    CHECK(point["compute"] > 0.5);
    CHECK(point["wait"].get<double>() + point["compute"].get<double>() <= 1.0001);
  }
  std::filesystem::remove(trace);
  CHECK(run_bench_line(tiny + " --optimizer sgd --lr 1000 --trace " + trace).code == 6);
  CHECK_FALSE(std::filesystem::exists(trace));
}

TEST_CASE("train --html: the page while it trains, then the last one, of the same bits, or why there is none") {
  const std::string line = "train --quiet --model mlp --train 96 --test 32 --batch 8 --threads 1 --epochs ";
  const std::string refresh = "<meta http-equiv=\"refresh\"", mark = "id=\"record\">";
  const TemporaryFolder folder;
  const std::string page = (folder / "r.html").string();
  const auto shown = [&] {
    const std::string html = read_text(page);
    const size_t from = html.find(mark) + mark.size();
    CHECK(html.ends_with("</html>\n"));
    json record = json::parse(html.substr(from, html.find("</script", from) - from));
    CHECK(contains(html, refresh) == record.contains("running"));
    return record;
  };
  size_t running = 0;
  const auto stop = [&](const std::string&) {
    if (!std::filesystem::exists(page)) return 0;
    const json record = shown();
    running += record["running"] == true;
    CHECK(record["headline"].get<std::string>().starts_with("Run 1 of 1, after epoch "));
    CHECK(record["rows"].size() == 1);
    return SIGINT;
  };
  const Ended stopped = run_bench_line(line + "10000 --html " + page, {.ask = stop});
  check_one_line(stopped, 130, "stopped by SIGINT after");
  CHECK(running == 1);
  CHECK_FALSE(shown().contains("running"));
  CHECK(contains(shown()["remarks"][0], "stopped by SIGINT after"));
  const json last = record_of(line + "4 --html " + page);
  CHECK(shown() == last);
  CHECK(last["rows"][0]["weights_sha256"] == record_of(line + "4")["rows"][0]["weights_sha256"]);
}

TEST_CASE("mistakes are one line and an exit code") {
  check_mistakes({{"train --trace /nowhere/trace.json", 4, "--trace /nowhere/trace.json"},
                  {"train --trace-steps 3", 2, "--trace FILE"},
                  {"train --trace a --trace-steps 0", 2, "--trace-steps"},
                  {"train --trace - --json -", 2, "both go to -"}});
}

}  // namespace hs::test
