// The HTML report: one file that needs no other, with the record inside it as JSON and the script that draws it.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/report/schema.h"

namespace hs::bench::report {

// bench/report/report.html with two elements filled in: "record" is the record unchanged, "shown" what the terminal
// shows of it. Throws Error (bad_input) that names a member of another type than the script expects.
std::string html_report(const Json& record);

// What the script reads of the records of a command.
std::vector<Rule> drawn_members(const std::string& command);

}  // namespace hs::bench::report
