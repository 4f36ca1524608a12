// Why one training took longer than another: what two records of `train` say of the phases, kernels and counts of a
// run.
#pragma once

#include <string>

#include "bench/cli/json_file.h"

namespace hs::bench::measure {

// "kernel gemm (blocked) takes 61 % of the difference: 12.1 and 31.0 ms a step; --kernel none -> gemm=simple": what
// accounts for the most of the seconds of a whole run, evaluation included, that the runs of the two records differ by
// (means of the runs), and those of the settings behind it that differ. Throws Error (usage): a record is not of one
// configuration that `train` ran, or has no `parts`; names: of the records.
std::string why(const Json& before, const Json& after, const std::string& before_name, const std::string& after_name);

}  // namespace hs::bench::measure
