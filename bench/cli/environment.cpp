// bench/CMakeLists.txt sets compile definitions for this file only.
#include "bench/cli/environment.h"

#include <fmt/ranges.h>
#include <halfstep/plugin_stamp.h>
#include <openssl/evp.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "commit.h"
#include "engine/check.h"
#include "engine/cpu_features.h"
#include "engine/memory_limit.h"
#include "engine/parallel.h"

namespace hs::bench::cli {
namespace {

// The value after `key` and `separator` on the first line that starts with the key; empty if there is none.
std::string field(const char* file, std::string_view key, char separator) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(separator);
    if (!line.starts_with(key) || at == std::string::npos) continue;
    // "model name", not "model": only whitespace is allowed between the key and the separator.
    if (line.find_first_not_of(" \t", key.size()) != at) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end + 1 - begin);
  }
  return "";
}

int64_t status_bytes(std::string_view key) {
  const std::string value = field("/proc/self/status", key, ':');  // "12345 kB"
  int64_t kibibytes = 0;
  std::from_chars(value.data(), value.data() + value.size(), kibibytes);
  return kibibytes * 1024;
}

std::string operating_system() {
  utsname kernel{};
  uname(&kernel);
  const std::string distribution = field("/etc/os-release", "PRETTY_NAME", '=');
  return fmt::format("{}{}{} {} {}", distribution, distribution.empty() ? "" : ", ", kernel.sysname, kernel.release,
                     kernel.machine);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  return {text, std::strftime(text, sizeof text, "%FT%TZ", gmtime_r(&now, &parts))};
}

// How many tasks ran at a time over the last minute, or run now if those are fewer: a build that has just ended is no
// load any more. On a busy machine, threads that synchronise are many times slower.
double load_average() {
  double load = NAN;
  getloadavg(&load, 1);
  if (!(load > cores() / 2.0)) return load;  // nobody calls that busy
  constexpr int samples = 10;
  double running = 0;
  for (int i = 0; i < samples; ++i) {
    std::ifstream file("/proc/loadavg");
    std::string skipped;
    int tasks = 0;  // of the fourth field, "3/140": three can run, one of which reads this
    if (!(file >> skipped >> skipped >> skipped >> tasks)) return load;
    running += tasks - 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return std::min(load, running / samples);
}

}  // namespace

const BuildInfo build_info = {
    .version = BUILD_VERSION,
    .commit = BUILD_COMMIT,
    .build_type = BUILD_TYPE,
    .compiler = BUILD_COMPILER,
    .flags = BUILD_FLAGS,
    .native = BUILD_NATIVE != 0,
    .cuda = BUILD_CUDA,
    .nvcc = BUILD_NVCC,
    .architectures = BUILD_ARCHITECTURES,
    .emulator = BUILD_EMULATOR,
    .plugin_stamp = HALFSTEP_PLUGIN_STAMP,
};

std::string cpu_name() {
  std::string name = field("/proc/cpuinfo", "model name", ':');
  if (!name.empty()) return name;
  utsname kernel{};
  uname(&kernel);
  return kernel.machine;
}

std::vector<Device> available_devices() {
  std::vector<Device> devices;
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (is_available(device)) devices.push_back(device);
  }
  return devices;
}

std::string device_names() {
  return fmt::format("{}", fmt::join(mapped(available_devices(), [](Device device) { return name(device); }), ", "));
}

// Not getrusage(): its maximum survives exec, so it may come from the program that started this one.
int64_t resident_bytes() { return status_bytes("VmRSS"); }
int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

void make_temporary(TemporaryPath& folder) {
  const char* given = std::getenv("TMPDIR");
  const std::filesystem::path in = given != nullptr && *given != '\0' ? given : "/tmp";
  if (folder.make_folder(in, 0700)) return;
  fail(ExitCode::io, "{}: no temporary folder can be made in it: {}; set TMPDIR", printable(in), std::strerror(errno));
}

std::filesystem::path shared_file(const std::string& name) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path file = (program.parent_path() / BUILD_SHARE / name).lexically_normal();
  if (std::filesystem::exists(file)) return file;
  fail(ExitCode::io, "{}: not found, but belongs to {}; install both: cmake --install", printable(file),
       printable(program));
}

std::string sha256_of(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) {
    fail(ExitCode::internal, "OpenSSL failed to compute a SHA-256");
  }
  return fmt::format("{:02x}", fmt::join(digest, digest + size, ""));
}

Json environment(Device device) {
  const std::string& isa_cap = cpu_features().cap;
  Json features = Json::array();
  for (const CpuFeature& feature : cpu_features().all) {
    if (feature.present) features.push_back(feature.name);
  }
  Json device_facts = Json::object();
  for (const auto& [what, value] : runtime(device).describe()) device_facts[what] = value;
  return {
      {"cpu", cpu_name()},
      {"cores", cores()},
      {"threads", threads()},
      {"cpu_features", features},
      {"isa_cap", isa_cap.empty() ? Json() : Json(isa_cap)},
      {"load_average", finite_or_null(load_average())},
      {"memory_bytes", memory_limit()},
      {"os", operating_system()},
      {"compiler", build_info.compiler},
      {"flags", build_info.flags},
      {"build_type", build_info.build_type},
      {"native", build_info.native},
      {"openmp", false},
      {"commit", build_info.commit},
      {"version", build_info.version},
      {"cuda", build_info.cuda},
      {"device", name(device)},
      {"device_facts", device_facts},
      {"date", utc_now()},
  };
}

}  // namespace hs::bench::cli
