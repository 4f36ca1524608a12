// The HTML report: one self-contained file with the record as JSON and the script that draws it.
#pragma once

#include <string>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

// bench/report/report.html with two elements filled in: "record" is the record unchanged, "shown" is the terminal's
// view of it. The record is one that check_record() has seen.
std::string html_report(const Json& record);

}  // namespace hs::bench::report
