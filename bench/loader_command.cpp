// halfstep-bench loader: how fast every format is read, what each cache, number of workers and depth makes of it, which
// is the cheapest setting that never lets a step wait, and that loading and computing overlap.
//
// Beside "data" and "config" its record has
//   formats    as the set is read by one thread, in shuffled order, without a loader: name, files, bytes,
//              cold_samples_per_second (opened anew, first pass), warm_samples_per_second (median of further passes)
//   rows       format, cache, workers, prefetch; of warm epochs without computing:
//              samples_per_second, megabytes_per_second, wait_us_per_step; stall_share with --compute
//   sweep      of each format the cheapest row with a stall share below 1 %: cache, workers, prefetch, or null
//   overlap    a throttled source: load_ms (of a batch, alone), compute_ms, workers, prefetch, step_ms; and the sum and
//              the larger of load_ms / workers and compute_ms
//   timelines  of a throttled source: name, prefetch, workers, spans [lane, batch, begin_ms, end_ms]
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bench/clock.h"
#include "bench/commands.h"
#include "bench/console.h"
#include "bench/environment.h"
#include "bench/inputs.h"
#include "bench/interrupt.h"
#include "bench/loader_formats.h"
#include "bench/loader_measure.h"
#include "bench/loading_flags.h"
#include "bench/record.h"
#include "bench/statistics.h"
#include "bench/work_folder.h"
#include "data/input_file.h"
#include "data/synthetic.h"
#include "engine/check.h"
#include "engine/random.h"

namespace hs::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr double no_stall = 0.01;
constexpr int64_t steps_with_work = 100;
constexpr double measured_seconds = 0.2;

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : formats()) names.push_back(format.name);
  return names;
}

// Settings in the order of what they cost: threads, then memory.
struct Setting {
  int64_t workers, prefetch;
};
constexpr Setting settings[] = {{0, 0}, {1, 1}, {1, 2}, {2, 4}};

class LoaderCommand : public Command {
 public:
  std::string name() const override { return "loader"; }
  std::string summary() const override { return "Measure loading: formats, caches, workers, depth, overlap"; }
  std::string footnote() const override;
  void declare(Flags& flags) override;
  void run(const Flags& flags) override;

 private:
  void write(const Format& format, const SampleSource& data, const fs::path& folder) const;
  Json measure_format(const Format& format, const SampleSource& data, const fs::path& folder) const;
  Json measure_rows(const Format& format, const SampleSource& source) const;
  Json measure_overlap() const;
  Json measure_timelines() const;
  LoaderOptions options(const Setting& setting, CacheMode cache) const;
  void say(const std::string& line) const;

  std::string data_, device_name_ = "auto", format_ = "all", json_;
  int64_t samples_ = 20000, batch_ = 64, compute_ = 4000, seed_ = 1;
  Device device_ = Device::cpu;
};

std::string LoaderCommand::footnote() const {
  return R"(Writes the set in each format below the folder for temporary files, and measures there:

  formats    one thread reads all samples in shuffled order: cold, right after opening (the files themselves are in the
             system's cache, they were just written), and warm
  settings   warm epochs through a loader, nothing else to do; then with --compute microseconds of work at each
             step (on a core with the CPU, beside it with a GPU)
  sweep      of each format the first setting without a stall, fewest threads first
  overlap    a source that sleeps, and a step that sleeps: one after the other, and at the same time
  timelines  the same, drawn: the digit is the last of the batch's number

Examples:
  halfstep-bench loader
  halfstep-bench loader --data cifar10 --format png --compute 5000
  halfstep-bench loader --samples 5000 --json loader.json
)";
}

void LoaderCommand::declare(Flags& flags) {
  std::vector<std::string> names = format_names();
  names.insert(names.begin(), "all");
  flags.text("--data", data_, "NAME", "mnist, fashion_mnist, cifar10, synthetic, or a folder in any format");
  flags.integer("--samples", samples_, 1, int64_t{1} << 24, "Samples, the first N of the training set");
  flags.integer("--batch", batch_, 1, 1000000, "Samples per step");
  flags.choice("--format", format_, names, "One format beside memory, or all");
  flags.integer("--compute", compute_, 0, 10000000, "Work of a step in microseconds");
  flags.integer("--seed", seed_, 0, (int64_t{1} << 53) - 1000, "Seed of the order");
  flags.choice("--device", device_name_, {"auto", "cpu", "cuda"}, "Device; auto: a GPU if there is one");
  flags.text("--json", json_, "FILE", "Write the results as JSON, - for stdout");
}

void LoaderCommand::say(const std::string& line) const {
  json_ == "-" ? write_stderr(line) : write_stdout(line);
  check_signals("while measuring; no results were written");
}

LoaderOptions LoaderCommand::options(const Setting& setting, CacheMode cache) const {
  LoaderOptions options;
  options.batch = batch_;
  options.seed = static_cast<uint64_t>(seed_);
  options.device = device_;
  options.workers = setting.workers;
  options.prefetch = setting.prefetch;
  options.cache = cache;
  return options;
}

void LoaderCommand::write(const Format& format, const SampleSource& data, const fs::path& folder) const {
  fs::create_directory(folder);
  const auto writer = format.write(folder, data.info());
  copy_samples(data, data.info().count, *writer,
               [](int64_t) { check_signals("while measuring; no results were written"); });
}

Json LoaderCommand::measure_format(const Format& format, const SampleSource& data, const fs::path& folder) const {
  const int64_t count = data.info().count;
  std::vector<int64_t> order;
  const RandomStream stream{.seed = static_cast<uint64_t>(seed_), .purpose = RandomPurpose::shuffle};
  for (int64_t i = 0; i < count; ++i) {
    order.push_back(
        static_cast<int64_t>(permute_index(static_cast<uint64_t>(i), static_cast<uint64_t>(count), stream)));
  }
  std::vector<uint8_t> batch(static_cast<size_t>(batch_ * data.info().image_bytes()));
  const auto pass = [&](const SampleSource& source) {
    for (int64_t i = 0; i < count; ++i) {
      source.read(order[static_cast<size_t>(i)], batch.data() + i % batch_ * data.info().image_bytes());
    }
  };

  int64_t files = 0, bytes = count * data.info().image_bytes();
  Clock::time_point start = Clock::now();
  const auto opened = format.open ? format.open(folder) : nullptr;
  const SampleSource& source = opened ? *opened : data;
  pass(source);
  const double cold = static_cast<double>(count) / seconds_since(start);
  std::vector<double> warm;
  for (int i = 0; i < 7; ++i) {
    start = Clock::now();
    pass(source);
    warm.push_back(static_cast<double>(count) / seconds_since(start));
    check_signals("while measuring; no results were written");
  }
  if (opened) {
    bytes = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      ++files;
      bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  say(fmt::format("{:<12}{:>7}{:>10.1f}{:>16.0f}{:>16.0f}\n", format.name, files, static_cast<double>(bytes) / 1e6,
                  cold, median(warm)));
  return {{"name", format.name},
          {"files", files},
          {"bytes", bytes},
          {"cold_samples_per_second", cold},
          {"warm_samples_per_second", median(warm)}};
}

Json LoaderCommand::measure_rows(const Format& format, const SampleSource& source) const {
  Json rows = Json::array();
  const Compute how = device_ == Device::cpu ? Compute::spin : Compute::sleep;
  for (const CacheMode cache : {CacheMode::none, CacheMode::ram, CacheMode::device}) {
    for (const Setting& setting : settings) {
      Loader loader(source, options(setting, cache));
      const int64_t epoch = loader.batches_per_epoch();
      // The first epoch fills the caches, the system's too, and says how many make a fifth of a second.
      const double first = run_loader(loader, epoch, how, microseconds(0)).seconds;
      const auto epochs = static_cast<int64_t>(std::clamp(measured_seconds / first, 1.0, 50.0));
      const LoaderRun alone = run_loader(loader, epochs * epoch, how, microseconds(0));
      const LoaderRun with_work = run_loader(loader, std::min(epoch, steps_with_work), how, microseconds(compute_));
      const double megabytes = alone.samples_per_second() * static_cast<double>(source.info().image_bytes()) / 1e6;
      const double wait_us = 1e6 * alone.per_step(alone.wait);
      rows.push_back({{"format", format.name},
                      {"cache", hs::bench::name(cache)},
                      {"workers", setting.workers},
                      {"prefetch", setting.prefetch},
                      {"samples_per_second", alone.samples_per_second()},
                      {"megabytes_per_second", megabytes},
                      {"wait_us_per_step", wait_us},
                      {"stall_share", with_work.stall_share()}});
      say(fmt::format("{:<12}{:<8}{:>8}{:>10}{:>14.0f}{:>10.1f}{:>14.1f}{:>11.2f} %\n", format.name,
                      hs::bench::name(cache), setting.workers, setting.prefetch, alone.samples_per_second(), megabytes,
                      wait_us, 100 * with_work.stall_share()));
    }
  }
  return rows;
}

// The cheapest of a format's rows: fewest threads, then the least memory, which is the order of the settings, then the
// least of a cache.
Json cheapest(const Json& rows) {
  for (const Setting& setting : settings) {
    for (const Json& row : rows) {
      if (row["workers"] != setting.workers || row["prefetch"] != setting.prefetch) continue;
      if (row["stall_share"].get<double>() < no_stall) return row;
    }
  }
  return nullptr;
}

// A set of 24 batches of 16 samples, each of which sleeps 100 microseconds. Of the timelines 8 batches are drawn.
constexpr int64_t throttled_batch = 16, throttled_batches = 24;
constexpr int64_t drawn_batches = 8;
constexpr microseconds throttled_delay(100);

Json LoaderCommand::measure_overlap() const {
  const MemorySource set(synthetic_digits(synthetic_train_seed, throttled_batch * throttled_batches), "");
  const ThrottledSource source(set, throttled_delay, throttled_batch, nullptr);
  const auto run_with = [&](const Setting& setting, double compute_ms) {
    LoaderOptions throttled = options(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    Loader loader(source, throttled);
    const auto compute = microseconds(static_cast<int64_t>(1000 * compute_ms));
    const LoaderRun run = run_loader(loader, loader.batches_per_epoch(), Compute::sleep, compute);
    return 1e3 * run.per_step(run.seconds);
  };
  Json rows = Json::array();
  const double load_ms = run_with({0, 0}, 0);
  say("\nthrottled source, ms per step\n      load   compute   workers  prefetch      step       sum   largest\n");
  for (const double factor : {0.5, 1.0, 2.0}) {
    for (const Setting& setting : settings) {
      const double compute_ms = factor * load_ms, step_ms = run_with(setting, compute_ms);
      const double largest = std::max(load_ms / static_cast<double>(std::max<int64_t>(setting.workers, 1)), compute_ms);
      rows.push_back({{"load_ms", load_ms},
                      {"compute_ms", compute_ms},
                      {"workers", setting.workers},
                      {"prefetch", setting.prefetch},
                      {"step_ms", step_ms},
                      {"sum_ms", load_ms + compute_ms},
                      {"largest_ms", largest}});
      say(fmt::format("{:>10.2f}{:>10.2f}{:>10}{:>10}{:>10.2f}{:>10.2f}{:>10.2f}\n", load_ms, compute_ms,
                      setting.workers, setting.prefetch, step_ms, load_ms + compute_ms, largest));
    }
  }
  return rows;
}

Json LoaderCommand::measure_timelines() const {
  const MemorySource set(synthetic_digits(synthetic_train_seed, throttled_batch * throttled_batches), "");
  const struct {
    const char* name;
    Setting setting;
  } rungs[] = {
      {"synchronous", {0, 0}}, {"one thread, one batch ahead", {1, 1}}, {"two threads, four batches ahead", {2, 4}}};
  Json timelines = Json::array();
  for (const auto& [rung, setting] : rungs) {
    Timeline timeline;
    const ThrottledSource source(set, throttled_delay, throttled_batch, &timeline);
    LoaderOptions throttled = options(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    throttled.shuffle = false;  // so that the index tells the batch
    std::vector<Span> spans;
    {
      Loader loader(source, throttled);
      run_loader(loader, drawn_batches, Compute::sleep, microseconds(1800), &timeline);
      spans = timeline.spans();
    }
    // Batches that were made for later are left out.
    std::erase_if(spans, [](const Span& span) { return span.batch >= drawn_batches; });
    double end = 0;
    for (const Span& span : spans) end = std::max(end, span.end);
    Json list = Json::array();
    for (const Span& span : spans) list.push_back({span.lane, span.batch, span.begin, span.end});
    timelines.push_back(
        {{"name", rung}, {"workers", setting.workers}, {"prefetch", setting.prefetch}, {"spans", list}});
    say(fmt::format("\n{}: {:.1f} ms\n{}", rung, end, draw(spans, 96)));
  }
  return timelines;
}

void LoaderCommand::run(const Flags& flags) {
  device_ = resolve_device(device_name_);
  const JsonFile json(json_);
  watch_signals();
  const TrainingData all = open_training_data(data_, {samples_, !flags.given("--samples")}, {1, true});
  const MemorySource data(load_all(*all.train), all.train->info().name);
  const SampleInfo& info = data.info();
  const WorkFolder work;

  Json record = {
      {"schema", schema_name},
      {"command", name()},
      {"environment", environment(device_)},
      {"data",
       {{"name", info.name},
        {"synthetic", all.synthetic},
        {"samples", info.count},
        {"image_bytes", info.image_bytes()}}},
      {"config",
       {{"batch", batch_}, {"compute_us", compute_}, {"seed", seed_}, {"device", device_name_}, {"format", format_}}}};
  record["formats"] = record["rows"] = record["sweep"] = Json::array();
  say(fmt::format("{}: {} samples of {} bytes\n", info.name, info.count, info.image_bytes()));
  std::vector<const Format*> measured;
  for (const Format& format : formats()) {
    if (format_ == "all" || format.name == format_ || !format.write) measured.push_back(&format);
  }
  say("\nformat        files        MB  cold samples/s  warm samples/s\n");
  for (const Format* format : measured) {
    const fs::path folder = work.path / format->name;
    if (format->write) write(*format, data, folder);
    record["formats"].push_back(measure_format(*format, data, folder));
  }
  say(fmt::format("\nformat      cache    workers  prefetch     samples/s      MB/s  wait us/step  stall at {} us\n",
                  compute_));
  for (const Format* format : measured) {
    const auto opened = format->open ? format->open(work.path / format->name) : nullptr;
    const Json rows = measure_rows(*format, opened ? *opened : static_cast<const SampleSource&>(data));
    record["rows"].insert(record["rows"].end(), rows.begin(), rows.end());
    const Json best = cheapest(rows);
    record["sweep"].push_back({{"format", format->name}, {"cheapest", best}});
  }
  say(fmt::format("\ncheapest setting with a stall share below {} % at {} us of work per step\n", 100 * no_stall,
                  compute_));
  for (const Json& row : record["sweep"]) {
    const Json& best = row["cheapest"];
    say(best.is_null() ? fmt::format("{:<12}none of these\n", row["format"].get<std::string>())
                       : fmt::format("{:<12}--cache {} --workers {} --prefetch {}\n", row["format"].get<std::string>(),
                                     best["cache"].get<std::string>(), best["workers"].get<int64_t>(),
                                     best["prefetch"].get<int64_t>()));
  }
  record["overlap"] = measure_overlap();
  record["timelines"] = measure_timelines();
  json.write(record);
}

}  // namespace

std::unique_ptr<Command> make_loader_command() { return std::make_unique<LoaderCommand>(); }

}  // namespace hs::bench
