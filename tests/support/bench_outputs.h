// Checks the files that a command of halfstep-bench writes: each must be complete, and all must show the same results.
#pragma once

#include "tests/support/bench_program.h"

namespace hs::test {

// Checks that an HTML report contains this record, unchanged: elements are closed in the right order, nothing is loaded
// from elsewhere, and no text of the record is outside the JSON.
void check_report(const std::string& html, const nlohmann::json& record);

// Runs the report's script with tests/support/render_report.js and returns what it adds to the page. Fails the test if
// the script fails. Without Node.js, prints so and returns an empty string.
std::string drawn(const std::string& html);
// The same for all reports in a folder, concatenated.
std::string drawn(const std::filesystem::path& folder);
// What Chromium makes of a page, by its elements, whose address ends with `after`. Without Chromium, prints so and
// returns an empty string.
std::string in_browser(const std::filesystem::path& page, const std::string& after);

using Cells = std::vector<std::vector<std::string>>;
Cells parse_csv(const std::string& text);  // RFC 4180; fails the test if it is not
// The lines of all tables of a Markdown page, including heads but not the rules below them.
Cells parse_markdown(const std::string& text);

// Runs the line with --json, --csv, --md and --html, and checks all four: JSON with tables, or rows of `train`; the
// same cells in Markdown; CSV with as many cells as heads; HTML as above, drawn with every cell. The terminal must show
// the tables too, and `report` must write the same files again. Returns the record.
nlohmann::json check_outputs(const std::string& line, const Surroundings& around = {});

}  // namespace hs::test
