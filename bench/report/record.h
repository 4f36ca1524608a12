// Records: the files that commands write with --json and that `report` and `compare` read. bench/results/README.md
// lists the members. Within a version, members are added and never change their meaning; readers ignore unknown ones.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/cli/inputs.h"
#include "bench/cli/json_file.h"
#include "engine/device.h"
#include "engine/error.h"

namespace hs::bench::report {

inline constexpr const char* schema_name = "halfstep-bench-1";
inline constexpr const char* peer_schema_name = "halfstep-peer-1";  // written by bench/peers

// {"schema", "command", "environment"}, to which a command adds its own members.
Json new_record(const std::string& command, Device device);
Json describe_data(const cli::TrainingData& data);  // member "data"

// Throws Error (bad_input) that names `source` and the member if this is not a record of a known version: a member is
// missing, has the wrong type or an impossible value, or contradicts another.
void check_record(const Json& record, const std::string& source);

// Reads a regular file of at most JsonLimits::bytes. Throws Error: io, bad_input.
std::string read_text(const std::filesystem::path& path);

// Throws Error: io (the file cannot be read), bad_input (not a regular file, too large, not JSON, or check_record).
Json read_record(const std::filesystem::path& path);

// A member of an object, or null if it is missing: in an older record, or for a value that was not measured.
const Json& member(const Json& object, const char* name);

// The same for a member of a given type. Throw Error (bad_input), naming the member, if it has another type.
double number(const Json& object, const char* name);                // NaN if it is missing or null
std::string text(const Json& object, const char* name);             // empty if it is missing or null
bool flag(const Json& object, const char* name);                    // false if it is missing or null
std::vector<double> numbers(const Json& object, const char* name);  // except those that are null
std::vector<std::string> texts(const Json& object, const char* name);
const Json& part(const Json& object, const char* name);     // an object, or null
const Json& objects(const Json& object, const char* name);  // a list of objects; empty if it is missing or null

// Returns work(). If it throws Error (bad_input), prefixes the message with the record's name.
template <class Work>
auto about(const std::string& source, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    throw error.with_message(source + ": " + error.what());
  }
}

}  // namespace hs::bench::report
