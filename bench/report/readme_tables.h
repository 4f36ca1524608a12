// The tables of a README, generated from records, so that no number is copied by hand.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

// One table of all runs that trained mnist_cnn as the headline experiment does (`train` and the peers), and one per
// record of `techniques`; each with the machine, the date and the commit below it. Ignores records of other kinds.
std::string readme_tables(const std::vector<Json>& records);

// `document` with `tables` between its two markers. Throws Error (bad_input) that names `source` unless each marker
// occurs exactly once, in order.
std::string with_tables(const std::string& document, const std::string& tables, const std::string& source);

}  // namespace hs::bench::report
