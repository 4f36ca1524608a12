#include "bench/measure/energy.h"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>

#include "engine/check.h"

namespace hs::bench::measure {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> read_number(const fs::path& file) {
  std::ifstream stream(file);
  uint64_t value = 0;
  return stream >> value ? std::optional(value) : std::nullopt;
}

}  // namespace

EnergyMeter::EnergyMeter(Device device, const fs::path& powercap) {
  device == Device::cuda ? find_nvml() : find_rapl(powercap);
}

// Packages are intel-rapl:0, intel-rapl:1, ..., on AMD too; intel-rapl:0:0 is a subdomain of the first.
void EnergyMeter::find_rapl(const fs::path& powercap) {
  std::error_code error;
  std::vector<fs::path> packages;
  for (const fs::directory_entry& entry : fs::directory_iterator(powercap, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("intel-rapl:") && std::ranges::count(name, ':') == 1) packages.push_back(entry.path());
  }
  for (const fs::path& package : packages) {
    const fs::path file = package / "energy_uj";
    if (!read_number(file)) {
      counters_.clear();
      why_not_ = fmt::format("{} cannot be read: it is for root alone on most systems", file.string());
      return;
    }
    counters_.push_back({[file] { return read_number(file); }, 1e-6,  //
                         read_number(package / "max_energy_range_uj").value_or(0)});
  }
  source_ = "RAPL, all CPU packages";
  if (counters_.empty()) why_not_ = fmt::format("no RAPL counters in {}", powercap.string());
}

// Uses dlopen, so that the program starts without an NVIDIA driver. The handle is never closed.
void EnergyMeter::find_nvml() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto function = [&](const char* name) { return library ? dlsym(library, name) : nullptr; };
  const auto init = reinterpret_cast<int (*)()>(function("nvmlInit_v2"));
  const auto get = reinterpret_cast<int (*)(unsigned, void**)>(function("nvmlDeviceGetHandleByIndex_v2"));
  const auto energy =
      reinterpret_cast<int (*)(void*, unsigned long long*)>(function("nvmlDeviceGetTotalEnergyConsumption"));
  void* gpu = nullptr;
  if (!init || !get || !energy) {
    why_not_ = "libnvidia-ml.so.1 is not there, or too old to know the energy";
  } else if (init() != 0 || get(0, &gpu) != 0) {
    why_not_ = "NVML does not find a GPU";
  } else {
    const auto read = [energy, gpu]() -> std::optional<uint64_t> {
      unsigned long long millijoules = 0;
      if (energy(gpu, &millijoules) != 0) return std::nullopt;
      return millijoules;
    };
    if (read()) {
      counters_.push_back({read, 1e-3, 0});
      source_ = "NVML, the GPU's board";
    } else {
      why_not_ = "this GPU has no energy counter";
    }
  }
}

void EnergyMeter::start() {
  for (Counter& counter : counters_) counter.start = counter.read();
}

std::optional<double> EnergyMeter::joules() {
  if (counters_.empty()) return std::nullopt;
  double sum = 0;
  for (const Counter& counter : counters_) {
    const std::optional<uint64_t> now = counter.read();
    if (!now || !counter.start) return std::nullopt;
    // RAPL wraps to 0 after its range, which takes minutes: at most once in a run worth measuring.
    const uint64_t used = *now >= *counter.start ? *now - *counter.start : *now + counter.range - *counter.start;
    sum += static_cast<double>(used) * counter.scale;
  }
  return sum;
}

Json describe_energy(Device device) {
  const EnergyMeter meter(device);
  const bool there = meter.why_not().empty();
  return {{"source", there ? Json(meter.source()) : Json(nullptr)},
          {"why_not", there ? Json(nullptr) : Json(meter.why_not())}};
}

}  // namespace hs::bench::measure
