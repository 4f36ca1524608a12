#include "bench/measure/loader_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "bench/cli/clock.h"
#include "bench/cli/inputs.h"
#include "bench/cli/statistics.h"
#include "bench/measure/observers/profiler.h"
#include "bench/measure/work_folder.h"
#include "data/formats/image_folder.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"
#include "data/synthetic.h"
#include "engine/random.h"

namespace hs::bench::measure {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr int64_t steps_with_work = 100;
constexpr double measured_seconds = 0.2;
constexpr int warm_passes = 7;

// A data set of 24 batches of 16 samples; reading a sample sleeps 100 microseconds. Timelines show 8 batches.
constexpr int64_t throttled_batch = 16, throttled_batches = 24;
constexpr int64_t drawn_batches = 8;
constexpr microseconds throttled_delay(100);

MemorySource throttled_set() { return synthetic_digits(synthetic_train_seed, throttled_batch * throttled_batches); }

// A span of a timeline: reading a batch, or computing with it.
struct LoaderSpan {
  std::string lane;  // "load 1", "load 2", "step"
  int64_t batch = 0;
  double begin = 0, end = 0;  // milliseconds since the first span began
};

// What a loader and the steps that took its batches did, sorted by lane, then batch; without batches for later steps.
std::vector<LoaderSpan> spans_of(const Profile& profile) {
  std::vector<LoaderSpan> all;
  std::map<size_t, size_t> loaders;  // the number of the thread with this row, from 1
  for (const ProfileSpan& span : profile.spans) {
    const bool is_step = span.name == std::string_view("step");
    if ((!is_step && span.name != std::string_view("fill")) || span.number >= drawn_batches) continue;
    std::string lane = "step";
    if (!is_step) lane = fmt::format("load {}", loaders.try_emplace(span.row, loaders.size() + 1).first->second);
    all.push_back({lane, span.number, 1e3 * span.begin, 1e3 * span.end});
  }
  const double start = std::ranges::min(all, {}, &LoaderSpan::begin).begin;
  for (LoaderSpan& span : all) span.begin -= start, span.end -= start;
  std::ranges::sort(all, {}, [](const LoaderSpan& span) { return std::pair(span.lane, span.batch); });
  return all;
}

// One line per lane; columns are equal intervals of time, and a span is filled with the last digit of its batch number.
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

// A view of a source that sleeps before each read.
class ThrottledSource : public SampleSource {
 public:
  explicit ThrottledSource(const SampleSource& source) : SampleSource(source.info()), source_(source) {}

 private:
  void read_sample(int64_t index, uint8_t* image) const override {
    std::this_thread::sleep_for(throttled_delay);
    source_.read_through(index, image);
  }
  int32_t sample_label(int64_t index) const override { return source_.label(index); }

  const SampleSource& source_;
};

// How a step's computation is simulated.
enum class Compute {
  spin,   // keeps a core busy, as training on the CPU does
  sleep,  // leaves the core free, as training on a GPU does
};

struct LoaderRun {
  int64_t steps = 0, samples = 0;
  double seconds = 0;
  double wait = 0;  // of `seconds`, in next()

  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
  double per_step(double part) const { return part / static_cast<double>(steps); }
  double stall_share() const { return wait / seconds; }
};

// Takes `steps` batches from the loader and computes for `compute` after each.
LoaderRun run_loader(const std::function<void()>& check, Loader& loader, int64_t steps, Compute how,
                     microseconds compute) {
  LoaderRun run;
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start;
  for (; run.steps < steps; ++run.steps) {
    check();
    const Batch batch = loader.next();
    run.samples += batch.labels.size();
    const Clock::time_point got = Clock::now();
    run.wait += in_seconds(got - now);
    const Range step("step", run.steps);
    if (how == Compute::sleep) std::this_thread::sleep_until(got + compute);
    do now = Clock::now();
    while (now < got + compute);
  }
  run.seconds = in_seconds(now - start);
  return run;
}

// The indices of all samples in a random order.
std::vector<int64_t> shuffled(int64_t count, uint64_t seed) {
  const Permutation at(static_cast<uint64_t>(count), {.seed = seed, .purpose = RandomPurpose::shuffle});
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(static_cast<int64_t>(at(static_cast<uint64_t>(i))));
  return order;
}

Format folder_of(const char* name, ImageFormat format) {
  return {name,
          [format](const fs::path& at, const SampleInfo& info) {
            return write_image_folder(at / "set", info, format, Lifetime::temporary);
          },
          [](const fs::path& at) { return open_image_folder(at / "set", {}); }};
}

}  // namespace

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {"memory", nullptr, nullptr},
      {"record", [](const fs::path& at, const SampleInfo& info) { return write_records(at / "set", info); },
       [](const fs::path& at) { return open_records(at / "set"); }},
      {"record_zlib",
       [](const fs::path& at, const SampleInfo& info) {
         return write_records(at / "set", info, {.shards = 1, .compress = true, .samples_per_block = 0});
       },
       [](const fs::path& at) { return open_records(at / "set"); }},
      {"tfrecord", [](const fs::path& at, const SampleInfo& info) { return write_tfrecords(at / "set", info, 1); },
       [](const fs::path& at) { return open_tfrecords(at / "set", {}); }},
      folder_of("pgm", ImageFormat::pgm),
      folder_of("jpeg", ImageFormat::jpeg),
      folder_of("png", ImageFormat::png),
  };
  return all;
}

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

void LoaderBench::read(const Format& format, const SampleSource& data, const fs::path& folder,
                       report::Rows& rows) const {
  const SampleInfo& info = data.info();
  const std::vector<int64_t> order = shuffled(info.count, options.seed);
  std::vector<uint8_t> batch(static_cast<size_t>(options.batch * info.image_bytes()));
  const auto samples_per_second = [&](const SampleSource& source, Clock::time_point start) {
    for (int64_t i = 0; i < info.count; ++i) {
      if (i % options.batch == 0) check();
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
  }
  const auto [files, bytes] = opened ? files_in(folder) : std::pair(int64_t{0}, info.count * info.image_bytes());
  rows.add({{"name", format.name, "format"},
            {"files", files, "files"},
            {"bytes", bytes, "MB", "{:.1f}", 1e-6},
            {"cold_samples_per_second", cold, "cold samples/s", "{:.0f}"},
            {"warm_samples_per_second", median(warm), "warm samples/s", "{:.0f}"}});
}

void LoaderBench::add_rows(const Format& format, const SampleSource& source, CacheMode cache,
                           report::Rows& rows) const {
  const Compute how = options.device == Device::cpu ? Compute::spin : Compute::sleep;
  for (const LoaderSetting& setting : loader_settings) {
    Loader loader(source, with(setting, cache));
    const int64_t epoch = loader.batches_per_epoch();
    // The first epoch fills the caches, the operating system's too; from its time follows how many epochs to measure.
    const double first = run_loader(check, loader, epoch, how, microseconds(0)).seconds;
    const auto epochs = static_cast<int64_t>(std::clamp(measured_seconds / first, 1.0, 50.0));
    const LoaderRun alone = run_loader(check, loader, epochs * epoch, how, microseconds(0));
    const LoaderRun with_work = run_loader(check, loader, std::min(epoch, steps_with_work), how, compute);
    const double megabytes = alone.samples_per_second() * static_cast<double>(source.info().image_bytes()) / 1e6;
    rows.add(
        {{"format", format.name, "format"},
         {"cache", cli::name(cache), "cache"},
         {"workers", setting.workers, "workers"},
         {"prefetch", setting.prefetch, "prefetch"},
         {"samples_per_second", alone.samples_per_second(), "samples/s", "{:.0f}"},
         {"megabytes_per_second", megabytes, "MB/s", "{:.1f}"},
         {"wait_us_per_step", 1e6 * alone.per_step(alone.wait), "wait us/step", "{:.1f}"},
         {"stall_share", with_work.stall_share(), fmt::format("stall at {} us", compute.count()), "{:.2f} %", 100}});
  }
}

report::Rows LoaderBench::overlap() const {
  const MemorySource set = throttled_set();
  const ThrottledSource source(set);
  const auto step_ms = [&](const LoaderSetting& setting, double compute_ms) {
    LoaderOptions throttled = with(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    Loader loader(source, throttled);
    const auto work = microseconds(static_cast<int64_t>(1000 * compute_ms));
    const LoaderRun run = run_loader(check, loader, loader.batches_per_epoch(), Compute::sleep, work);
    return 1e3 * run.per_step(run.seconds);
  };
  report::Rows rows{.table = {.title = "ms per step"}};
  const double load_ms = step_ms({0, 0}, 0);
  for (const double factor : {0.5, 1.0, 2.0}) {
    for (const LoaderSetting& setting : loader_settings) {
      const double compute_ms = factor * load_ms;
      const double largest = std::max(load_ms / static_cast<double>(std::max<int64_t>(setting.workers, 1)), compute_ms);
      rows.add({{"", "a source that sleeps", "data"},
                {"load_ms", load_ms, "load", "{:.2f}"},
                {"compute_ms", compute_ms, "compute", "{:.2f}"},
                {"workers", setting.workers, "workers"},
                {"prefetch", setting.prefetch, "prefetch"},
                {"step_ms", step_ms(setting, compute_ms), "step", "{:.2f}"},
                {"sum_ms", load_ms + compute_ms, "sum", "{:.2f}"},
                {"largest_ms", largest, "largest", "{:.2f}"}});
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
    const ThrottledSource source(set);
    LoaderOptions throttled = with(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    throttled.shuffle = false;
    Profiler profiler(Device::cpu);
    {
      Loader loader(source, throttled);
      run_loader(check, loader, drawn_batches, Compute::sleep, microseconds(1800));
    }
    const std::vector<LoaderSpan> spans = spans_of(profiler.finish());
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

// Writes and reads the format with a few samples, and assumes the same time per sample for the others.
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
  const double work = steps * in_seconds(compute);
  const double rows = std::size(loader_settings) * (static_cast<double>(std::size(loader_caches)) * (pass + work) +
                                                    std::max(pass, measured_seconds) + 2 * measured_seconds);
  return writing + (1 + warm_passes) * pass + rows;
}

}  // namespace hs::bench::measure
