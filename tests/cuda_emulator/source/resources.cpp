// What a launch takes of a multiprocessor: registers, shared memory, threads. The emulator compiles no machine code;
// what nvcc made of a kernel stands in tests/kernels.lock, by its name. Of a kernel that is not listed nothing is
// known.
#include <fstream>
#include <map>
#include <regex>

#include "internal.h"

#ifndef HALFSTEP_KERNELS_LOCK
#define HALFSTEP_KERNELS_LOCK "tests/kernels.lock"
#endif

namespace hs::emulator {
namespace {

constexpr int registers_of_multiprocessor = 65536, reserved_shared = 1024;  // which the list counts on sm_90

struct Taken {
  int registers = 0, shared = 0, most_threads = 0;  // of a thread; static, of a block; 0: no launch bounds
};

std::map<std::string, Taken> read_list(const std::string& path) {
  static const std::regex line_form(R"(sm_90 +(\d+) +(\d+) +(\d+) +\d+  (.*))");
  std::map<std::string, Taken> list;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (!std::regex_match(line, found, line_form)) continue;
    list[found[4]] = {std::stoi(found[1]), std::max(0, std::stoi(found[2]) - reserved_shared), std::stoi(found[3])};
  }
  return list;
}

// As tests/cubin.py writes it: without namespaces, result and parameters.
std::string listed_name(const void* kernel) {
  static const std::regex noise(R"(\(anonymous namespace\)::|\bhs::|\bcuda::|^void )");
  const std::string name = std::regex_replace(symbol_name(kernel), noise, "");
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += (name[i] == '<') - (name[i] == '>');
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

Taken taken_by(const void* kernel) {
  static auto& lists = *new std::map<std::string, std::map<std::string, Taken>>;
  static auto& known = *new std::map<std::pair<std::string, const void*>, Taken>;
  const std::string path = options().kernels_list.empty() ? HALFSTEP_KERNELS_LOCK : options().kernels_list;
  const auto [at, fresh] = known.try_emplace({path, kernel});
  if (fresh) {
    const auto list = lists.try_emplace(path);
    if (list.second) list.first->second = read_list(path);
    const auto found = list.first->second.find(listed_name(kernel));
    if (found != list.first->second.end()) at->second = found->second;
  }
  return at->second;
}

constexpr int rounded_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

bool is_listed(const void* kernel) { return taken_by(kernel).registers > 0; }

cudaError_t check_resources(const void* kernel, int threads, size_t dynamic_shared, size_t most_shared) {
  const Taken taken = taken_by(kernel);
  if (static_cast<size_t>(taken.shared) + dynamic_shared > most_shared) return cudaErrorInvalidValue;
  // Registers are given out to four warps at a time, 256 a warp.
  const int warps = rounded_up((threads + 31) / 32, 4), of_warp = rounded_up(taken.registers * 32, 256);
  const bool fits = warps * of_warp <= registers_of_multiprocessor;
  const bool in_bounds = taken.most_threads == 0 || threads <= taken.most_threads;
  return fits && in_bounds ? cudaSuccess : cudaErrorLaunchOutOfResources;
}

}  // namespace hs::emulator
