// What `halfstep-bench loader` shows of its record, whose members bench/commands/loader_command.cpp describes.
#pragma once

#include <vector>

#include "bench/cli/json_file.h"
#include "bench/report/table.h"

namespace hs::bench::report {

inline constexpr double no_stall = 0.01;  // a share of the time below which a step does not wait

std::vector<Table> loader_tables(const Json& record);

}  // namespace hs::bench::report
