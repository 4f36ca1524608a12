// Several records together, as one of the command "report", which the terminal, Markdown, CSV and HTML show.
#pragma once

#include "bench/cli/json_file.h"

namespace hs::bench::report {

struct NamedRecord {
  std::string name;
  Json record;  // that check_record() has seen
};

bool has_timed_rows(const Json& record);

// The timed rows whose name contains `filter`, each named by its record, and with its "settings". "config" and
// "environment" have what is the same in all. Throws Error (usage) if no row is left.
Json merged(const std::vector<NamedRecord>& records, const std::string& filter);

}  // namespace hs::bench::report
