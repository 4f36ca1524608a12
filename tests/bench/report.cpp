// The reports: the README's tables, the HTML page with its warnings and checklists.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "bench/report/checklist.h"
#include "bench/report/html_report.h"
#include "bench/report/presentation.h"
#include "bench/report/readme_tables.h"
#include "bench/report/record.h"
#include "bench/report/svg.h"
#include "engine/error.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/bench_program.h"
#include "tests/support/bench_records.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::bench;
using namespace hs::bench::report;
using hs::test::check_self_contained;
using hs::test::check_well_formed;
using hs::test::contains;
using hs::test::Ended;
using hs::test::good_record;
using hs::test::read_text;
using hs::test::row;
using hs::test::run_bench_line;
using hs::test::TemporaryFolder;
using hs::test::times;
using hs::test::Words;

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
  Json peer_in_bf16 = peer;
  peer_in_bf16["rows"][0]["precision"] = "bf16";
  const std::string tables = readme_tables({train, good_record(), peer, peer_in_bf16});
  CHECK(contains(tables, "mnist_cnn: 4000 training and 1000 test digits, 2 epochs, batch 64, learning rate 0.001"));
  const size_t torch = tables.find("| PyTorch 2.15.0, eager, channels last | 2 | 1.00 | 8000 | 97.00 % | 1 |");
  CHECK(contains(tables, "| PyTorch 2.15.0, bf16, eager, channels last | 2 | 1.00 | 8000 | 97.00 % | 1 |"));
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

// The warnings of a run's report.
Words warnings_of(const std::string& line, int code) {
  const TemporaryFolder folder;
  const std::string file = (folder / "r.html").string();
  const Ended ended =
      run_bench_line("train --quiet --model mlp --train 256 --test 32 --threads 1 --html " + file + " " + line);
  REQUIRE_MESSAGE(ended.code == code, ended.err);
  const std::string html = read_text(file), mark = "<span class=\"no\">warning</span><span>";
  Words names;
  for (size_t at = html.find(mark); at != std::string::npos; at = html.find(mark, at + 1)) {
    const size_t begin = at + mark.size();
    names.push_back(html.substr(begin, html.find('<', begin) - begin));
  }
  return names;
}

TEST_CASE("runs that make a mistake are warned of it in their reports") {
  const auto warned = [](const Words& names, const std::string& part) {
    return std::ranges::any_of(names, [&](const std::string& name) { return contains(name, part); });
  };
  const Words careless = warnings_of("--epochs 1 --batch 128", 0);
  CHECK(warned(careless, "instead of the time to a target"));
  CHECK(warned(careless, "at the same learning rate"));
  CHECK(warned(careless, "One run"));
  const Words careful = warnings_of("--epochs 1 --batch 128 --lr 0.002 --target-accuracy 0.001 --repeat 3", 0);
  CHECK_FALSE(warned(careful, "instead of the time to a target"));
  CHECK_FALSE(warned(careful, "at the same learning rate"));
  CHECK_FALSE(warned(careful, "One run"));
  CHECK_FALSE(warned(careful, "Unstable"));
  CHECK_FALSE(warned(careful, "without validation"));
  CHECK(warned(warnings_of("--epochs 1 --precision f16 --optimizer sgd --lr 1000", 6), "Unstable mixed precision"));
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
