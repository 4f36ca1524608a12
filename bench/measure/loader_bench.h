// The parts of `halfstep-bench loader`, as members of its record (bench/commands/loader_command.cpp lists them).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "data/io/sample_writer.h"
#include "data/loader/loader.h"

namespace hs::bench::measure {

// A set in a folder of its own. No functions: it stays in memory.
struct Format {
  std::string name;
  std::function<std::unique_ptr<SampleWriter>(const std::filesystem::path& folder, const SampleInfo& info)> write;
  std::function<std::unique_ptr<SampleSource>(const std::filesystem::path& folder)> open;
};

// Fastest first; "memory" is one of them.
const std::vector<Format>& formats();

// In the order of what they cost: threads, then memory.
struct LoaderSetting {
  int64_t workers, prefetch;
};
inline constexpr LoaderSetting loader_settings[] = {{0, 0}, {1, 1}, {1, 2}, {2, 4}};
inline constexpr CacheMode loader_caches[] = {CacheMode::none, CacheMode::ram, CacheMode::device};
inline constexpr double no_stall = 0.01;  // a share of the time below which a step does not wait

struct LoaderBench {
  LoaderOptions options;              // batch, seed and device
  std::chrono::microseconds compute;  // work of a step
  std::function<void()> check;        // called now and then; may throw

  // Throws Error: io.
  void write(const Format& format, const SampleSource& data, const std::filesystem::path& folder) const;
  // One thread reads all samples of `folder`, or of `data` for a format in memory, in shuffled order.
  Json read(const Format& format, const SampleSource& data, const std::filesystem::path& folder) const;
  // Every setting with one cache.
  Json rows(const Format& format, const SampleSource& source, CacheMode cache) const;
  // Loading and computing that both sleep: one after the other, and at the same time.
  Json overlap() const;
  // The same over time; appended to `drawings` for people.
  Json timelines(std::string& drawings) const;
  // Seconds that all of these take, from `some` samples of `count`.
  double forecast(const Format& format, const SampleSource& some, int64_t count,
                  const std::filesystem::path& folder) const;

 private:
  LoaderOptions with(const LoaderSetting& setting, CacheMode cache) const;
};

}  // namespace hs::bench::measure
