#include "bench/report/loader_tables.h"

#include <fmt/format.h>

#include "bench/report/record.h"

namespace hs::bench::report {

std::vector<Table> loader_tables(const Json& record) {
  const double compute = number(member(record, "config"), "compute_us");
  const auto figure = [](const Json& row, const char* name, int digits) {
    return fmt::format("{:.{}f}", number(row, name), digits);
  };
  Table read = {{"format", "files", "MB", "cold samples/s", "warm samples/s"}, {}, "one thread, without a loader"};
  for (const Json& format : record["formats"]) {
    read.lines.push_back({text(format, "name"), figure(format, "files", 0),
                          fmt::format("{:.1f}", number(format, "bytes") / 1e6),
                          figure(format, "cold_samples_per_second", 0), figure(format, "warm_samples_per_second", 0)});
  }
  Table rows = {{"format", "cache", "workers", "prefetch", "samples/s", "MB/s", "wait us/step",
                 fmt::format("stall at {} us", compute)},
                {},
                "warm epochs through a loader",
                2};
  for (const Json& row : record["rows"]) {
    rows.lines.push_back({text(row, "format"), text(row, "cache"), figure(row, "workers", 0),
                          figure(row, "prefetch", 0), figure(row, "samples_per_second", 0),
                          figure(row, "megabytes_per_second", 1), figure(row, "wait_us_per_step", 1),
                          fmt::format("{:.2f} %", 100 * number(row, "stall_share"))});
  }
  Table sweep = {
      {"format", "cheapest setting"},
      {},
      fmt::format("cheapest setting with a stall share below {} % at {} us of work per step", 100 * no_stall, compute),
      2};
  for (const Json& row : record["sweep"]) {
    const Json& best = row["cheapest"];
    sweep.lines.push_back(
        {text(row, "format"), best.is_null() ? "none of these"
                                             : fmt::format("--cache {} --workers {} --prefetch {}", text(best, "cache"),
                                                           figure(best, "workers", 0), figure(best, "prefetch", 0))});
  }
  Table overlap = {{"data", "load", "compute", "workers", "prefetch", "step", "sum", "largest"}, {}, "ms per step"};
  for (const Json& row : record["overlap"]) {
    overlap.lines.push_back({"a source that sleeps", figure(row, "load_ms", 2), figure(row, "compute_ms", 2),
                             figure(row, "workers", 0), figure(row, "prefetch", 0), figure(row, "step_ms", 2),
                             figure(row, "sum_ms", 2), figure(row, "largest_ms", 2)});
  }
  return {read, rows, sweep, overlap};
}

}  // namespace hs::bench::report
