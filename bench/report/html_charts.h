// The charts of the commands that do not train for time: kernels, memory, loader, scaler, explain, doctor.
#pragma once

#include <string>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

// Sections of the report, drawn from whatever the record holds; empty for a command that has none.
// REQUIRES: check_record() accepts it
std::string command_charts(const Json& record);

// A part of the report with its heading; nothing if there is nothing inside.
std::string section(const std::string& title, const std::string& inside);

}  // namespace hs::bench::report
