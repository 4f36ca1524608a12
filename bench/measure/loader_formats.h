// The formats that `halfstep-bench loader` compares.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/sample_source.h"
#include "data/sample_writer.h"

namespace hs::bench::measure {

// A set in a folder of its own. No functions: it stays in memory.
struct Format {
  std::string name;
  std::function<std::unique_ptr<SampleWriter>(const std::filesystem::path& folder, const SampleInfo& info)> write;
  std::function<std::unique_ptr<SampleSource>(const std::filesystem::path& folder)> open;
};

// Fastest first; "memory" is one of them.
const std::vector<Format>& formats();

}  // namespace hs::bench::measure
