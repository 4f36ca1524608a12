// Several records together: as one of the command "report", which the terminal, Markdown, CSV and HTML show, and as the
// tables of a README.
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

// The tables of a README, so that no number is copied by hand. One table of all runs that trained mnist_cnn as the
// headline experiment does (`train` and the peers), and one per record of `techniques`; each with the machine, the date
// and the commit below it. Ignores records of other kinds.
std::string readme_tables(const std::vector<Json>& records);

// `document` with `tables` between its two markers. Throws Error (bad_input) that names `source` unless each marker
// occurs exactly once, in order.
std::string with_tables(const std::string& document, const std::string& tables, const std::string& source);

}  // namespace hs::bench::report
