#include "tests/support/bench_outputs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/support/temporary_folder.h"

namespace hs::test {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// The cells of the record's tables, heads included.
Cells cells_of(const nlohmann::json& record) {
  Cells cells;
  for (const auto& table : record["tables"]) {
    cells.push_back(table["heads"]);
    for (const auto& line : table["lines"]) cells.push_back(line);
  }
  return cells;
}

}  // namespace

void check_well_formed(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    REQUIRE(end != std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.starts_with("!DOCTYPE") || tag.starts_with("meta ") || tag.ends_with("/")) continue;
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
    if (name == "style") at = html.find("</style>", at) - 1;
  }
  CHECK(open.empty());
}

void check_self_contained(const std::string& html) {
  for (const char* part : {"http:", "https:", "//", "<script", "<link", "@import", "url(", "src=", "href=", "onload"}) {
    CAPTURE(part);
    CHECK_FALSE(contains(html, part));
  }
  CHECK_FALSE(contains(html, "nan"));
  CHECK_FALSE(contains(html, "inf\""));
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

  const std::string md = read_text(base + "md"), html = read_text(base + "html");
  check_well_formed(html);
  check_self_contained(html);
  if (record.contains("tables")) {
    const Cells tables = cells_of(record);
    CHECK(parse_markdown(md) == tables);
    for (const auto& cells : tables) {
      const auto shows = [&](const std::string& shown) {
        return std::ranges::all_of(cells, [&](const std::string& cell) { return contains(shown, cell); });
      };
      CHECK(std::ranges::any_of(lines_of(ended.out), shows));
      CHECK(std::ranges::any_of(lines_of(html), [&](const std::string& shown) {
        return shown.starts_with("<tr>") && shows(replaced(replaced(shown, "&lt;", "<"), "&gt;", ">"));
      }));
    }
    for (const std::string remark : record["remarks"]) {
      CHECK(contains(ended.out, remark));
      CHECK(contains(md, remark));
      CHECK(contains(html, replaced(replaced(remark, "<", "&lt;"), ">", "&gt;")));
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
