#include "bench/measure/loader_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/cli/statistics.h"
#include "engine/parallel.h"

namespace hs::bench::measure {
namespace {

// A setting is judged after at least this many steps and seconds.
constexpr size_t least_steps = 32;
constexpr double least_seconds = 0.2;
constexpr double no_wait = 0.005, as_fast = 1.02;

}  // namespace

bool LoaderSearch::add(double waited, double rest) {
  // At first the threads start, and the queue fills.
  if (is_over_ || steps_++ < 2 + setting_.prefetch) return false;
  waits_.push_back(waited);
  rests_.push_back(rest);
  const double wait = mean(waits_), seconds = static_cast<double>(waits_.size()) * (wait + mean(rests_));
  if (waits_.size() < least_steps || seconds < least_seconds) return false;
  // The median, because between some steps there is a validation, or a state is saved.
  const double step = wait + median(rests_);
  tried_.push_back({setting_, step, wait / step});
  steps_ = 0;
  waits_.clear();
  rests_.clear();
  if (tried_.back().stall_share > no_wait && goes_up()) return true;
  is_over_ = true;
  setting_ = chosen();
  return setting_ != tried_.back().setting;
}

bool LoaderSearch::goes_up() {
  const size_t next = tried_.size();
  if (next < std::size(loader_settings)) {
    setting_ = loader_settings[next];
    return true;
  }
  const LoaderSetting twice = {2 * setting_.workers, 2 * setting_.prefetch};
  if (twice.workers > cores_) return false;
  setting_ = twice;
  return true;
}

LoaderSetting LoaderSearch::chosen() const {
  const double fastest = std::ranges::min(tried_, {}, &TriedSetting::step_seconds).step_seconds;
  const auto is_fast = [&](const TriedSetting& tried) { return tried.step_seconds <= as_fast * fastest; };
  const TriedSetting& last = tried_.back();
  return last.stall_share <= no_wait && is_fast(last) ? last.setting : std::ranges::find_if(tried_, is_fast)->setting;
}

std::string LoaderSearch::text() const {
  const bool never_waits = is_over_ && setting_ == tried_.back().setting && tried_.back().stall_share <= no_wait;
  std::string text = fmt::format("--workers {} --prefetch {}: {}", setting_.workers, setting_.prefetch,
                                 !is_over_     ? "the steps ended before the search"
                                 : never_waits ? "the cheapest with which steps do not wait"
                                               : "the cheapest with the shortest steps");
  for (const auto& [setting, seconds, share] : tried_) {
    text += fmt::format("; {} and {}: {:.2f} ms, waiting for {:.1f} %", setting.workers, setting.prefetch,
                        1e3 * seconds, 100 * share);
  }
  return text;
}

Json LoaderSearch::to_json() const {
  const auto tried = [](const TriedSetting& one) {
    return Json{{"workers", one.setting.workers},
                {"prefetch", one.setting.prefetch},
                {"step_ms", 1e3 * one.step_seconds},
                {"stall_share", one.stall_share}};
  };
  return {{"workers", setting_.workers},
          {"prefetch", setting_.prefetch},
          {"over", is_over_},
          {"tried", mapped(tried_, tried)}};
}

SearchingLoader::SearchingLoader(const SampleSource& source, const LoaderOptions& options, bool searches)
    : Loader(source, options), fills_cache_(options.cache == CacheMode::ram && !source.is_in_memory()) {
  if (searches) begin_search();
}

void SearchingLoader::begin_search() {
  search_.emplace(cores());
  prepare(search_->setting().workers, search_->setting().prefetch);
}

Batch SearchingLoader::next() {
  if (!search_) return Loader::next();
  const Clock::time_point asked = Clock::now();
  const int64_t epoch_before = epoch();
  Batch batch = Loader::next();
  const Clock::time_point got = Clock::now();
  if (returned_ && search_->add(in_seconds(got - asked), in_seconds(asked - *returned_))) {
    prepare(search_->setting().workers, search_->setting().prefetch);
  }
  returned_ = Clock::now();
  if (epoch() == epoch_before) return batch;
  returned_.reset();  // the epoch's test follows
  if (std::exchange(fills_cache_, false)) begin_search();
  return batch;
}

}  // namespace hs::bench::measure
