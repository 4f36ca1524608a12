// Records: what the commands write with --json, and what `report` and `compare` read. bench/results/README.md lists the
// members. Within one version members are added and never change their meaning; readers ignore those they do not know.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/inputs.h"
#include "bench/json_file.h"
#include "data/dataset.h"
#include "engine/device.h"

namespace hs::bench {

inline constexpr const char* schema_name = "halfstep-bench-1";
inline constexpr const char* peer_schema_name = "halfstep-peer-1";  // written by bench/peers

// {"schema", "command", "environment"}, to which a command adds its own members.
Json new_record(const std::string& command, Device device);
Json describe_data(const TrainingData& data);  // member "data"
Json describe_data(const DatasetPair& data);

// Throws Error (bad_input) that names `source` and the member if this is no record of a version that this program
// knows: a member is missing, has the wrong type or an impossible value, or contradicts another.
void check_record(const Json& record, const std::string& source);

std::string read_text(const std::filesystem::path& path);  // throws Error (io)

// Throws Error: io (the file cannot be read), bad_input (it is no JSON, or check_record).
Json read_record(const std::filesystem::path& path);

// A member of an object, or null: of a record of an older program, or of a figure that there is not.
const Json& member(const Json& object, const char* name);
double number(const Json& object, const char* name);                // NaN if it is not there or null
std::string text(const Json& object, const char* name);             // empty if it is not there or null
std::vector<double> numbers(const Json& object, const char* name);  // without those that are null

}  // namespace hs::bench
