// Describes the machine and the process for records and `info`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/json_file.h"
#include "engine/device.h"

namespace hs::bench::cli {

std::string cpu_name();
std::vector<Device> available_devices();
std::string device_names();  // "cpu" or "cpu, cuda"

// Resident memory of this process, current and peak; 0 if /proc does not provide it.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// In hexadecimal, as records name the contents of a file.
std::string sha256_of(std::string_view bytes);

// The "environment" of a record: machine, build, and the date in UTC.
Json environment(Device device);

}  // namespace hs::bench::cli
