// halfstep-bench bench loader: the reading speed of every format with each cache, number of workers and prefetch depth,
// the cheapest setting with which steps never wait, and the overlap of loading and computing.
//
// Besides "data" and "config" its record has
//   formats    read by one thread, in shuffled order, without a loader: name, files, bytes,
//              cold_samples_per_second (opened anew, first pass), warm_samples_per_second (median of further passes)
//   rows       format, cache, workers, prefetch; in warm epochs without computing:
//              samples_per_second, megabytes_per_second, wait_us_per_step; stall_share with --compute
//   sweep      for each format the cheapest row with a stall share below 1 %: cache, workers, prefetch, or null
//   overlap    of a throttled source: load_ms (per batch, alone), compute_ms, workers, prefetch, step_ms; the sum of
//              load_ms and compute_ms, and the larger of load_ms / workers and compute_ms
//   timelines  of a throttled source: name, prefetch, workers, spans [lane, batch, begin_ms, end_ms]
#include <fmt/ranges.h>

#include "bench/commands/commands.h"
#include "bench/measure/forecast.h"
#include "bench/measure/loader_bench.h"
#include "bench/measure/work_folder.h"
#include "data/io/memory_source.h"

namespace hs::bench::commands {
namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names = {"all"};
  for (const measure::Format& format : measure::formats()) names.push_back(format.name);
  return names;
}

// The cheapest of a format's rows: fewest threads, then least memory (the order of the settings), then the smallest
// cache.
Json cheapest(const Json& rows, const std::string& format) {
  for (const measure::LoaderSetting& setting : measure::loader_settings) {
    for (const Json& row : rows) {
      if (row["format"] != format || row["workers"] != setting.workers || row["prefetch"] != setting.prefetch) continue;
      if (row["stall_share"].get<double>() < measure::no_stall) return row;
    }
  }
  return nullptr;
}

class LoaderCommand : public RecordingCommand {
  std::string device_ = "auto", format_ = "all";
  cli::DataChoice data_;
  int64_t samples_ = 20000, batch_ = 64, compute_ = 4000;
  uint64_t seed_ = 1;
  bool list_ = false, dry_run_ = false, quiet_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples({"bench loader", "bench loader --data cifar10 --format png --compute 5000",
                    "bench loader --samples 5000 --json loader.json --html loader.html"},
                   "docs/command_line.md says what each table measures.");
    flags.data(data_);
    flags.integer("--samples", samples_, 1, int64_t{1} << 24, "Samples, the first N of the training set").unrecorded();
    flags.batch(batch_);
    flags.integer("--compute", compute_, 0, 10000000, "Work of a step in microseconds").record("compute_us");
    flags.seed(seed_);
    flags.device(device_);
    flags.choice("--format", format_, format_names(), "One format beside memory, or all");
    flags.list(list_);
    flags.dry_run(dry_run_);
    flags.quiet(quiet_);
  }

  void progress(const std::string& what) const {
    if (!quiet_) cli::notice(what);
    cli::check_signals("while measuring; no results were written");
  }

  measure::LoaderBench bench(Device device) const {
    measure::LoaderBench bench;
    bench.options.batch = batch_;
    bench.options.seed = seed_;
    bench.options.device = device;
    bench.compute = std::chrono::microseconds(compute_);
    bench.check = [] { cli::check_signals("while measuring; no results were written"); };
    return bench;
  }

  std::vector<const measure::Format*> measured_formats() const {
    std::vector<const measure::Format*> measured;
    for (const measure::Format& format : measure::formats()) {
      if (format_ == "all" || format.name == format_ || !format.write) measured.push_back(&format);
    }
    return measured;
  }

  std::string headline(const SampleInfo& info, Device device) const {
    return fmt::format("{}: {} samples of {} bytes, batch {}, device {}", info.name, info.count, info.image_bytes(),
                       batch_, hs::name(device));
  }

  void print_list() const {
    const auto caches = mapped(measure::loader_caches, [](CacheMode cache) { return cli::name(cache); });
    const auto settings = mapped(measure::loader_settings, [](const measure::LoaderSetting& setting) {
      return fmt::format("{} and {}", setting.workers, setting.prefetch);
    });
    report::Table table = {.heads = {"format", "caches", "workers and batches ahead"}, .lines = {}, .left = 3};
    for (const measure::Format* format : measured_formats()) {
      table.lines.push_back(
          {format->name, fmt::format("{}", fmt::join(caches, ", ")), fmt::format("{}", fmt::join(settings, ", "))});
    }
    cli::write_stdout(to_text(table));
  }

  void print_plan(const SampleSource& data, Device device) const {
    const SampleInfo& info = data.info();
    const MemorySource some = load_samples(data, 256);
    const measure::WorkFolder work;
    measure::DryRun plan({"format", "seconds"});
    const std::vector<const measure::Format*> measured = measured_formats();
    for (const measure::Format* format : measured) {
      const double seconds = bench(device).forecast(*format, some, info.count, work.path() / format->name);
      plan.add({format->name, fmt::format("{:.1f}", seconds)}, seconds);
    }
    plan.print(headline(info, device), info.name, fmt::format("{} formats", measured.size()),
               fmt::format("; the set takes {} MiB, a cache as much again",
                           report::mebibytes(static_cast<size_t>(info.count * info.image_bytes()))));
  }

  void run(const cli::Flags& flags) override {
    if (list_) return print_list();
    const Device device = cli::resolve_device(device_);
    outputs_.open();
    const cli::TrainingData all = cli::open_training_data(data_, {samples_, !flags.given("--samples")}, {1, true});
    const MemorySource data = load_samples(*all.train);
    if (dry_run_) return print_plan(data, device);
    const SampleInfo& info = data.info();
    const measure::WorkFolder work;
    const measure::LoaderBench bench = this->bench(device);

    Json record = report::new_record(name(), device, flags.config(),
                                     {{"name", info.name},
                                      {"synthetic", all.synthetic},
                                      {"samples", info.count},
                                      {"image_bytes", info.image_bytes()}});
    report::Rows read{.table = {.title = "one thread, without a loader"}},
        rows{.table = {.title = "warm epochs through a loader", .left = 2}},
        sweep{.table = {.title = fmt::format("cheapest setting with a stall share below {} % at {} us of work per step",
                                             100 * measure::no_stall, compute_),
                        .left = 2}};
    const std::vector<const measure::Format*> measured = measured_formats();
    for (const measure::Format* format : measured) {
      progress(format->name);
      bench.write(*format, data, work.path() / format->name);
      bench.read(*format, data, work.path() / format->name, read);
    }
    for (const measure::Format* format : measured) {
      const auto opened = format->open ? format->open(work.path() / format->name) : nullptr;
      const SampleSource& source = opened ? *opened : static_cast<const SampleSource&>(data);
      for (const CacheMode cache : measure::loader_caches) {
        progress(fmt::format("{}, cache {}", format->name, cli::name(cache)));
        bench.add_rows(*format, source, cache, rows);
      }
      const Json best = cheapest(rows.json, format->name);
      sweep.add({{"format", format->name, "format"},
                 {"cheapest", best},
                 {"",
                  best.is_null() ? "none of these"
                                 : fmt::format("--cache {} --workers {} --prefetch {}", report::text(best, "cache"),
                                               report::number(best, "workers"), report::number(best, "prefetch")),
                  "cheapest setting"}});
    }
    std::string drawings;
    progress("overlap");
    const report::Rows overlap = bench.overlap();
    progress("timelines");
    record["formats"] = read.json;
    record["rows"] = rows.json;
    record["sweep"] = sweep.json;
    record["overlap"] = overlap.json;
    record["timelines"] = bench.timelines(drawings);
    outputs_.finish(record, headline(info, device), {read.table, rows.table, sweep.table, overlap.table});
    outputs_.use_stdout() ? cli::write_stderr(drawings) : cli::write_stdout(drawings);
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_loader_command() { return std::make_unique<LoaderCommand>(); }

}  // namespace hs::bench::commands
