#include "bench/measure/loader_measure.h"

#include <fmt/format.h>

#include <algorithm>

namespace hs::bench::measure {
namespace {

using Clock = Timeline::Clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void Timeline::add(const std::string& lane, int64_t batch, Clock::time_point begin, Clock::time_point end) {
  const auto [at, is_new] = spans_.try_emplace({lane, batch}, begin, end);
  if (!is_new) at->second.second = end;
}

void Timeline::add_load(int64_t batch, Clock::time_point begin, Clock::time_point end) {
  const std::scoped_lock lock(mutex_);
  const auto [at, is_new] = lanes_.try_emplace(std::this_thread::get_id());
  if (is_new) at->second = fmt::format("load {}", lanes_.size());
  add(at->second, batch, begin, end);
}

void Timeline::add_step(int64_t batch, Clock::time_point begin, Clock::time_point end) {
  const std::scoped_lock lock(mutex_);
  add("step", batch, begin, end);
}

std::vector<LoaderSpan> Timeline::spans() const {
  const std::scoped_lock lock(mutex_);
  Clock::time_point start = Clock::time_point::max();
  for (const auto& [key, times] : spans_) start = std::min(start, times.first);
  std::vector<LoaderSpan> all;
  for (const auto& [key, times] : spans_) {
    all.push_back(
        {key.first, key.second, 1e3 * seconds_between(start, times.first), 1e3 * seconds_between(start, times.second)});
  }
  return all;
}

std::string draw(const std::vector<LoaderSpan>& spans, int width) {
  double total = 0;
  for (const LoaderSpan& span : spans) total = std::max(total, span.end);
  const auto column = [&](double time) { return static_cast<size_t>(time / total * width); };
  std::map<std::string, std::string> lines;
  for (const LoaderSpan& span : spans) {
    std::string& line = lines[span.lane];
    line.resize(static_cast<size_t>(width), ' ');
    for (size_t i = column(span.begin); i < column(span.end); ++i) line[i] = static_cast<char>('0' + span.batch % 10);
  }
  std::string text;
  for (const auto& [lane, line] : lines) text += fmt::format("  {:<7} |{}|\n", lane, line);
  return text;
}

void ThrottledSource::read_sample(int64_t index, uint8_t* image) const {
  const Clock::time_point begin = Clock::now();
  std::this_thread::sleep_for(delay_);
  source_.read_through(index, image);
  if (timeline_ != nullptr) timeline_->add_load(index / batch_, begin, Clock::now());
}

LoaderRun run_loader(Loader& loader, int64_t steps, Compute how, std::chrono::microseconds compute,
                     Timeline* timeline) {
  LoaderRun run;
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start;
  for (; run.steps < steps; ++run.steps) {
    const Batch batch = loader.next();
    run.samples += batch.labels.size();
    const Clock::time_point got = Clock::now();
    run.wait += seconds_between(now, got);
    if (how == Compute::sleep) std::this_thread::sleep_until(got + compute);
    do now = Clock::now();
    while (now < got + compute);
    if (timeline != nullptr) timeline->add_step(run.steps, got, now);
  }
  run.seconds = seconds_between(start, now);
  return run;
}

}  // namespace hs::bench::measure
