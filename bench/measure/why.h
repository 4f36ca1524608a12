// Why one training took longer than another: what two records of `train` say of the phases, kernels and counts of a
// run.
#pragma once

#include "bench/cli/json_file.h"

namespace hs::bench::measure {

// "kernel gemm (blocked -> simple) takes 61 % of the difference: 12.1 and 31 ms a step; --kernel none -> gemm=simple":
// what accounts for the most of the seconds by which a whole run, evaluation included, is longer or shorter, and which
// of the settings behind it differ. Throws Error (usage) that names a record that is not of `train`, or predates
// `parts`.
std::string why(const Json& before, const Json& after, const std::string& before_name, const std::string& after_name);

}  // namespace hs::bench::measure
