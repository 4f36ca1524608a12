// The HTML report: one self-contained file with the record as JSON and the script that draws it.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/report/schema.h"

namespace hs::bench::report {

// bench/report/report.html with two elements filled in: "record" is the record unchanged, "shown" is the terminal's
// view of it. Throws Error (bad_input), naming the member, if one has a type that the script does not expect.
std::string html_report(const Json& record);

// The members that the script reads from a command's records.
std::vector<Rule> drawn_members(const std::string& command);

}  // namespace hs::bench::report
