// Energy of a run, from hardware counters: RAPL of the CPU packages (Linux powercap), or the GPU's through NVML. Both
// count the energy of the whole chip, other programs included.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "bench/cli/json_file.h"
#include "engine/device.h"

namespace hs::bench::measure {

class EnergyMeter {
 public:
  // Measures the chip that does the work; cuda is the first GPU. `powercap`: the folder in which Linux exposes RAPL.
  explicit EnergyMeter(Device device, const std::filesystem::path& powercap = "/sys/class/powercap");

  // Empty if a counter is available, otherwise the reason.
  const std::string& why_not() const { return why_not_; }
  const std::string& source() const { return source_; }

  void start();
  std::optional<double> joules();  // since start(); nullopt without a counter or if one failed

 private:
  // A counter in units of `scale` joules that wraps to 0 after `range` (0: never).
  struct Counter {
    std::function<std::optional<uint64_t>()> read;
    double scale;
    uint64_t range;
    std::optional<uint64_t> start = {};
  };
  void find_rapl(const std::filesystem::path& powercap);
  void find_nvml();

  std::string why_not_, source_;
  std::vector<Counter> counters_;
};

// Member "energy" of a record: source and null, or null and why_not.
Json describe_energy(Device device);

}  // namespace hs::bench::measure
