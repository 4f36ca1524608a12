// Records: what is refused, how they survive files, and the tables that every command puts into them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "bench/measure/comparison.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "bench/report/table.h"
#include "engine/error.h"
#include "engine/printable.h"
#include "source_dir.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/bench_records.h"

namespace {

using namespace hs;
using namespace hs::bench;
using namespace hs::bench::measure;
using namespace hs::bench::report;
using namespace hs::test;

Json of_table(const Table& table) { return report::to_json(std::vector<Table>{table}); }

TEST_CASE("a record survives the way through a file") {
  const TemporaryFolder folder;
  const Json record = good_record();
  std::ofstream(folder / "record.json") << to_text(record);
  CHECK(read_record(folder / "record.json") == record);
  const Json lists = {{"a", 1}, {"b", {{{"c", 2}}}}, {"d", {3, 4}}, {"e", 5}, {"f", std::string(100, 'x')}};
  CHECK(to_text({{"rows", {lists}}, {"g", 6}}) == R"({
  "rows": [
    {
      "a": 1,
      "b": [
        {"c": 2}
      ],
      "d": [3, 4], "e": 5,
      "f": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    }
  ],
  "g": 6
}
)");
}

TEST_CASE("what is no record is refused by name") {
  struct Damage {
    void (*apply)(Json& record);
    const char* message;
  };
  const Damage damages[] = {
      {[](Json& r) { r["environment"]["device"] = nullptr; }, "FILE: environment.device is null, expected string"},
      {[](Json& r) { r["rows"][1].erase("name"); }, "FILE: rows[1].name is missing"},
      {[](Json& r) { r["rows"][0]["runs"][1]["epochs"][0]["seconds"] = ""; }, "rows[0].runs[1].epochs[0].seconds is"},
      {[](Json& r) {
         r["rows"][3]["parts"] = {{"wait", "x"}};
       },
       "FILE: rows[3].parts.wait is \"x\", expected number"},
      {[](Json& r) { r["tables"] = Json::object(); }, "FILE: tables is {}, expected array"},
  };
  for (const Damage& damage : damages) {
    Json record = good_record();
    damage.apply(record);
    CHECK_THROWS_WITH_AS(check_record(record, "FILE"), doctest::Contains(damage.message), Error);
  }
  Json newer = good_record();
  newer["a member of tomorrow"] = 1;
  newer["rows"][0]["another"] = "x";
  newer["rows"][0]["seconds"] = newer["rows"][0]["group"] = nullptr;  // not measured, and as good as missing
  newer["tables"] = of_table({{"a", "b"}, {{"1"}, {"1", "2", "3"}}});
  CHECK_NOTHROW(check_record(newer, "FILE"));
  CHECK(contains(markdown(newer), "| 1 |  |\n| 1 | 2 |\n"));
}

TEST_CASE("a figure is a member of the record, a cell of the table, or both") {
  report::Rows rows;
  rows.add({{"seconds", 0.0125, "ms", "{:.1f}", 1e3}, {"", "yes", "shown"}, {"hidden", 3}, {"count", 4, "count"}});
  rows.add({{"seconds", NAN, "ms", "{:.1f}", 1e3}, {"", Json(), "shown"}, {"hidden", Json()}, {"count", 5, "count"}});
  CHECK(rows.json.dump() == R"([{"seconds":0.0125,"hidden":3,"count":4},{"seconds":null,"hidden":null,"count":5}])");
  CHECK(to_text(rows.table) == "ms    shown  count\n12.5    yes      4\n-                5\n");
}

TEST_CASE("tables: text, Markdown and CSV have the same rows, and cells cannot break them") {
  Json record = good_record();
  record["rows"][0]["name"] = "a|b \"c\"<";
  const Table table = results_table(record);
  CHECK(table.lines.size() == 4);
  for (const auto& line : table.lines) CHECK(line.size() == table.heads.size());
  CHECK(std::ranges::find(table.heads, "stall") == table.heads.end());  // nobody measured it
  CHECK(table.lines[1].back() == "faster");
  CHECK(table.lines[2].back().starts_with("cannot tell: "));
  CHECK(table.lines[2].back().ends_with("; -50 % bytes"));
  CHECK(table.lines[3][0] == "+ accumulation (4 x 16)");

  const std::string md = markdown(record);
  CHECK(contains(md, "| a\\|b \"c\"&lt; | 2.00 |"));
  CHECK(contains(md, "No row for graph: cpu captures no graphs."));
  CHECK(
      contains(md, "Made to save memory, to be judged by peak bytes and not by seconds: accumulation (4 x 16) -50 %."));
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
  Json record = new_record("profile", Device::cpu);
  record["environment"]["cpu"] = "a <b> & \"c\" | d, 'e'";
  record["data"] = {{"name", "<i>|&\""}, {"synthetic", false}};
  record["rows"] = {{{"name", "a \"b\", c\nd"}, {"milliseconds", 1.5}, {"peak", {{"bytes", 3}, {"of", nullptr}}}},
                    {{"name", "<td>"}, {"milliseconds", std::nan("")}, {"list", {1, 2}}, {"late", true}}};
  record["verdict"] = {{"name", "<u>"}, {"reason", "&"}, {"advice", "\""}};
  present(record, "a <headline> | b",
          {{{"part", "what", "ms"}, {{"<td>|", "a&b", "1.5"}, {"x", "nano", "-"}}, "title <t>", 2}}, {"one <s> | two"});
  return record;
}

TEST_CASE("tables of a record: escaped in Markdown, aligned on the terminal, rows as CSV") {
  Json record = table_record();
  CHECK_NOTHROW(check_record(record, "F"));
  record["environment"]["cpu_features"] = {"avx2", "avx512f", "amx_bf16"};
  const std::string md = markdown(record);
  CHECK(contains(md, "a &lt;headline> \\| b. a &lt;b> & \"c\" \\| d, 'e' with AMX, "));
  CHECK(contains(md, "\n**title &lt;t>**\n\n| part | what | ms |\n|---|---|---:|\n| &lt;td>\\| | a&b | 1.5 |\n"));
  CHECK(contains(md, "\none &lt;s> \\| two\n"));

  const std::string terminal = to_terminal(record);
  CHECK(terminal ==
        "a <headline> | b\n\n<i>|&\"  title <t>\ndata    part   what   ms\n<i>|&\"  <td>|  a&b   1.5\n"
        "<i>|&\"  x      nano    -\n\n<i>|&\"  one <s> | two\n");

  const std::string lines = csv(Json::parse(to_text(record)));
  CHECK(lines.starts_with("schema,command,data,device,date,commit,name,milliseconds,peak.bytes,peak.of,late\r\n"));
  CHECK(contains(lines, ",\"<i>|&\"\"\","));
  CHECK(contains(lines, ",\"a \"\"b\"\", c\\x0ad\",1.5,3,,\r\n"));
  CHECK(lines.ends_with(",\"<td>\",,,,true\r\n"));
  const Cells cells = parse_csv(lines);
  REQUIRE(cells.size() == 3);
  for (const auto& line : cells) CHECK(line.size() == cells[0].size());
  CHECK(cells[1][6] == "a \"b\", c\\x0ad");
}

TEST_CASE("what is written has no NaN and is UTF-8, and a record with a wrong member is not written") {
  const TemporaryFolder folder;
  const auto write = [&](const Json& record) {
    cli::Flags flags;
    Outputs outputs;
    outputs.declare(flags);
    flags.read({"--json", folder / "r.json", "--csv", folder / "r.csv", "--html", folder / "r.html"});
    outputs.open();
    outputs.write(record);
  };
  Json broken = table_record();
  broken["tables"][0]["lines"][0].push_back(4);
  CHECK_THROWS_WITH_AS(write(broken), doctest::Contains("the record: tables[0].lines[0][3] is 4"), Error);
  CHECK(folder.names().empty());
  Json record = table_record();
  record["environment"]["cpu"] = "a\xff";
  write(record);
  const Json read = read_record(folder / "r.json");
  CHECK(read["rows"][1]["milliseconds"].is_null());
  CHECK(hs::test::read_text(folder / "r.csv") == csv(read));
  CHECK(hs::test::read_text(folder / "r.html") == html_report(read));
  CHECK(contains(html_report(read), "a\\ufffd"));
}

TEST_CASE("a page of what is known so far: once a second, then as a whole or with the reason; no stream has one") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "d" / "r.html";
  std::filesystem::create_directory(file.parent_path());
  const auto open = [](Outputs& outputs, const std::string& path) {
    cli::Flags flags;
    outputs.declare(flags);
    flags.read({"--html", path});
    outputs.open();
  };
  Outputs outputs, stream;
  open(outputs, file);
  open(stream, "/dev/null");
  CHECK_FALSE(stream.page_is_due());
  outputs.show_failure("before there is a page");
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(outputs.page_is_due());
  outputs.show_running(table_record());
  CHECK(contains(hs::test::read_text(file), "http-equiv=\"refresh\""));
  CHECK_FALSE(outputs.page_is_due());
  outputs.show_failure("the disk is <full>");
  const std::string failed = hs::test::read_text(file);
  CHECK_FALSE(contains(failed, "http-equiv=\"refresh\""));
  CHECK(contains(failed, "the disk is \\u003cfull>"));
  std::filesystem::remove_all(file.parent_path());
  CHECK_NOTHROW(outputs.show_running(table_record()));
  std::this_thread::sleep_for(std::chrono::milliseconds(1001));
  CHECK_FALSE(outputs.page_is_due());  // one notice is enough
  std::filesystem::create_directory(file.parent_path());
  outputs.write(table_record());
  outputs.show_failure("after the last page");
  CHECK_FALSE(contains(hs::test::read_text(file), "after the last page"));
}

TEST_CASE("every committed record is shown in all ways") {
  const std::map<std::string, const char*> parts = {{"profile memory", "Peak bytes"},
                                                    {"bench conv", "The ladder of each kernel"},
                                                    {"bench loader", "Loading and computing"},
                                                    {"bench f16", "Gradients that are zero"}};
  std::set<std::string> seen;
  for (const auto& entry : fs::recursive_directory_iterator(HALFSTEP_SOURCE_DIR "/bench/results")) {
    if (entry.path().extension() != ".json" || contains(entry.path().string(), "/results/experiments/")) continue;
    INFO(entry.path().string());
    const Json record = read_record(entry.path());
    const std::string html = html_report(record), command = text(record, "command");
    const std::string page = drawn(html);
    check_report(html, record);
    CHECK((page.empty() || contains(page, "<td>")));
    const Cells rows = parse_csv(csv(record));
    REQUIRE(rows.size() > 1);
    for (const auto& line : rows) CHECK(line.size() == rows[0].size());
    const Cells shown = parse_markdown(markdown(record));
    CHECK(shown.size() > 1);
    if (!parts.contains(command)) continue;
    seen.insert(command);
    CHECK((page.empty() || (contains(page, parts.at(command)) && contains(page, "<svg"))));
  }
  CHECK(seen.size() == parts.size());
  const Json curve = read_record(HALFSTEP_SOURCE_DIR "/bench/results/cpu/memory-deep_cnn.json");
  const std::string page = drawn(html_report(curve));
  for (const char* part : {"Memory by purpose over one step", "Bytes against time"}) {
    CHECK((page.empty() || contains(page, part)));
  }
}

// A list or an object is replaced as well as each of its members. Every member of the first and the last item of a
// list.
void for_each_member(Json& value, const std::string& place, const std::function<void(Json&, const std::string&)>& use) {
  use(value, place);
  if (value.is_object()) {
    for (auto& [name, item] : value.items()) for_each_member(item, place + "." + name, use);
  } else if (value.is_array() && !value.empty()) {
    for_each_member(value.front(), place + "[]", use);
    if (value.size() > 1) for_each_member(value.back(), place + "[]", use);
  }
}

TEST_CASE("whatever a member of a record is, it is shown or refused by name") {
  const Json values =
      Json::parse(R"([null, true, -1, 1e308, 5e-324, "", "x", [], {}, [1, "x", null], [{}], {"a": {"b": [1]}}])");
  constexpr size_t stride = 3;  // each member gets a third of the values, the next one another third: all take a minute
  std::map<std::string, int> times_seen;  // of the places in records of a command
  int shown = 0, refused = 0;
  const TemporaryFolder pages;  // some of those shown; each must be drawn
  for (const char* part : {"cpu", "target"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(HALFSTEP_SOURCE_DIR "/bench/results") / part)) {
      if (entry.path().extension() != ".json") continue;
      Json record = read_record(entry.path());
      // The ends of long lists are enough, and drawing all of them takes long.
      for_each_member(record, "", [](Json& value, const std::string&) {
        if (value.is_array() && value.size() > 4 && value[0].is_object())
          value.erase(value.begin() + 2, value.end() - 2);
      });
      const Json whole = record;
      const std::string command = text(record, "command");
      for_each_member(record, command, [&](Json& member, const std::string& place) {
        if (++times_seen[place] > 1) return;
        const Json before = member;
        for (size_t i = times_seen.size() % stride; i < values.size(); i += stride) {
          const Json& value = values[i];
          member = value;
          CAPTURE(place);
          CAPTURE(value.dump());
          try {
            const Json read = parse(to_text(record), "F");
            check_record(read, "F");
            const std::string page = html_report(read);
            CHECK(page.ends_with("</html>\n"));
            csv(read);
            markdown(read);
            to_terminal(read);
            compare(train_flags(), read, whole, "F", "G");
            compare(train_flags(), whole, read, "F", "G");
            if (++shown % 10 == 0) std::ofstream(pages / std::to_string(shown)) << page;
          } catch (const Error& error) {
            CHECK(error.code() == ExitCode::bad_input);
            CHECK_FALSE(std::string(error.what()).empty());
            ++refused;
          }
        }
        member = before;
      });
    }
  }
  MESSAGE(times_seen.size(), " members, ", shown, " records shown and ", refused, " refused");
  CHECK(shown > 1000);
  CHECK(refused > 1000);
  drawn(pages.path);
}

TEST_CASE("what takes as much stack, memory or time as it may is read (what takes more: fault_table.cpp)") {
  const std::string nested = std::string(JsonLimits::depth, '[') + std::string(JsonLimits::depth, ']');
  CHECK_NOTHROW(parse(nested, "F"));
  CHECK_THROWS_WITH_AS(parse("[" + nested + "]", "F"), "F: lists and objects are nested more than 32 deep", Error);
  std::string wide = "{\"\":0";
  for (size_t i = 1; i < JsonLimits::members; ++i) wide += fmt::format(",\"{}\":0", i);
  CHECK_NOTHROW(parse("[" + wide + "}," + wide + "}]", "F"));  // two objects side by side have their own members
  CHECK_THROWS_WITH_AS(parse(wide + ",\"x\":0}", "F"), "F: an object has more than 1000 members", Error);
}

TEST_CASE("control characters, wrong bytes and hidden characters of a record are shown as escapes, everywhere") {
  struct Shown {
    const char *text, *escaped;
  };
  const Shown all[] = {{"a\x1b[31mb", "a\\x1b[31mb"},
                       {"\a\b\t\r\n\x7f", "\\x07\\x08\\x09\\x0d\\x0a\\x7f"},
                       {"\xc2\x9b", "\\x9b"},                         // CSI in one character
                       {"\xe2\x80\xae", "\\u{202e}"},                 // turns the direction of writing
                       {"\xe2\x80\x8b", "\\u{200b}"},                 // no width
                       {"\x9b\xff\xc0\xaf", "\\x9b\\xff\\xc0\\xaf"},  // not UTF-8
                       {"\xe2\x82", "\\xe2\\x82"},
                       {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                       {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"}};
  for (const Shown& one : all) {
    CHECK(printable_text(one.text) == one.escaped);
    CHECK(printable_text(one.escaped) == one.escaped);
  }
  CHECK(printable_text(std::string_view("\0", 1)) == "\\x00");
  CHECK(as_utf8("\xe2\x82\xac\xe2\x82z\n\xff") == "\u20ac\uFFFD\uFFFDz\n\uFFFD");

  const std::string evil = "x\x1b]0;\a\x7f\xc2\x85\xe2\x80\xae" + std::string(1, '\0');
  // Every text and every name of a member.
  const std::function<Json(const Json&)> spoilt = [&](const Json& value) -> Json {
    if (value.is_string()) return value.get<std::string>() + evil;
    Json changed = value;
    if (value.is_structured()) std::ranges::transform(value, changed.begin(), spoilt);
    return changed;
  };
  Json record = spoilt(read_record(HALFSTEP_SOURCE_DIR "/bench/results/cpu/techniques.json"));
  record["schema"] = schema_name, record["command"] = "techniques";
  record["config"][evil] = record["rows"][0][evil] = evil;
  const TemporaryFolder folder;
  std::ofstream(folder / "r.json") << to_text(record);
  const Json read = read_record(folder / "r.json");
  CHECK(read == record);  // nothing is lost in JSON
  const std::string terminal = run_bench_line("report " + (folder / "r.json").string()).out;
  CHECK(contains(terminal, "\\x1b]0;\\x07\\x7f\\x85\\u{202e}\\x00"));
  for (const std::string& shown : {to_text(read), terminal, markdown(read), html_report(read), csv(read)}) {
    const auto wrong = std::ranges::find_if(
        shown, [&](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r') || c == 0x7f; });
    CHECK_MESSAGE(wrong == shown.end(), shown.substr(static_cast<size_t>(wrong - shown.begin()), 20));
    CHECK_FALSE(contains(shown, "\xc2\x85"));
    CHECK_FALSE(contains(shown, "\xe2\x80\xae"));
  }
}

TEST_CASE("a cell is no formula, no link and no comment") {
  CHECK(csv_cell("=1+1") == "\"'=1+1\"");
  CHECK(csv_cell("+ dropout") == "\"'+ dropout\"");
  CHECK(csv_cell("-x") == "\"'-x\"");
  CHECK(csv_cell("@SUM(A1)") == "\"'@SUM(A1)\"");
  CHECK(csv_cell("-2.5") == "\"-2.5\"");
  CHECK(csv_cell("a=1") == "\"a=1\"");
  CHECK(csv_cell(-2.5) == "-2.5");
  CHECK(csv_cell(Json::array({1, 2})) == "\"[1,2]\"");
  CHECK(csv_cell(Json{{"a", "b"}}) == "\"{\"\"a\"\":\"\"b\"\"}\"");
  Json record = new_record("profile", Device::cpu);
  record["rows"] = {{{"=cmd", -1}, {"name", "@x"}}};
  CHECK(contains(csv(record), ",\"'=cmd\",name\r\n"));
  CHECK(contains(csv(record), ",-1,\"'@x\"\r\n"));

  CHECK(markdown_cell("[a](javascript:b)") == "\\[a](javascript:b)");
  CHECK(markdown_cell("![a](b)") == "!\\[a](b)");
  CHECK(markdown_cell("a\\|b") == "a\\\\\\|b");
  CHECK(markdown_cell("<javascript:a>") == "&lt;javascript:a>");
  CHECK(markdown_cell("<!-- filled -->") == "&lt;!-- filled -->");
}

}  // namespace
