// What a command of halfstep-bench writes: each file must be whole, and all of them must show the same.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/bench_program.h"

namespace hs::test {

// An HTML report that holds this record, unchanged: every element is closed, in its order, nothing is loaded from
// elsewhere, and no text of the record is outside of the JSON.
void check_report(const std::string& html, const nlohmann::json& record);

// What the script of the report puts into the page, by tests/support/render_report.js: fails the test if the script
// fails. Empty where there is no Node.js (which is printed).
std::string drawn(const std::string& html);
// The same of all reports in a folder, one after the other.
std::string drawn(const std::filesystem::path& folder);

using Cells = std::vector<std::vector<std::string>>;
Cells parse_csv(const std::string& text);  // RFC 4180; fails the test if it is not
// The lines of all tables of a page of Markdown, heads included and rules left out.
Cells parse_markdown(const std::string& text);

// Runs the line with --json, --csv, --md and --html, and looks at all four: JSON with tables, or rows of `train`; the
// same cells in Markdown; CSV with as many cells as heads; HTML as above, drawn with every cell. The terminal shows the
// tables too, and `report` makes the same files again. Returns the record.
nlohmann::json check_outputs(const std::string& line, const Surroundings& around = {});

}  // namespace hs::test
