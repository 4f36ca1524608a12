#include "bench/measure/loader_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/cli/clock.h"
#include "bench/cli/inputs.h"
#include "bench/measure/loader_measure.h"
#include "bench/measure/statistics.h"
#include "data/synthetic.h"
#include "engine/random.h"

namespace hs::bench::measure {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr int64_t steps_with_work = 100;
constexpr double measured_seconds = 0.2;
constexpr int warm_passes = 7;

// A set of 24 batches of 16 samples, each of which sleeps 100 microseconds. Of the timelines 8 batches are drawn.
constexpr int64_t throttled_batch = 16, throttled_batches = 24;
constexpr int64_t drawn_batches = 8;
constexpr microseconds throttled_delay(100);

MemorySource throttled_set() { return synthetic_digits(synthetic_train_seed, throttled_batch * throttled_batches); }

// The indices of all samples in a random order.
std::vector<int64_t> shuffled(int64_t count, uint64_t seed) {
  const RandomStream stream{.seed = seed, .purpose = RandomPurpose::shuffle};
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) {
    order.push_back(
        static_cast<int64_t>(permute_index(static_cast<uint64_t>(i), static_cast<uint64_t>(count), stream)));
  }
  return order;
}

// How many, and their bytes together.
std::pair<int64_t, int64_t> files_in(const fs::path& folder) {
  int64_t files = 0, bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return {files, bytes};
}

}  // namespace

LoaderOptions LoaderBench::with(const LoaderSetting& setting, CacheMode cache) const {
  LoaderOptions all = options;
  all.workers = setting.workers;
  all.prefetch = setting.prefetch;
  all.cache = cache;
  return all;
}

void LoaderBench::write(const Format& format, const SampleSource& data, const fs::path& folder) const {
  if (!format.write) return;
  fs::create_directory(folder);
  const auto writer = format.write(folder, data.info());
  copy_samples(data, data.info().count, *writer, [this](int64_t) { check(); });
}

Json LoaderBench::read(const Format& format, const SampleSource& data, const fs::path& folder) const {
  const SampleInfo& info = data.info();
  const std::vector<int64_t> order = shuffled(info.count, options.seed);
  std::vector<uint8_t> batch(static_cast<size_t>(options.batch * info.image_bytes()));
  const auto samples_per_second = [&](const SampleSource& source, Clock::time_point start) {
    for (int64_t i = 0; i < info.count; ++i) {
      source.read(order[static_cast<size_t>(i)], batch.data() + i % options.batch * info.image_bytes());
    }
    return static_cast<double>(info.count) / seconds_since(start);
  };
  const Clock::time_point start = Clock::now();
  const auto opened = format.open ? format.open(folder) : nullptr;
  const SampleSource& source = opened ? *opened : data;
  const double cold = samples_per_second(source, start);
  std::vector<double> warm;
  for (int i = 0; i < warm_passes; ++i) {
    warm.push_back(samples_per_second(source, Clock::now()));
    check();
  }
  const auto [files, bytes] = opened ? files_in(folder) : std::pair(int64_t{0}, info.count * info.image_bytes());
  return {{"name", format.name},
          {"files", files},
          {"bytes", bytes},
          {"cold_samples_per_second", cold},
          {"warm_samples_per_second", median(warm)}};
}

Json LoaderBench::rows(const Format& format, const SampleSource& source, CacheMode cache) const {
  Json rows = Json::array();
  const Compute how = options.device == Device::cpu ? Compute::spin : Compute::sleep;
  for (const LoaderSetting& setting : loader_settings) {
    Loader loader(source, with(setting, cache));
    const int64_t epoch = loader.batches_per_epoch();
    // The first epoch fills the caches, the system's too, and says how many make a fifth of a second.
    const double first = run_loader(loader, epoch, how, microseconds(0)).seconds;
    const auto epochs = static_cast<int64_t>(std::clamp(measured_seconds / first, 1.0, 50.0));
    const LoaderRun alone = run_loader(loader, epochs * epoch, how, microseconds(0));
    const LoaderRun with_work = run_loader(loader, std::min(epoch, steps_with_work), how, compute);
    const double megabytes = alone.samples_per_second() * static_cast<double>(source.info().image_bytes()) / 1e6;
    rows.push_back({{"format", format.name},
                    {"cache", cli::name(cache)},
                    {"workers", setting.workers},
                    {"prefetch", setting.prefetch},
                    {"samples_per_second", alone.samples_per_second()},
                    {"megabytes_per_second", megabytes},
                    {"wait_us_per_step", 1e6 * alone.per_step(alone.wait)},
                    {"stall_share", with_work.stall_share()}});
  }
  return rows;
}

Json LoaderBench::overlap() const {
  const MemorySource set = throttled_set();
  const ThrottledSource source(set, throttled_delay, throttled_batch, nullptr);
  const auto step_ms = [&](const LoaderSetting& setting, double compute_ms) {
    LoaderOptions throttled = with(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    Loader loader(source, throttled);
    const auto work = microseconds(static_cast<int64_t>(1000 * compute_ms));
    const LoaderRun run = run_loader(loader, loader.batches_per_epoch(), Compute::sleep, work);
    return 1e3 * run.per_step(run.seconds);
  };
  Json rows = Json::array();
  const double load_ms = step_ms({0, 0}, 0);
  check();
  for (const double factor : {0.5, 1.0, 2.0}) {
    for (const LoaderSetting& setting : loader_settings) {
      const double compute_ms = factor * load_ms;
      const double largest = std::max(load_ms / static_cast<double>(std::max<int64_t>(setting.workers, 1)), compute_ms);
      rows.push_back({{"load_ms", load_ms},
                      {"compute_ms", compute_ms},
                      {"workers", setting.workers},
                      {"prefetch", setting.prefetch},
                      {"step_ms", step_ms(setting, compute_ms)},
                      {"sum_ms", load_ms + compute_ms},
                      {"largest_ms", largest}});
    }
  }
  return rows;
}

Json LoaderBench::timelines(std::string& drawings) const {
  const MemorySource set = throttled_set();
  const struct {
    const char* name;
    LoaderSetting setting;
  } rungs[] = {
      {"synchronous", {0, 0}}, {"one thread, one batch ahead", {1, 1}}, {"two threads, four batches ahead", {2, 4}}};
  Json timelines = Json::array();
  for (const auto& [rung, setting] : rungs) {
    Timeline timeline;
    const ThrottledSource source(set, throttled_delay, throttled_batch, &timeline);
    LoaderOptions throttled = with(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    throttled.shuffle = false;  // so that the index tells the batch
    {
      Loader loader(source, throttled);
      run_loader(loader, drawn_batches, Compute::sleep, microseconds(1800), &timeline);
    }
    std::vector<LoaderSpan> spans = timeline.spans();
    // Batches that were made for later are left out.
    std::erase_if(spans, [](const LoaderSpan& span) { return span.batch >= drawn_batches; });
    double end = 0;
    Json list = Json::array();
    for (const LoaderSpan& span : spans) {
      end = std::max(end, span.end);
      list.push_back({span.lane, span.batch, span.begin, span.end});
    }
    timelines.push_back(
        {{"name", rung}, {"workers", setting.workers}, {"prefetch", setting.prefetch}, {"spans", list}});
    drawings += fmt::format("\n{}: {:.1f} ms\n{}", rung, end, draw(spans, 96));
  }
  return timelines;
}

// The format is written and read with a few samples. Reading the others takes as long each.
double LoaderBench::forecast(const Format& format, const SampleSource& some, int64_t count,
                             const fs::path& folder) const {
  const auto whole = static_cast<double>(count), tried = static_cast<double>(some.info().count);
  Clock::time_point start = Clock::now();
  write(format, some, folder);
  const double writing = seconds_since(start) / tried * whole;
  const auto opened = format.open ? format.open(folder) : nullptr;
  const SampleSource& source = opened ? *opened : some;
  std::vector<uint8_t> image(static_cast<size_t>(source.info().image_bytes()));
  start = Clock::now();
  for (int64_t i = 0; i < source.info().count; ++i) source.read(i, image.data());
  const double pass = seconds_since(start) / tried * whole;
  const double steps =
      std::min(std::ceil(whole / static_cast<double>(options.batch)), static_cast<double>(steps_with_work));
  const double work = steps * std::chrono::duration<double>(compute).count();
  const double rows = std::size(loader_settings) * (static_cast<double>(std::size(loader_caches)) * (pass + work) +
                                                    std::max(pass, measured_seconds) + 2 * measured_seconds);
  return writing + (1 + warm_passes) * pass + rows;
}

}  // namespace hs::bench::measure
