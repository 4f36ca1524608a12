// halfstep-bench bench loader: the reading speed of every format with each cache, number of workers and prefetch depth,
// how long steps wait, and how loading and computing overlap.
//
// Besides "data" and "config" its record has
//   formats    read by one thread, in shuffled order, without a loader: name, files, bytes,
//              cold_samples_per_second (opened anew, first pass), warm_samples_per_second (median of further passes)
//   rows       format, cache, workers, prefetch; in warm epochs without computing:
//              samples_per_second, megabytes_per_second, wait_us_per_step; stall_share with --compute
//   timelines  of a throttled source: name, prefetch, workers, spans [lane, batch, begin_ms, end_ms]
#include <cmath>
#include <map>
#include <thread>

#include "bench/commands/commands.h"
#include "bench/measure/loader_search.h"
#include "bench/measure/observers/profiler.h"
#include "bench/measure/work_folder.h"
#include "data/io/memory_source.h"
#include "data/io/sample_writer.h"
#include "data/synthetic.h"
#include "engine/random.h"

namespace hs::bench::commands {
namespace {

namespace fs = std::filesystem;
using measure::loader_settings;
using measure::LoaderSetting;
using std::chrono::microseconds;

constexpr CacheMode loader_caches[] = {CacheMode::none, CacheMode::ram, CacheMode::device};
constexpr int64_t steps_with_work = 100;
constexpr double measured_seconds = 0.2;
constexpr int warm_passes = 7;

// Of a timeline: reading a sample sleeps, and so does the work of a step.
constexpr int64_t throttled_batch = 16, drawn_batches = 8;
constexpr microseconds throttled_delay(100), throttled_work(1800);

// A span of a timeline: reading a batch, or computing with it.
struct LoaderSpan {
  std::string lane;  // "load 1", "load 2", "step"
  int64_t batch = 0;
  double begin = 0, end = 0;  // milliseconds since the first span began
};

// What a loader and the steps that took its batches did, sorted by lane, then batch; without batches for later steps.
std::vector<LoaderSpan> spans_of(const measure::Profile& profile) {
  std::vector<LoaderSpan> all;
  std::map<size_t, size_t> loaders;  // the number of the thread with this row, from 1
  for (const measure::ProfileSpan& span : profile.spans) {
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
  double stall_share() const { return wait / seconds; }
};

// Takes `steps` batches from the loader and computes for `compute` after each.
LoaderRun run_loader(Loader& loader, int64_t steps, Compute how, microseconds compute) {
  LoaderRun run;
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start;
  for (; run.steps < steps; ++run.steps) {
    check_signals();
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

// Of data convert, fastest first; "memory": the data set stays there.
const std::string formats[] = {"memory", "record", "record_zlib", "tfrecord", "pgm", "jpeg", "png"};

void write(const std::string& format, const SampleSource& data, const fs::path& folder) {
  if (format == "memory") return;
  fs::create_directory(folder);
  const bool compress = format == "record_zlib";
  const auto writer = measure::write_split({compress ? "record" : format, 1, compress, Lifetime::temporary}, folder,
                                           Part::train, data.info());
  copy_samples(data, data.info().count, *writer, [](int64_t) { check_signals(); });
}

std::unique_ptr<SampleSource> open_written(const SampleSource& data, const fs::path& folder) {
  FoundDataset found = find_dataset(folder);
  found.set.scale = data.info().scale;  // which need not be measured
  return open_dataset(found, Part::train);
}

// What write() has written, or of a format in memory `data` itself.
struct Opened {
  const std::unique_ptr<SampleSource> own;
  const SampleSource& source;

  Opened(const std::string& format, const SampleSource& data, const fs::path& folder)
      : own(format == "memory" ? nullptr : open_written(data, folder)), source(own ? *own : data) {}
};

class LoaderCommand : public RecordingCommand {
  std::string device_ = "auto", format_ = "all";
  cli::DataChoice data_;
  LoaderOptions options_ = {.batch = 64};  // and seed and device, of all loaders
  int64_t samples_ = 20000, compute_ = 4000;
  bool quiet_ = false;

  void declare(cli::Flags& flags) override {
    std::vector<std::string> names = {"all"};
    names.insert(names.end(), std::begin(formats), std::end(formats));
    flags.examples({"bench loader", "bench loader --data cifar10 --format png --compute 5000",
                    "bench loader --samples 5000 --json loader.json --html loader.html"},
                   "docs/command_line.md says what each table measures.");
    flags.data(data_);
    flags.integer("--samples", own().unrecorded(), samples_, 1, int64_t{1} << 24,
                  "Samples, the first N of the training set");
    flags.batch(options_.batch);
    flags.integer("--compute", own(), compute_, 0, 10000000, "Work of a step in microseconds").record("compute_us");
    flags.seed(options_.seed);
    flags.device(device_);
    flags.choice("--format", own(), format_, names, "One format beside memory, or all");
    flags.quiet(quiet_);
  }

  void progress(const std::string& what) const {
    if (!quiet_) cli::notice(what);
    check_signals();
  }

  std::vector<std::string> measured_formats() const {
    std::vector<std::string> measured(std::begin(formats), std::end(formats));
    std::erase_if(measured,
                  [this](const auto& each) { return format_ != "all" && each != format_ && each != "memory"; });
    return measured;
  }

  std::string headline(const SampleInfo& info) const {
    return fmt::format("{}: {} samples of {} bytes, batch {}, device {}", info.name, info.count, info.image_bytes(),
                       options_.batch, hs::name(options_.device));
  }

  LoaderOptions with(const LoaderSetting& setting, CacheMode cache) const {
    LoaderOptions all = options_;
    all.workers = setting.workers;
    all.prefetch = setting.prefetch;
    all.cache = cache;
    return all;
  }

  // One thread reads all samples of `folder`, or of `data` for a format in memory, in shuffled order.
  void read(const std::string& format, const SampleSource& data, const fs::path& folder, report::Rows& rows) const {
    const SampleInfo& info = data.info();
    const std::vector<int64_t> order = shuffled(info.count, options_.seed);
    std::vector<uint8_t> batch(static_cast<size_t>(options_.batch * info.image_bytes()));
    const auto samples_per_second = [&](const SampleSource& source, Clock::time_point start) {
      for (int64_t i = 0; i < info.count; ++i) {
        if (i % options_.batch == 0) check_signals();
        source.read(order[static_cast<size_t>(i)], batch.data() + i % options_.batch * info.image_bytes());
      }
      return static_cast<double>(info.count) / seconds_since(start);
    };
    const Clock::time_point start = Clock::now();
    const Opened opened(format, data, folder);
    const double cold = samples_per_second(opened.source, start);
    std::vector<double> warm(warm_passes);
    for (double& rate : warm) rate = samples_per_second(opened.source, Clock::now());
    const auto [files, bytes] =
        opened.own ? measure::files_in(folder) : std::pair(int64_t{0}, info.count * info.image_bytes());
    rows.add({{"name", format, "format"},
              {"files", files, "files"},
              {"bytes", bytes, "MB", "{:.1f}", 1e-6},
              {"cold_samples_per_second", cold, "cold samples/s", "{:.0f}"},
              {"warm_samples_per_second", median(warm), "warm samples/s", "{:.0f}"}});
  }

  // One row per setting, all with this cache.
  void add_rows(const std::string& format, const SampleSource& source, CacheMode cache, report::Rows& rows) const {
    const Compute how = options_.device == Device::cpu ? Compute::spin : Compute::sleep;
    for (const LoaderSetting& setting : loader_settings) {
      Loader loader(source, with(setting, cache));
      const int64_t epoch = loader.batches_per_epoch();
      // The first epoch fills the caches, the operating system's too; from its time follows how many epochs to measure.
      const double first = run_loader(loader, epoch, how, microseconds(0)).seconds;
      const auto epochs = static_cast<int64_t>(std::clamp(measured_seconds / first, 1.0, 50.0));
      const LoaderRun alone = run_loader(loader, epochs * epoch, how, microseconds(0)),
                      with_work = run_loader(loader, std::min(epoch, steps_with_work), how, microseconds(compute_));
      const double megabytes = alone.samples_per_second() * static_cast<double>(source.info().image_bytes()) / 1e6;
      rows.add({{"format", format, "format"},
                {"cache", cli::name(cache), "cache"},
                {"workers", setting.workers, "workers"},
                {"prefetch", setting.prefetch, "prefetch"},
                {"samples_per_second", alone.samples_per_second(), "samples/s", "{:.0f}"},
                {"megabytes_per_second", megabytes, "MB/s", "{:.1f}"},
                {"wait_us_per_step", 1e6 * alone.wait / static_cast<double>(alone.steps), "wait us/step", "{:.1f}"},
                {"stall_share", with_work.stall_share(), fmt::format("stall at {} us", compute_), "{:.2f} %", 100}});
    }
  }

  // Loading and computing that both sleep: in sequence and overlapped.
  Json timelines() const {
    const MemorySource set = synthetic_digits(synthetic_train_seed, 3 * throttled_batch * drawn_batches);
    const ThrottledSource source(set);
    Json timelines = Json::array();
    for (const auto& [rung, setting] : {std::pair("synchronous", LoaderSetting{0, 0}),
                                        {"one thread, one batch ahead", {1, 1}},
                                        {"two threads, four batches ahead", {2, 4}}}) {
      LoaderOptions in_order = with(setting, CacheMode::none);
      in_order.batch = throttled_batch;
      in_order.shuffle = false;
      measure::Profiler profiler(Device::cpu);
      {
        Loader loader(source, in_order);
        run_loader(loader, drawn_batches, Compute::sleep, throttled_work);
      }
      const std::vector<LoaderSpan> spans = spans_of(profiler.finish());
      const Json list = mapped(spans, [](const LoaderSpan& span) {
        return Json::array({span.lane, span.batch, span.begin, span.end});
      });
      timelines.push_back(
          {{"name", rung}, {"workers", setting.workers}, {"prefetch", setting.prefetch}, {"spans", list}});
    }
    return timelines;
  }

  void run(const cli::Flags& flags) override {
    options_.device = cli::resolve_device(device_);
    outputs_.open();
    const cli::TrainingData all = cli::open_training_data(data_, {samples_, !flags.given("--samples")}, {1, true});
    const MemorySource data = load_samples(*all.train);
    const SampleInfo& info = data.info();
    const measure::WorkFolder work;

    Json record = report::new_record(name(), options_.device, flags.config(),
                                     {{"name", info.name},
                                      {"synthetic", all.synthetic},
                                      {"samples", info.count},
                                      {"image_bytes", info.image_bytes()}});
    report::Rows from_files{.table = {.title = "one thread, without a loader"}},
        rows{.table = {.title = "warm epochs through a loader", .left = 2}};
    const std::vector<std::string> measured = measured_formats();
    for (const std::string& format : measured) {
      progress(format);
      write(format, data, work.path() / format);
      read(format, data, work.path() / format, from_files);
    }
    for (const std::string& format : measured) {
      const Opened opened(format, data, work.path() / format);
      for (const CacheMode cache : loader_caches) {
        progress(fmt::format("{}, cache {}", format, cli::name(cache)));
        add_rows(format, opened.source, cache, rows);
      }
    }
    progress("timelines");
    record["formats"] = from_files.json;
    record["rows"] = rows.json;
    record["timelines"] = timelines();
    outputs_.finish(record, headline(info), {from_files.table, rows.table});
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_loader_command() { return std::make_unique<LoaderCommand>(); }

}  // namespace hs::bench::commands
