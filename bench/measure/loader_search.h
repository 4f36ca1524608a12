// `--loader auto`: the cheapest way to make batches with which steps do not wait, found while the first ones run. What
// is tried changes when a batch is made and never which, so the weights are the same.
#pragma once

#include <optional>

#include "bench/cli/clock.h"
#include "bench/cli/json_file.h"
#include "data/loader/loader.h"

namespace hs::bench::measure {

struct LoaderSetting {
  int64_t workers, prefetch;

  bool operator==(const LoaderSetting&) const = default;
};
// In increasing order of cost: threads, then memory.
inline constexpr LoaderSetting loader_settings[] = {{0, 0}, {1, 1}, {1, 2}, {2, 4}};

// How steps went with a setting.
struct TriedSetting {
  LoaderSetting setting;
  double step_seconds = 0;
  double stall_share = 0;  // of them, waiting for the batch
};

// Goes up the settings, and beyond the last one doubles it as long as there are cores, until steps wait for less than
// 0.5 % of their time. Chosen is the setting that this ended with, unless steps were at least 2 % shorter with another
// one: a worker takes a core from what computes. Then the cheapest that is less than 2 % behind the fastest is.
class LoaderSearch {
 public:
  explicit LoaderSearch(int64_t cores) : cores_(cores) {}

  LoaderSetting setting() const { return setting_; }  // to use now
  bool is_over() const { return is_over_; }
  // A step with setting() waited for its batch, and did the rest of its work. True if setting() has changed by it.
  bool add(double waited, double rest);
  // The setting, why it is, and what was tried, in one line.
  std::string text() const;
  Json to_json() const;

 private:
  bool goes_up();
  LoaderSetting chosen() const;

  int64_t cores_;
  LoaderSetting setting_ = loader_settings[0];
  bool is_over_ = false;
  std::vector<TriedSetting> tried_;
  int64_t steps_ = 0;                  // with the setting
  std::vector<double> waits_, rests_;  // of them, without the first ones
};

// A loader that is set by a LoaderSearch while its batches are used, if it `searches`. Where a cache makes the first
// epoch another one than the others, the search begins anew with the second. What a device gathers (skip()) is not
// timed.
class SearchingLoader : public Loader {
 public:
  SearchingLoader(const SampleSource& source, const LoaderOptions& options, bool searches);

  Batch next() override;
  const std::optional<LoaderSearch>& search() const { return search_; }  // none if it does not search

 private:
  void begin_search();

  bool fills_cache_;
  std::optional<LoaderSearch> search_;
  std::optional<Clock::time_point> returned_;  // next(), with a batch of the epoch that the next one is of
};

}  // namespace hs::bench::measure
