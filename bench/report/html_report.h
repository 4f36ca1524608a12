// A record as one HTML file: charts, tables, checklists. It needs nothing else: no script, no address of another place,
// light and dark by what the reader's system prefers, readable from 390 pixels of width.
#pragma once

#include <string>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

// REQUIRES: check_record() accepts it
std::string html_report(const Json& record);

}  // namespace hs::bench::report
