// Trainings in processes of their own, by this program's `train`: for commands that compare whole configurations.
#pragma once

#include "bench/cli/json_file.h"

namespace hs::bench::commands {

// The flags of `train` in a line, words at spaces that are not within quotes, as flag and words. Throws Error (usage)
// for what train itself would refuse before it trains, and for flags that whoever repeats the run decides.
Json train_settings(const std::string& line);

// The record of one run with these settings (cli::Flags::settings()) and a seed; of one too that missed its target.
// Ends as the training does: throws Error with its code and its last words. The caller has called allow_to_finish().
Json train_once(const Json& settings, uint64_t seed);

}  // namespace hs::bench::commands
