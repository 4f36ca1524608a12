// The tables of a README, from records: nobody copies a figure by hand.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

// One table of everything that trained mnist_cnn as the headline experiment does (`train` and the peers), one per
// record of `techniques`; each with the machine, the date and the commit below it. Records of other kinds are left out.
std::string readme_tables(const std::vector<Json>& records);

// `document` with `tables` between its two markers. Throws Error (bad_input) that names `source` if they are not there
// once each and in their order.
std::string with_tables(const std::string& document, const std::string& tables, const std::string& source);

}  // namespace hs::bench::report
