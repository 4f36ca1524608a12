// The statistics of `./bench/run peers`: halfstep and other engines on the same training.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::measure {

// Models that the scripts have too: the keys of MODELS in each.
inline const std::vector<std::string> peer_models = {"mnist_cnn", "mnist_cnn_large", "mlp"};

// Rows of the record, of what bench/peers/run.py measured: for each row "name", "engine", "precision", "flags", "runs"
// (the row in the record of each run) and, if there are no more of those, "error". A peer's row without an error gets
// what it is against halfstep's fastest row of its precision: the "ratio" of the medians of seconds with its interval,
// "compared_with", and a verdict. Throws Error (bad_input) that names a member of another type.
Json peer_rows(const Json& measured);

}  // namespace hs::bench::measure
