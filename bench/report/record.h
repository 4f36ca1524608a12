// Records: what the commands write with --json, and what `report` and `compare` read. bench/results/README.md lists the
// members. Within one version members are added and never change their meaning; readers ignore those they do not know.
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

// Throws Error (bad_input) that names `source` and the member if this is no record of a version that this program
// knows: a member is missing, has the wrong type or an impossible value, or contradicts another.
void check_record(const Json& record, const std::string& source);

// A regular file of at most JsonLimits::bytes. Throws Error: io, bad_input.
std::string read_text(const std::filesystem::path& path);

// Throws Error: io (the file cannot be read), bad_input (not a regular file, too large, no JSON, or check_record).
Json read_record(const std::filesystem::path& path);

// A member of an object, or null if it is missing: in an older record, or for a value that was not measured.
const Json& member(const Json& object, const char* name);

// The same where a type is expected. Throw Error (bad_input) that names a member of another type.
double number(const Json& object, const char* name);                // NaN if it is missing or null
std::string text(const Json& object, const char* name);             // empty if it is missing or null
bool flag(const Json& object, const char* name);                    // false if it is missing or null
std::vector<double> numbers(const Json& object, const char* name);  // without those that are null
std::vector<std::string> texts(const Json& object, const char* name);
const Json& part(const Json& object, const char* name);     // an object, or null
const Json& objects(const Json& object, const char* name);  // a list of objects; empty if it is missing or null

// What `work` returns. A wrong member that it meets is reported with the name of its record.
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
