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
#include <cmath>
#include <filesystem>

#include "bench/cli/clock.h"
#include "bench/cli/console.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/loading_flags.h"
#include "bench/commands/commands.h"
#include "bench/measure/experiment.h"
#include "bench/measure/forecast.h"
#include "bench/measure/loader_formats.h"
#include "bench/measure/loader_measure.h"
#include "bench/measure/statistics.h"
#include "bench/measure/work_folder.h"
#include "bench/report/loader_tables.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "data/io/input_file.h"
#include "data/synthetic.h"
#include "engine/check.h"
#include "engine/random.h"

namespace hs::bench::commands {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr int64_t steps_with_work = 100;
constexpr double measured_seconds = 0.2;

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const measure::Format& format : measure::formats()) names.push_back(format.name);
  return names;
}

// Settings in the order of what they cost: threads, then memory.
struct Setting {
  int64_t workers, prefetch;
};
constexpr Setting settings[] = {{0, 0}, {1, 1}, {1, 2}, {2, 4}};
constexpr CacheMode caches[] = {CacheMode::none, CacheMode::ram, CacheMode::device};
constexpr int warm_passes = 7;
constexpr const char* no_results = "while measuring; no results were written";

class LoaderCommand : public cli::Command {
 public:
  std::string name() const override { return "loader"; }
  std::string summary() const override { return "Measure loading: formats, caches, workers, depth, overlap"; }
  std::string footnote() const override;
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  void write(const measure::Format& format, const SampleSource& data, const fs::path& folder) const;
  Json measure_format(const measure::Format& format, const SampleSource& data, const fs::path& folder) const;
  Json measure_rows(const measure::Format& format, const SampleSource& source) const;
  Json measure_overlap() const;
  Json measure_timelines(std::string& drawings) const;
  LoaderOptions options(const Setting& setting, CacheMode cache) const;
  std::vector<const measure::Format*> measured_formats() const;
  std::string headline(const SampleInfo& info) const;
  void print_list() const;
  void print_plan(const SampleSource& data) const;
  void progress(const std::string& what) const;

  std::string data_, device_name_ = "auto", format_ = "all";
  int64_t samples_ = 20000, batch_ = 64, compute_ = 4000, seed_ = 1;
  bool list_ = false, dry_run_ = false, quiet_ = false;
  Device device_ = Device::cpu;
  report::Outputs outputs_;
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
  halfstep-bench loader --samples 5000 --json loader.json --html loader.html
)";
}

void LoaderCommand::declare(cli::Flags& flags) {
  std::vector<std::string> names = format_names();
  names.insert(names.begin(), "all");
  flags.text("--data", data_, "NAME", "mnist, fashion_mnist, cifar10, synthetic, or a folder in any format");
  flags.integer("--samples", samples_, 1, int64_t{1} << 24, "Samples, the first N of the training set");
  flags.integer("--batch", batch_, 1, 1000000, "Samples per step");
  flags.choice("--format", format_, names, "One format beside memory, or all");
  flags.integer("--compute", compute_, 0, 10000000, "Work of a step in microseconds");
  flags.integer("--seed", seed_, 0, (int64_t{1} << 53) - 1000, "Seed of the order");
  flags.choice("--device", device_name_, {"auto", "cpu", "cuda"}, "Device; auto: a GPU if there is one");
  outputs_.declare(flags);
  flags.on_off("--list", list_, "Name the formats, caches and settings, and end");
  flags.on_off("--dry-run", dry_run_, "Try a few samples of each format, print the plan with minutes, and end");
  flags.on_off("--quiet", quiet_, "No progress");
}

void LoaderCommand::progress(const std::string& what) const {
  if (!quiet_) cli::notice(what);
  cli::check_signals(no_results);
}

std::vector<const measure::Format*> LoaderCommand::measured_formats() const {
  std::vector<const measure::Format*> measured;
  for (const measure::Format& format : measure::formats()) {
    if (format_ == "all" || format.name == format_ || !format.write) measured.push_back(&format);
  }
  return measured;
}

std::string LoaderCommand::headline(const SampleInfo& info) const {
  return fmt::format("{}: {} samples of {} bytes, batch {}, device {}", info.name, info.count, info.image_bytes(),
                     batch_, hs::name(device_));
}

void LoaderCommand::print_list() const {
  report::Table table = {.heads = {"format", "caches", "workers and batches ahead"}, .lines = {}, .left = 3};
  std::string cache_names, setting_names;
  for (const CacheMode cache : caches) {
    cache_names += fmt::format("{}{}", cache_names.empty() ? "" : ", ", cli::name(cache));
  }
  for (const Setting& setting : settings) {
    setting_names += fmt::format("{}{} and {}", setting_names.empty() ? "" : ", ", setting.workers, setting.prefetch);
  }
  for (const measure::Format* format : measured_formats())
    table.lines.push_back({format->name, cache_names, setting_names});
  cli::write_stdout(to_text(table));
}

// Each format is written and read with a few samples. Reading the others takes as long each.
void LoaderCommand::print_plan(const SampleSource& data) const {
  const MemorySource some = load_samples(data, 256);
  const measure::WorkFolder work;
  report::Table table = {{"format", "seconds"}, {}};
  const auto count = static_cast<double>(data.info().count), tried = static_cast<double>(some.info().count);
  const double steps = std::min(std::ceil(count / static_cast<double>(batch_)), static_cast<double>(steps_with_work));
  double seconds = 0;
  for (const measure::Format* format : measured_formats()) {
    Clock::time_point start = Clock::now();
    if (format->write) write(*format, some, work.path() / format->name);
    const double writing = seconds_since(start) / tried * count;
    const auto opened = format->open ? format->open(work.path() / format->name) : nullptr;
    const SampleSource& source = opened ? *opened : static_cast<const SampleSource&>(some);
    std::vector<uint8_t> image(static_cast<size_t>(source.info().image_bytes()));
    start = Clock::now();
    for (int64_t i = 0; i < source.info().count; ++i) source.read(i, image.data());
    const double pass = seconds_since(start) / tried * count;
    const double rows = std::size(settings) * (static_cast<double>(std::size(caches)) *
                                                   (pass + steps * 1e-6 * static_cast<double>(compute_)) +
                                               std::max(pass, measured_seconds) + 2 * measured_seconds);
    const double all = writing + (1 + warm_passes) * pass + rows;
    table.lines.push_back({format->name, fmt::format("{:.1f}", all)});
    seconds += all;
  }
  cli::write_stdout(fmt::format("{}\n{}{}: {} formats: about {}; the set takes {} MiB, a cache as much again\n",
                                headline(data.info()), report::to_terminal({table}, data.info().name), data.info().name,
                                table.lines.size(), measure::minutes_text(seconds),
                                report::mebibytes(static_cast<size_t>(data.info().count * data.info().image_bytes()))));
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

void LoaderCommand::write(const measure::Format& format, const SampleSource& data, const fs::path& folder) const {
  fs::create_directory(folder);
  const auto writer = format.write(folder, data.info());
  copy_samples(data, data.info().count, *writer, [](int64_t) { cli::check_signals(no_results); });
}

Json LoaderCommand::measure_format(const measure::Format& format, const SampleSource& data,
                                   const fs::path& folder) const {
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
  for (int i = 0; i < warm_passes; ++i) {
    start = Clock::now();
    pass(source);
    warm.push_back(static_cast<double>(count) / seconds_since(start));
    cli::check_signals(no_results);
  }
  if (opened) {
    bytes = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      ++files;
      bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  return {{"name", format.name},
          {"files", files},
          {"bytes", bytes},
          {"cold_samples_per_second", cold},
          {"warm_samples_per_second", measure::median(warm)}};
}

Json LoaderCommand::measure_rows(const measure::Format& format, const SampleSource& source) const {
  Json rows = Json::array();
  const measure::Compute how = device_ == Device::cpu ? measure::Compute::spin : measure::Compute::sleep;
  for (const CacheMode cache : caches) {
    progress(fmt::format("{}, cache {}", format.name, cli::name(cache)));
    for (const Setting& setting : settings) {
      Loader loader(source, options(setting, cache));
      const int64_t epoch = loader.batches_per_epoch();
      // The first epoch fills the caches, the system's too, and says how many make a fifth of a second.
      const double first = measure::run_loader(loader, epoch, how, microseconds(0)).seconds;
      const auto epochs = static_cast<int64_t>(std::clamp(measured_seconds / first, 1.0, 50.0));
      const measure::LoaderRun alone = measure::run_loader(loader, epochs * epoch, how, microseconds(0));
      const measure::LoaderRun with_work =
          measure::run_loader(loader, std::min(epoch, steps_with_work), how, microseconds(compute_));
      const double megabytes = alone.samples_per_second() * static_cast<double>(source.info().image_bytes()) / 1e6;
      const double wait_us = 1e6 * alone.per_step(alone.wait);
      rows.push_back({{"format", format.name},
                      {"cache", cli::name(cache)},
                      {"workers", setting.workers},
                      {"prefetch", setting.prefetch},
                      {"samples_per_second", alone.samples_per_second()},
                      {"megabytes_per_second", megabytes},
                      {"wait_us_per_step", wait_us},
                      {"stall_share", with_work.stall_share()}});
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
      if (row["stall_share"].get<double>() < report::no_stall) return row;
    }
  }
  return nullptr;
}

// A set of 24 batches of 16 samples, each of which sleeps 100 microseconds. Of the timelines 8 batches are drawn.
constexpr int64_t throttled_batch = 16, throttled_batches = 24;
constexpr int64_t drawn_batches = 8;
constexpr microseconds throttled_delay(100);

Json LoaderCommand::measure_overlap() const {
  const MemorySource set = synthetic_digits(synthetic_train_seed, throttled_batch * throttled_batches);
  const measure::ThrottledSource source(set, throttled_delay, throttled_batch, nullptr);
  const auto run_with = [&](const Setting& setting, double compute_ms) {
    LoaderOptions throttled = options(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    Loader loader(source, throttled);
    const auto compute = microseconds(static_cast<int64_t>(1000 * compute_ms));
    const measure::LoaderRun run =
        measure::run_loader(loader, loader.batches_per_epoch(), measure::Compute::sleep, compute);
    return 1e3 * run.per_step(run.seconds);
  };
  Json rows = Json::array();
  const double load_ms = run_with({0, 0}, 0);
  progress("overlap");
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
    }
  }
  return rows;
}

Json LoaderCommand::measure_timelines(std::string& drawings) const {
  progress("timelines");
  const MemorySource set = synthetic_digits(synthetic_train_seed, throttled_batch * throttled_batches);
  const struct {
    const char* name;
    Setting setting;
  } rungs[] = {
      {"synchronous", {0, 0}}, {"one thread, one batch ahead", {1, 1}}, {"two threads, four batches ahead", {2, 4}}};
  Json timelines = Json::array();
  for (const auto& [rung, setting] : rungs) {
    measure::Timeline timeline;
    const measure::ThrottledSource source(set, throttled_delay, throttled_batch, &timeline);
    LoaderOptions throttled = options(setting, CacheMode::none);
    throttled.batch = throttled_batch;
    throttled.shuffle = false;  // so that the index tells the batch
    std::vector<measure::LoaderSpan> spans;
    {
      Loader loader(source, throttled);
      measure::run_loader(loader, drawn_batches, measure::Compute::sleep, microseconds(1800), &timeline);
      spans = timeline.spans();
    }
    // Batches that were made for later are left out.
    std::erase_if(spans, [](const measure::LoaderSpan& span) { return span.batch >= drawn_batches; });
    double end = 0;
    for (const measure::LoaderSpan& span : spans) end = std::max(end, span.end);
    Json list = Json::array();
    for (const measure::LoaderSpan& span : spans) list.push_back({span.lane, span.batch, span.begin, span.end});
    timelines.push_back(
        {{"name", rung}, {"workers", setting.workers}, {"prefetch", setting.prefetch}, {"spans", list}});
    drawings += fmt::format("\n{}: {:.1f} ms\n{}", rung, end, measure::draw(spans, 96));
  }
  return timelines;
}

void LoaderCommand::run(const cli::Flags& flags) {
  if (list_) return print_list();
  device_ = cli::resolve_device(device_name_);
  outputs_.open();
  const cli::TrainingData all = cli::open_training_data(data_, {samples_, !flags.given("--samples")}, {1, true});
  const MemorySource data = load_samples(*all.train);
  if (dry_run_) return print_plan(data);
  const SampleInfo& info = data.info();
  const measure::WorkFolder work;

  Json record = report::new_record(name(), device_);
  record["data"] = {
      {"name", info.name}, {"synthetic", all.synthetic}, {"samples", info.count}, {"image_bytes", info.image_bytes()}};
  record["config"] = {
      {"batch", batch_}, {"compute_us", compute_}, {"seed", seed_}, {"device", device_name_}, {"format", format_}};
  record["formats"] = record["rows"] = record["sweep"] = Json::array();
  const std::vector<const measure::Format*> measured = measured_formats();
  for (const measure::Format* format : measured) {
    progress(format->name);
    const fs::path folder = work.path() / format->name;
    if (format->write) write(*format, data, folder);
    record["formats"].push_back(measure_format(*format, data, folder));
  }
  for (const measure::Format* format : measured) {
    const auto opened = format->open ? format->open(work.path() / format->name) : nullptr;
    const Json rows = measure_rows(*format, opened ? *opened : static_cast<const SampleSource&>(data));
    record["rows"].insert(record["rows"].end(), rows.begin(), rows.end());
    record["sweep"].push_back({{"format", format->name}, {"cheapest", cheapest(rows)}});
  }
  std::string drawings;
  record["overlap"] = measure_overlap();
  record["timelines"] = measure_timelines(drawings);
  report::present(record, headline(info), report::loader_tables(record));
  outputs_.finish(record);
  outputs_.use_stdout() ? cli::write_stderr(drawings) : cli::write_stdout(drawings);
}

}  // namespace

std::unique_ptr<cli::Command> make_loader_command() { return std::make_unique<LoaderCommand>(); }

}  // namespace hs::bench::commands
