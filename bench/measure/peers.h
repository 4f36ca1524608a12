// The statistics of `./bench/run bench peers`: halfstep compared with other engines (peers) on the same training.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::measure {

// The models that the peers' scripts implement too: the keys of MODELS in each.
inline const std::vector<std::string> peer_models = {"mnist_cnn", "mnist_cnn_large", "mlp"};

// The record's rows, from those that bench/peers/run.py measured: each has "name", "engine", "precision", "flags",
// "runs" (its row in the record of each run) and, if a run failed, "error". A peer's row without an error is compared
// with halfstep's fastest row of its precision: it gets the "ratio" of the medians of seconds with its interval,
// "compared_with", and a verdict. Throws Error (bad_input), naming the member, if one has the wrong type.
Json peer_rows(const Json& measured);

}  // namespace hs::bench::measure
