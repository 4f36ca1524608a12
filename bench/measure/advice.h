// What a record of `techniques` says to do, in sentences: the answer that its tables leave to the reader.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::measure {

// From rows in their order, each with group, train_flags and on_by_default: what of train's flags to add here, what is
// on already, what saves memory and what to leave out, each with the ratio of times to the row before it, which differs
// in this technique alone. `command`: what these flags are added to, "train --model mlp".
std::vector<std::string> advice(const Json& rows, const std::string& command);

// Puts the lines into the record's "answer", and one more if its environment had a load of more than half of the cores
// before the measurement began.
void put_answer(Json& record, std::vector<std::string> lines);

}  // namespace hs::bench::measure
