// The parts of `halfstep-bench bench loader`, as members of its record (bench/commands/loader_command.cpp lists them).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>

#include "bench/measure/loader_search.h"
#include "bench/report/table.h"
#include "data/io/sample_writer.h"
#include "data/loader/loader.h"

namespace hs::bench::measure {

// A data format, written to a separate folder. Without functions, the data set stays in memory.
struct Format {
  std::string name;
  std::function<std::unique_ptr<SampleWriter>(const std::filesystem::path& folder, const SampleInfo& info)> write;
  std::function<std::unique_ptr<SampleSource>(const std::filesystem::path& folder)> open;
};

// Fastest first; includes "memory".
const std::vector<Format>& formats();

inline constexpr CacheMode loader_caches[] = {CacheMode::none, CacheMode::ram, CacheMode::device};
inline constexpr double no_stall = 0.01;  // below this fraction of the time, steps count as not waiting

struct LoaderBench {
  LoaderOptions options;              // batch, seed and device
  std::chrono::microseconds compute;  // simulated work per step
  std::function<void()> check;        // called at intervals; may throw

  // Throws Error: io.
  void write(const Format& format, const SampleSource& data, const std::filesystem::path& folder) const;
  // One thread reads all samples of `folder`, or of `data` for a format in memory, in shuffled order.
  void read(const Format& format, const SampleSource& data, const std::filesystem::path& folder,
            report::Rows& rows) const;
  // One row per setting, all with this cache.
  void add_rows(const Format& format, const SampleSource& source, CacheMode cache, report::Rows& rows) const;
  // Loading and computing that both sleep: in sequence and overlapped.
  report::Rows overlap() const;
  // The same as timelines; also appends them to `drawings` as text.
  Json timelines(std::string& drawings) const;
  // Seconds that all of these take for `count` samples, estimated from the samples in `some`.
  double forecast(const Format& format, const SampleSource& some, int64_t count,
                  const std::filesystem::path& folder) const;

 private:
  LoaderOptions with(const LoaderSetting& setting, CacheMode cache) const;
};

}  // namespace hs::bench::measure
