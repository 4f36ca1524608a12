// Records: what is refused, how they survive files, and the tables that every command puts into them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/html_report.h"
#include "bench/outputs.h"
#include "bench/presentation.h"
#include "bench/record.h"
#include "bench/table.h"
#include "engine/error.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/bench_program.h"
#include "tests/support/bench_records.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::bench;
using hs::test::Cells;
using hs::test::check_self_contained;
using hs::test::check_well_formed;
using hs::test::contains;
using hs::test::good_record;
using hs::test::parse_csv;
using hs::test::row;
using hs::test::TemporaryFolder;
using hs::test::times;
namespace fs = std::filesystem;

Json of_table(const Table& table) { return to_json(std::vector<Table>{table}); }

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

}  // namespace
