// What a command of halfstep-bench writes: each file must be whole, and all of them must show the same.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/bench_program.h"

namespace hs::test {

// Every element of the page is closed, in its order, and attributes are quoted.
void check_well_formed(const std::string& html);
// Nothing in the page is loaded from elsewhere or run, and no figure in it is NaN.
void check_self_contained(const std::string& html);

using Cells = std::vector<std::vector<std::string>>;
Cells parse_csv(const std::string& text);  // RFC 4180; fails the test if it is not
// The lines of all tables of a page of Markdown, heads included and rules left out.
Cells parse_markdown(const std::string& text);

// Runs the line with --json, --csv, --md and --html, and looks at all four: JSON with tables, or rows of `train`; the
// same cells in Markdown; CSV with as many cells as heads; HTML as above, with every cell. The terminal shows the
// tables too, and `report` makes the same files again. Returns the record.
nlohmann::json check_outputs(const std::string& line, const Surroundings& around = {});

}  // namespace hs::test
