// The machine and the process, as records and `info` show them.
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

// Physical memory of this process, now and at its largest; 0 where /proc does not say.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// The "environment" of a record: machine, build, and the date in UTC.
Json environment(Device device);

}  // namespace hs::bench::cli
