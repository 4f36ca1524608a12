#include "tests/support/bench_outputs.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "source_dir.h"
#include "tests/support/child_process.h"

namespace hs::test {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// The cells of the record's tables, including heads.
Cells cells_of(const nlohmann::json& record) {
  Cells cells;
  for (const auto& table : record["tables"]) {
    cells.push_back(table["heads"]);
    for (const auto& line : table["lines"]) cells.push_back(line);
  }
  return cells;
}

// The report without the contents of its script elements and style sheet; stores those of JSON elements in `json`.
std::string without_contents(const std::string& html, std::map<std::string, std::string>& json) {
  std::string rest;
  size_t at = 0;
  for (const std::string tag : {"<style>", "<script type=\"application/json\" id=\"record\">",
                                "<script type=\"application/json\" id=\"shown\">", "<script>"}) {
    const size_t begin = html.find(tag, at);
    REQUIRE_MESSAGE(begin != std::string::npos, tag);
    rest += html.substr(at, begin + tag.size() - at);
    at = html.find("</", begin);
    if (tag.starts_with("<script ")) json[tag] = html.substr(begin + tag.size(), at - begin - tag.size());
  }
  return rest + html.substr(at);
}

// Checks that elements are closed in the right order and attributes are quoted.
void check_well_formed(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    if (html.substr(at, 4) == "<!--") {
      at = html.find("-->", at);
      continue;
    }
    const size_t end = html.find('>', at);
    REQUIRE(end != std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.starts_with("!DOCTYPE") || tag.starts_with("meta ")) continue;
    CAPTURE(tag);
    CHECK(std::ranges::count(tag, '"') % 2 == 0);
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (tag.starts_with("/")) {
      REQUIRE_FALSE(open.empty());
      REQUIRE(open.back() == tag.substr(1));
      open.pop_back();
    } else {
      REQUIRE(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz123456") == std::string::npos);
      open.push_back(name);
    }
  }
  CHECK(open.empty());
}

}  // namespace

void check_report(const std::string& html, const nlohmann::json& record) {
  std::map<std::string, std::string> json;
  check_well_formed(without_contents(html, json));
  std::string rest = html;
  for (const auto& [tag, content] : json) {
    CHECK_FALSE(contains(content, "<"));
    rest.erase(rest.find(content), content.size());
    const auto value = nlohmann::json::parse(content);
    if (contains(tag, "\"record\"")) CHECK(value == record);
  }
  for (const char* part :
       {"http:", "https:", "://", "<link", "@import", "url(", "src=", "href=", "onload", "fetch(", "import(",
        "XMLHttpRequest", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    CAPTURE(part);
    CHECK_FALSE(contains(rest, part));
  }
}

std::string drawn(const std::filesystem::path& folder) {
  if (*HALFSTEP_NODE == '\0') {
    MESSAGE("skipped: no Node.js, so what the report's script draws is not checked");
    return "";
  }
  const ChildResult result = run_shell(fmt::format("'{}' '{}/tests/support/render_report.js' '{}' 2>&1", HALFSTEP_NODE,
                                                   HALFSTEP_SOURCE_DIR, folder.string()));
  REQUIRE_MESSAGE(result.status == 0,
                  result.output.substr(result.output.size() - std::min<size_t>(result.output.size(), 2000)));
  return result.output;
}

std::string drawn(const std::string& html) {
  const TemporaryFolder folder;
  std::ofstream(folder / "report.html", std::ios::binary) << html;
  return drawn(folder.path);
}

std::string in_browser(const std::filesystem::path& page, const std::string& after) {
  if (*HALFSTEP_CHROMIUM == '\0') {
    MESSAGE("skipped: no Chromium, so what the page computes is not checked");
    return "";
  }
  const ChildResult result = run_shell(fmt::format(
      "'{}' --headless --no-sandbox --disable-gpu --user-data-dir='{}.profile' --dump-dom 'file://{}{}' 2>/dev/null",
      HALFSTEP_CHROMIUM, page.string(), page.string(), after));
  REQUIRE(result.status == 0);
  return result.output;
}

Cells parse_csv(const std::string& text) {
  Cells cells;
  size_t at = 0;
  while (at < text.size()) {
    auto& line = cells.emplace_back();
    for (bool more = true; more;) {
      std::string& cell = line.emplace_back();
      if (text[at] == '"') {
        for (++at; at < text.size() && (text[at] != '"' || text.substr(at, 2) == "\"\""); ++at) {
          cell += text[at];
          at += text[at] == '"';
        }
        REQUIRE(at++ < text.size());  // the quote that closes it
      } else {
        while (at < text.size() && text[at] != ',' && text[at] != '\r') {
          REQUIRE(text[at] != '"');
          REQUIRE(text[at] != '\n');
          cell += text[at++];
        }
      }
      more = text[at] == ',';
      if (more) ++at;
    }
    REQUIRE(text.substr(at, 2) == "\r\n");
    at += 2;
  }
  return cells;
}

Cells parse_markdown(const std::string& text) {
  Cells cells;
  for (const std::string& line : lines_of(text)) {
    if (!line.starts_with("| ")) continue;
    REQUIRE(line.ends_with(" |"));
    auto& found = cells.emplace_back();
    for (size_t at = 2; at < line.size();) {
      const size_t end = line.find(" |", at);
      found.push_back(replaced(replaced(replaced(line.substr(at, end - at), "\\|", "|"), "\\[", "["), "&lt;", "<"));
      at = end + 3;
    }
  }
  return cells;
}

nlohmann::json check_outputs(const std::string& line, const Surroundings& around) {
  CAPTURE(line);
  const TemporaryFolder folder;
  const std::string base = (folder / "r.").string(), json = base + "json";
  std::string flags;
  for (const std::string kind : {"json", "csv", "md", "html"}) flags += " --" + kind + " " + base + kind;
  const Ended ended = run_bench_line(line + flags, around);
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  CHECK(folder.names() == std::set<std::string>{"r.json", "r.csv", "r.md", "r.html"});
  const nlohmann::json record = nlohmann::json::parse(read_text(json));
  CHECK(record["headline"].get<std::string>().size() > 10);
  CHECK(ended.out.starts_with(record["headline"].get<std::string>() + "\n"));

  const Cells csv = parse_csv(read_text(base + "csv"));
  REQUIRE(csv.size() > 1);
  for (const auto& cells : csv) CHECK(cells.size() == csv[0].size());
  CHECK(std::set<std::string>(csv[0].begin(), csv[0].end()).size() == csv[0].size());
  CHECK(csv[1][0] == "halfstep-bench-1");

  const std::string md = read_text(base + "md"), html = read_text(base + "html"), page = drawn(html);
  check_report(html, record);
  CHECK((page.empty() || contains(page, "<svg")));
  if (record.contains("tables")) {
    const Cells tables = cells_of(record);
    CHECK(parse_markdown(md) == tables);
    for (const auto& cells : tables) {
      const auto shows = [&](const std::string& shown) {
        return std::ranges::all_of(cells, [&](const std::string& cell) { return contains(shown, cell); });
      };
      CHECK(std::ranges::any_of(lines_of(ended.out), shows));
      CHECK((page.empty() ||
             std::ranges::any_of(lines_of(replaced(page, "<tr>", "\n<tr>")), [&](const std::string& shown) {
               return shown.starts_with("<tr>") && shows(replaced(replaced(shown, "&lt;", "<"), "&gt;", ">"));
             })));
    }
    for (const std::string remark : record["remarks"]) {
      CHECK(contains(ended.out, remark));
      CHECK(contains(md, remark));
      CHECK((page.empty() || contains(page, replaced(replaced(remark, "<", "&lt;"), ">", "&gt;"))));
    }
  }
  for (const std::string kind : {"json", "csv", "md", "html"}) {
    CAPTURE(kind);
    const Ended again = run_bench_line("report " + json + " --" + kind + " -");
    CHECK(again.code == 0);
    CHECK(again.out == read_text(base + kind));
  }
  const Ended shown = run_bench_line("report " + json);
  CHECK(shown.code == 0);
  CHECK(contains(shown.out, record["headline"].get<std::string>()));
  return record;
}

}  // namespace hs::test
