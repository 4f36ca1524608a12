// Describes the build, the machine and the process, for records and `info`.
#pragma once

#include "bench/cli/json_file.h"
#include "engine/device.h"
#include "engine/files/output_file.h"

namespace hs::bench::cli {

// The sources and options that this program was built with.
struct BuildInfo {
  const char* version;
  const char* commit;  // ends in "-dirty" if the sources differ from it; "unknown" without git
  const char* build_type;
  const char* compiler;
  const char* flags;
  bool native;                // built for the CPU of the build machine
  const char* cuda;           // "ON (toolkit ..., architectures ...)", "OFF" or "EMULATED ..."
  const char* nvcc;           // its path; empty in a build without it
  const char* architectures;  // that nvcc compiled the library for, as CMake has them: "80-real 90"
  const char* emulator;       // the folder of its headers; empty in a build that is not for it
  const char* plugin_stamp;   // what a plug-in has that was built for this program
};

extern const BuildInfo build_info;

std::string cpu_name();
std::vector<Device> available_devices();
std::string device_names();  // "cpu" or "cpu, cuda"

// Resident memory of this process, current and peak; 0 if /proc does not provide it.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// Makes a folder for this process alone in $TMPDIR, or /tmp. Throws Error (io).
void make_temporary(TemporaryPath& folder);

// A file or folder that belongs to the program, in share/halfstep where it is installed. Throws Error (io).
std::filesystem::path shared_file(const std::string& name);

// In hexadecimal, as records name the contents of a file.
std::string sha256_of(std::string_view bytes);

// The "environment" of a record: machine, build, and the date in UTC.
Json environment(Device device);

}  // namespace hs::bench::cli
