// The reports: the HTML page with its warnings and checklists.
#include <fmt/format.h>

#include <algorithm>

#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/bench_records.h"

namespace {

using namespace hs;
using namespace hs::bench;
using namespace hs::bench::report;
using namespace hs::test;

// The names of the warnings of a drawn report.
Words warnings(const std::string& page) {
  const std::string mark = "<span class=\"no\">warning</span><span>";
  Words names;
  for (size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at + 1)) {
    const size_t begin = at + mark.size();
    names.push_back(page.substr(begin, page.find('<', begin) - begin));
  }
  return names;
}

bool has_part(const Words& names, const std::string& part) {
  return std::ranges::any_of(names, [&](const std::string& name) { return contains(name, part); });
}

std::string drawn_record(const Json& record) { return drawn(html_report(record)); }

TEST_CASE("the mistakes: none in a good record, and each found in a record that makes it") {
  const std::string good = drawn_record(good_record());
  if (good.empty()) return;
  CHECK(warnings(good) == Words());
  struct Made {
    const char* name;
    void (*apply)(Json& record);
  };
  const Made all[] = {
      {"instead of the time to a target", [](Json& r) { r["config"]["target"] = nullptr; }},
      {"hidden bottleneck", [](Json& r) { r["rows"][3]["stall_share"] = 0.142; }},
      {"same learning rate", [](Json& r) { r["config"]["batch"] = 256; }},
      {"without validation",
       [](Json& r) {
         for (Json& epoch : r["rows"][0]["epochs"]) epoch["test_accuracy"] = nullptr;
       }},
      {"Unstable mixed precision", [](Json& r) { r["rows"][1]["runs"][0]["skipped_steps"] = 200; }},
      {"Keeping nothing", [](Json& r) { r["environment"]["commit"] = "0123456789ab-dirty"; }},
      {"Saving checkpoints too often",
       [](Json& r) {
         r["rows"][1]["saving"] = {{"saved", 20}, {"failed", 0}, {"seconds", 1}, {"share", 0.06}};
       }},
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
    const Words found = warnings(drawn_record(record));
    CHECK(has_part(found, made.name));
    CHECK(found.size() == 1);
    CHECK(contains(good, made.name));  // as one that was avoided
  }
  Json scaled = good_record();
  scaled["config"]["batch"] = 256, scaled["config"]["learning_rate"] = 4e-3;
  CHECK(warnings(drawn_record(scaled)) == Words());
  Json saved = good_record();  // seldom, and only at the end
  saved["rows"][1]["saving"] = {{"saved", 20}, {"failed", 0}, {"seconds", 1}, {"share", 0.04}};
  saved["rows"][2]["saving"] = {{"saved", 1}, {"failed", 0}, {"seconds", 1}, {"share", 0.5}};
  const std::string page = drawn_record(saved);
  CHECK(warnings(page) == Words());
  CHECK(contains(page, "saving held up training for 4 % of its time"));
}

// The warnings of a run's report.
Words warnings_of(const std::string& line, int code) {
  const TemporaryFolder folder;
  const std::string file = (folder / "r.html").string();
  const Ended ended =
      run_bench_line("train --quiet --model mlp --train 256 --test 32 --threads 1 --html " + file + " " + line);
  REQUIRE_MESSAGE(ended.code == code, ended.err);
  return warnings(drawn(folder.path));
}

TEST_CASE("runs that make a mistake are warned of it in their reports") {
  if (drawn_record(good_record()).empty()) return;
  const Words careless = warnings_of("--epochs 1 --batch 128", 0);
  const Words careful = warnings_of("--epochs 1 --batch 128 --lr 0.002 --target accuracy=0.001 --repeat 3", 0);
  for (const char* one : {"instead of the time to a target", "at the same learning rate", "One run"}) {
    CHECK(has_part(careless, one));
    CHECK_FALSE(has_part(careful, one));
  }
  for (const char* one : {"too often", "Unstable", "without validation"}) CHECK_FALSE(has_part(careful, one));
  const TemporaryFolder folder;
  const std::string saving = "--epochs 1 --batch 4 --save " + (folder / "run").string() + " --save-every 1st";
  CHECK(has_part(warnings_of(saving, 0), "Saving checkpoints too often"));
  CHECK(has_part(warnings_of("--epochs 1 --precision f16 --optimizer sgd --lr 1000", 6), "Unstable mixed precision"));
}

TEST_CASE("the checklist is filled in from the run") {
  Json record = good_record();
  std::string page = drawn_record(record);
  if (page.empty()) return;
  const auto answer = [&](const std::string& question) -> std::string {
    for (const std::string word : {"yes", "no", "unknown"}) {
      if (contains(page, fmt::format("<span class=\"{0}\">{0}</span><span>{1}", word, question))) return word;
    }
    return "missing";
  };
  CHECK(answer("Is success defined") == "yes");
  CHECK(answer("Is the cost logged") == "no");
  CHECK(answer("Is mixed precision tried") == "yes");
  CHECK(answer("Is the loader fast") == "unknown");
  CHECK(answer("Is a larger batch warmed") == "yes");
  CHECK(answer("Are several seeds") == "yes");
  CHECK(answer("Is the metric within 0.5 points of the baseline") == "yes");
  CHECK(answer("Is the learning rate warmed") == "no");
  CHECK(answer("Is it numerically stable") == "yes");
  record["config"]["schedule"] = "one-cycle";  // which warms up by itself
  record["config"]["batch"] = 256;
  record["rows"][1]["runs"][0]["skipped_steps"] = 200;
  record["rows"][3]["stall_share"] = 0.142;
  page = drawn_record(record);
  CHECK(answer("Is the learning rate warmed") == "yes");
  CHECK(answer("Is a larger batch warmed") == "yes");
  CHECK(answer("Is it numerically stable") == "no");  // as the list of mistakes says
  CHECK(answer("Is the loader fast") == "no");
  record["config"]["schedule"] = "constant";
  record["rows"][0]["stall_share"] = 0.5;
  record["rows"][3]["stall_share"] = 0.01;
  record["rows"][1]["test_accuracy"] = 0.96;
  record["config"]["target"] = nullptr;
  page = drawn_record(record);
  CHECK(answer("Is success defined") == "no");
  CHECK(answer("Is the loader fast") == "yes");
  CHECK(answer("Is a larger batch warmed") == "no");
  CHECK(answer("Is the metric within 0.5 points of the baseline") == "no");
}

TEST_CASE("the HTML report: well formed, self-contained, with the record inside, drawn with all its parts") {
  Json record = good_record();
  const std::string html = html_report(record);
  check_report(html, record);
  CHECK(contains(html, "prefers-color-scheme: dark"));
  CHECK(contains(html, "<noscript>"));
  record["rows"][0].update(Json::parse(R"({
    "step": {
      "seconds": 0.003,
      "purposes": [{"name": "parameters", "live_bytes": [100, 100, 100]},
                   {"name": "activations", "live_bytes": [0, 500, 20]}],
      "lanes": [{"name": "loader 1", "spans": [{"name": "fill", "start": 0.0, "end": 0.001}]},
                {"name": "compute", "spans": [{"name": "forward", "start": 0.001, "end": 0.003}]}]},
    "scale": {"first": 65536, "changes": [{"after_step": 3, "scale": 32768}], "last": 32768}, "steps": 9,
    "parts": {"wait": 0.5, "upload": 0.0, "forward": null, "backward": 1.5},
    "course": [{"seconds": 1, "loss": 2, "wait": 0.25, "compute": 0.5},
               {"seconds": 2, "loss": null, "wait": 0, "compute": 1}]})"));
  check_report(html_report(record), record);
  const std::string page = drawn(html), full = drawn_record(record);
  if (page.empty()) return;
  for (const char* part : {"What each technique buys", "Accuracy against time", "class=\"mark\"", "class=\"whisker\"",
                           "Common mistakes", "Checklists", "Machine and build"}) {
    CAPTURE(part);
    CHECK(contains(page, part));
  }
  CHECK_FALSE(contains(page, "Memory by purpose"));
  for (const char* part :
       {"Memory by purpose over one step", "Where a step", "Loss scale", "2^16", "Where the seconds went", ">backward<",
        "Utilisation and loss over time", "waiting for data", "d=\"M50.000 50.000L100.000 0.000\""}) {
    CAPTURE(part);
    CHECK(contains(full, part));
  }
}

TEST_CASE("the roofline: a point for each kernel with arithmetic, and a roof of the two peaks") {
  Json record = new_record("profile kernels", Device::cpu);
  record["peaks"] = {{"flops_per_second", 1e11}, {"bytes_per_second", 1e10}};
  const auto call = [](const char* kernel, double flops) -> Json {
    return {{"kernel", kernel},  {"phase", "forward"}, {"variant", "v"}, {"shapes", {"(2)"}}, {"begin_ms", 0},
            {"milliseconds", 1}, {"flops", flops},     {"bytes", 1e6},   {"live_bytes", 1}};
  };
  record["calls"] = {call("gemm", 1e7), call("conv", 1e6), call("copy", 0)};
  CHECK_NOTHROW(check_record(record, "F"));
  const std::string page = drawn_record(record);
  if (page.empty()) return;
  // FLOP per byte from 1 to 10, GFLOP/s from 1 to 100: gemm stands at the ridge, a factor of 10 below it.
  CHECK(contains(page, "d=\"M0.000 50.000L100.000 0.000L100.000 0.000\""));
  CHECK(contains(page,
                 "d=\"M100.000 50.000h0\" style=\"stroke-width:16\"><title>gemm v (2), forward: 1 ms, 10 GFLOP/s<"));
  CHECK(contains(page, "d=\"M0.000 100.000h0\""));
  CHECK_FALSE(contains(page, "<title>copy"));
  CHECK(contains(page, "only move bytes, 1 calls with 33.3 % of the time"));
  record.erase("peaks");
  CHECK_FALSE(contains(drawn_record(record), "Roofline"));
}

TEST_CASE("text of a record is text in the report, and digits that are synthetic are said to be") {
  Json record = good_record();
  const std::string script = "</script><script>alert(\"1\" & '2')</script><!-- <script>";
  record["environment"]["cpu"] = script;
  record["environment"]["device_facts"] = {{"name", "</style><b>"}};
  record["data"]["synthetic"] = true;
  record["rows"][1]["name"] = "<i>\" @shown@ @record@ \u00e9\u202e";
  record["config"][script] = script;
  check_report(html_report(record), record);
  const std::string page = drawn_record(record);
  if (page.empty()) return;
  CHECK_FALSE(contains(page, "<script"));
  CHECK_FALSE(contains(page, "<b>"));
  CHECK_FALSE(contains(page, "<i>"));
  CHECK(contains(page, "&lt;/script&gt;&lt;script&gt;alert(&quot;1&quot; &amp; '2')"));
  CHECK(contains(page, "&lt;i&gt;&quot; @shown@ @record@ \u00e9\\u{202e}"));
  CHECK(contains(page, "synthetic digits"));
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
  check_report(html_report(record), record);
  CHECK(contains(markdown(record), "failed: the loss became nan"));
  CHECK(contains(csv(record), "\"the loss became nan\""));
  const Json head = new_record("info", Device::cpu);
  check_report(html_report(head), head);
  if (const std::string page = drawn_record(record); !page.empty()) {
    CHECK(has_part(warnings(page), "Unstable"));
    CHECK(contains(drawn_record(head), "A measurement"));
  }
}

TEST_CASE("several records are one table and one chart, with the settings that differ, from folders too") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const Json& record) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << to_text(record);
    return (folder / name).string();
  };
  Json first = good_record(), second = first;
  first["command"] = second["command"] = "train";
  first["rows"] = Json::array({row("mnist_cnn", "", times(2, 3))});
  second["rows"] = Json::array({row("mnist_cnn", "", times(1, 3))});
  second["config"]["batch"] = 512;
  second["config"]["kernels"] = {"gemm=naive"};
  second["rows"][0]["target"] = {{"accuracy", 0.96}, {"seconds", 0.5}};
  second["rows"][0]["cost"] = {{"per_run", 2}, {"to_target", 1.5}};
  Json text = first;
  text["config"]["model"] = "char_gpt";
  text["environment"]["cpu"] = "another";
  for (Json& run : text["rows"][0]["runs"]) run["epochs"][1]["test_loss"] = 1.25;
  write("runs/b.json", second), write("runs/a.json", first), write("runs/deep/x.json", first);
  write("runs/kernels.json", new_record("bench gemm", Device::cpu)), write("runs/none.json", Json::object());
  const std::string all = "report " + (folder / "runs").string() + " " + write("text.json", text) + " " +
                          write("techniques.json", good_record());

  const Ended ended = run_successfully(all + " --json " + (folder / "m.json").string());
  const Words passed_over = lines_of(ended.err);
  CHECK(passed_over.size() == 2);
  CHECK(contains(passed_over[0], "kernels.json: is a record of bench gemm without timed rows"));
  CHECK(contains(passed_over[1], "none.json: schema is null"));
  const Json record = read_record(folder / "m.json");
  const Table table = tables_of(record)[0];
  const auto cell = [&](size_t line, const std::string& head) -> std::string {
    const auto found = std::ranges::find(table.heads, head);
    return found == table.heads.end() ? "no column"
                                      : table.lines[line][static_cast<size_t>(found - table.heads.begin())];
  };
  CHECK(table.lines.size() == 7);
  CHECK(cell(0, "run") == "runs/a");
  CHECK(cell(1, "run") == "runs/b");
  CHECK(cell(2, "run") == "text");
  CHECK(cell(6, "run") == "techniques: + accumulation (4 x 16)");
  CHECK(cell(0, "batch") == "64");
  CHECK(cell(1, "batch") == "512");
  CHECK(cell(0, "data") == "mnist");
  CHECK(cell(2, "model") == "char_gpt");
  CHECK(cell(0, "test loss") == "-");
  CHECK(cell(2, "test loss") == "1.250");
  CHECK(cell(1, "to target s") == "0.50");
  CHECK(cell(1, "cost to target") == "1.5");
  CHECK(cell(2, "machine").starts_with("another, "));
  CHECK(cell(4, "precision") == "no column");  // no row has another one
  CHECK(cell(0, "learning_rate") == "no column");
  CHECK(cell(0, "kernel") == "no column");
  CHECK(record["config"]["learning_rate"] == 1e-3);
  CHECK_FALSE(record["config"].contains("batch"));
  CHECK(contains(machine_line(record), "different ones"));
  CHECK_FALSE(contains(machine_line(record), "nan"));

  const auto cells = parse_csv(csv(record));
  CHECK(cells.size() == 8);
  const auto batch = std::ranges::find(cells[0], "settings.batch") - cells[0].begin();
  CHECK(cells[2][static_cast<size_t>(batch)] == "512");
  CHECK_FALSE(contains(csv(first), "settings."));
  CHECK_FALSE(contains(csv(first), ",loss"));
  check_report(html_report(record), record);
  CHECK(run_bench_line(all + " --html -").out == html_report(record));
  CHECK(run_bench_line("report " + (folder / "m.json").string() + " --html -").out == html_report(record));

  const Ended filtered = run_bench_line(all + " --filter runs/b");
  CHECK(contains(filtered.out, "1 run of 1 record\n"));
  CHECK(contains(filtered.out, "runs/b  mnist_cnn  mnist"));
  CHECK_FALSE(contains(filtered.out, "runs/a"));
  const std::string kernels = (folder / "runs/kernels.json").string();
  check_mistakes({
      {"report " + kernels + " " + kernels, 3, "kernels.json: is a record of bench gemm without timed rows"},
      {"report " + (folder / "text.json").string() + " --filter X", 2, "--filter X: no run's name contains it"},
      {"report " + (folder / "text.json").string() + " " + (folder / "runs/none.json").string(), 3, "schema is null"},
      {"report " + (folder / "none").string() + " " + kernels, 4, "none: cannot be opened"},
  });
  std::filesystem::create_directories(folder / "empty");
  check_mistakes({{"report " + (folder / "empty").string(), 3, "empty: has no record with timed rows"}});
}

TEST_CASE("the page of several runs sorts by a click, filters, and hides a line of the chart") {
  Json record = good_record();
  record["command"] = "report";
  record["rows"][2]["seconds"] = 10.5;  // as text before 2
  record["tables"] = Json::array();
  Table table = results_table(record);
  table.lines[3][1] = "-";
  present(record, "runs", {table});
  const std::string html = html_report(record);
  const auto after = [&](const std::string& acts) {
    ::setenv("REPORT_ACTS", acts.c_str(), 1);
    const std::string page = drawn(html);
    ::unsetenv("REPORT_ACTS");
    return page;
  };
  const std::string plain = after("[]");
  if (plain.empty()) return;
  const auto order = [](const std::string& page) {
    std::string seconds;
    for (const std::string& line : lines_of(page)) {
      const size_t end = line.find("</td><td>"), next = line.find("</td>", end + 1);
      if (contains(line, "<td") && !contains(line, "<th") && contains(line, "class=\"left\"")) {
        seconds += line.substr(end + 9, next - end - 9) + " ";
      }
    }
    return seconds;
  };
  CHECK(order(plain) == "2.00 1.00 10.50 - ");
  CHECK(order(after(R"([["click", "seconds"]])")) == "1.00 2.00 10.50 - ");
  CHECK(order(after(R"([["click", "seconds"], ["click", "seconds"]])")) == "10.50 2.00 1.00 - ");
  CHECK(contains(after(R"([["click", "seconds"]])"), "<th aria-sort=\"ascending\"><button type=\"button\""));
  CHECK_FALSE(contains(plain, "visibility=\"hidden\""));
  const std::string off = after(R"([["click", "baseline"]])");
  CHECK(contains(off, "visibility=\"hidden\""));
  CHECK_FALSE(contains(off, "<tr class=\"gone\">"));
  CHECK_FALSE(contains(after(R"([["click", "baseline"], ["click", "baseline"]])"), "visibility=\"hidden\""));
  const std::string filtered = after(R"([["input", "BF16"]])");
  CHECK(contains(filtered, "<tr class=\"gone\"><td class=\"left\">baseline"));
  CHECK_FALSE(contains(filtered, "<tr class=\"gone\"><td class=\"left\">mixed"));
  CHECK(contains(filtered, "visibility=\"hidden\""));
}

}  // namespace
