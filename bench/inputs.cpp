#include "bench/inputs.h"

#include <filesystem>
#include <optional>
#include <string_view>

#include "bench/build_info.h"
#include "bench/console.h"
#include "engine/check.h"

namespace hs::bench {

Device resolve_device(const std::string& wanted) {
  if (wanted == "cpu") return Device::cpu;
  if (is_available(Device::cuda)) return Device::cuda;
  if (wanted == "cuda") {
    fail(ExitCode::device, "--device cuda: {}; use --device cpu or auto", why_unavailable(Device::cuda));
  }
  if (build_info.cuda != std::string_view("OFF")) {
    notice(fmt::format("{}: using the CPU", why_unavailable(Device::cuda)));
  }
  return Device::cpu;
}

DatasetPair load_digits(const std::string& folder, int64_t train, int64_t test) {
  constexpr int64_t image_side = 28;
  DatasetPair data =
      load_mnist(folder.empty() ? std::nullopt : std::optional<std::filesystem::path>(folder), train, test);
  const Dataset& set = data.train;
  if (set.rows != image_side || set.columns != image_side || set.channels != 1) {
    fail(ExitCode::bad_input, "--data {}: images are {}x{}x{}, expected {}x{}x1", folder, set.rows, set.columns,
         set.channels, image_side, image_side);
  }
  if (set.synthetic) notice(data.source);
  return data;
}

}  // namespace hs::bench
