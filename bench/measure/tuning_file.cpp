#include "bench/measure/tuning_file.h"

#include "bench/cli/build_info.h"
#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "engine/check.h"
#include "engine/cpu_features.h"
#include "engine/files/input_file.h"

namespace hs::bench::measure {
namespace {

constexpr size_t largest_file = size_t{1} << 20;

}  // namespace

std::string tuning_machine(Device device) {
  for (const auto& [what, value] : runtime(device).describe()) {
    if (what == "name") return value;
  }
  const std::string& cap = cpu_features().cap;
  return cli::cpu_name() + (cap.empty() ? "" : " with HALFSTEP_ISA=" + cap);
}

std::string tuning_program() {
  return fmt::format("halfstep {} ({})", cli::build_info.version, cli::build_info.commit);
}

void TuningFile::declare(cli::Flags& flags) {
  flags.text("--tuning", path_, "FILE", "Take the kernel variants that `tune kernels` measured for these shapes")
      .record("tuning", [this] {
        return path_.empty() ? Json(nullptr) : Json{{"file", path_}, {"sha256", sha256_}, {"machine", machine_}};
      });
}

void TuningFile::use(Device device) {
  if (path_.empty()) return;
  const std::vector<uint8_t> bytes = read_file(path_, largest_file);
  const std::string text(bytes.begin(), bytes.end());
  sha256_ = cli::sha256_of(text);
  TuningTable table = parse_tuning(text, "--tuning " + path_, tuning_machine(device));
  machine_ = table.machine;
  in_use_.emplace(std::move(table));
}

void TuningFile::check_used() const {
  if (!in_use_ || in_use_->calls() > 0) return;
  cli::notice(fmt::format(
      "--tuning {}: decided no call of this run; it was measured for another model, batch, precision or device",
      path_));
}

}  // namespace hs::bench::measure
