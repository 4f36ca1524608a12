// Records: the files that commands write with --json and that `report` and `compare` read. bench/results/README.md
// lists the members. Within a version, members are added and never change their meaning; readers ignore unknown ones.
#pragma once

#include <filesystem>

#include "bench/cli/inputs.h"
#include "bench/cli/json_file.h"
#include "engine/device.h"

namespace hs::bench::report {

inline constexpr const char* schema_name = "halfstep-bench-1";
inline constexpr const char* peer_schema_name = "halfstep-peer-1";  // written by bench/peers

// {"schema", "command", "environment", "data", "config"}, to which a command adds its own members; without what is
// null.
Json new_record(const std::string& command, Device device, const Json& config = {}, const Json& data = {});
Json describe_data(const cli::TrainingData& data);  // member "data"

// Throws Error (bad_input) that names `source` and the first member that `report` and `compare` read and that is
// missing or of a wrong type: see record.cpp.
void check_record(const Json& record, const std::string& source);

// Reads a regular file of at most JsonLimits::bytes. Throws Error: io, bad_input.
std::string read_text(const std::filesystem::path& path);

// Throws Error: io (the file cannot be read), bad_input (not a regular file, too large, not JSON, or check_record).
Json read_record(const std::filesystem::path& path);

// A member of an object, or null if it is missing: the value was not measured.
const Json& member(const Json& object, const char* name);

// The same for a member of a given type; one of another type is as good as missing.
double number(const Json& object, const char* name);                // NaN
std::string text(const Json& object, const char* name);             // empty
bool flag(const Json& object, const char* name);                    // false
std::vector<double> numbers(const Json& object, const char* name);  // except those that are null
std::vector<std::string> texts(const Json& object, const char* name);
const Json& part(const Json& object, const char* name);     // an object, or null
const Json& objects(const Json& object, const char* name);  // a list of objects, or an empty list

}  // namespace hs::bench::report
