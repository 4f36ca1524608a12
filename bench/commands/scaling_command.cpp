// halfstep-bench scaling: a training step over everything that its time depends on, one thing at a time, so that growth
// that is worse than linear shows. Its record has "rows", one per axis and size: axis, size, seconds with their range,
// rounds, and growth, the exponent from the size before: seconds ~ size^growth; and "axes", each with its exponent.
#include <cmath>

#include "bench/cli/forced_kernels.h"
#include "bench/commands/commands.h"
#include "bench/measure/one_step.h"
#include "bench/measure/step_flags.h"
#include "data/io/memory_source.h"
#include "engine/random.h"

namespace hs::bench::commands {
namespace {

constexpr int64_t side = 28, classes = 10;

// What one measurement runs: a step on one batch, or with `samples` the steps of one pass over a set through a loader.
struct Sizes {
  int64_t batch, rows = side, channels = 1, samples = 0;
};

struct Point {
  int64_t size;
  std::vector<double> seconds;
  double growth = NAN;  // log(seconds / seconds before) / log(size / size before)
};

struct Axis {
  std::string name, unit;
  std::vector<int64_t> sizes;
  std::function<Sizes(int64_t size)> sizes_at;
};

// 1, 4, 16, ... and `largest`.
std::vector<int64_t> powers_of_four(int64_t largest) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size < largest; size *= 4) sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

MemorySource random_pixels(const Sizes& sizes, int64_t count) {
  SampleInfo info;
  info.rows = info.columns = sizes.rows;
  info.channels = sizes.channels;
  info.name = "random pixels";
  info.classes = classes;
  std::vector<uint8_t> pixels(static_cast<size_t>(count * info.image_bytes()));
  std::vector<int32_t> labels(static_cast<size_t>(count));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(random_bits({.seed = 1}, i));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % classes);
  return {info, pixels, labels};
}

double growth(const Point& from, const Point& to) {
  return std::log(median(to.seconds) / median(from.seconds)) /
         std::log(static_cast<double>(to.size) / static_cast<double>(from.size));
}

// The exponent over the upper half of an axis, where fixed costs are small, and the steepest step. `points`: of one
// axis
std::string sentence(const Axis& axis, const std::vector<Point>& points, double exponent) {
  const auto by_growth = [](const Point& a, const Point& b) { return a.growth < b.growth; };
  const auto steepest = std::max_element(points.begin() + 1, points.end(), by_growth);
  return fmt::format("{}: seconds grow with the power {:.2f} of the {}, from {} to {}; steepest to {}: {:.2f}{}",
                     axis.name, exponent, axis.unit, points[points.size() / 2 - 1].size, points.back().size,
                     steepest->size, steepest->growth, steepest->growth > 1.1 ? ", worse than linear" : "");
}

class ScalingCommand : public RecordingCommand {
  measure::StepFlags settings_;
  int64_t largest_ = 8192, rounds_ = 7;
  double seconds_ = 0.5;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"scaling", "scaling --model mlp --precision bf16 --json scaling.json", "scaling --largest 512 --rounds 3"},
        "docs/chapters/15_finding_the_bottleneck.md says what the columns mean.");
    settings_.declare(flags, {.data = false});
    flags.integer("--largest", own(), largest_, 4, 65536, "Largest batch; samples go to twice as many");
    flags.integer("--rounds", own(), rounds_, 3, 1000, "Fewest measurements of each size");
    flags.real("--seconds", own(), seconds_, 0, 3600, "No more than these after this time");
  }

  std::vector<Axis> axes(Device device) const {
    std::vector<int64_t> samples = powers_of_four(2 * largest_), counts;
    std::erase_if(samples, [&](int64_t count) { return 4 * count < settings_.experiment.batch; });
    for (int64_t count = 1; count < threads(); count *= 2) counts.push_back(count);
    counts.push_back(threads());
    std::vector<Axis> axes = {
        {"batch", "samples in a step", powers_of_four(largest_), [](int64_t size) { return Sizes{size}; }},
        {"samples", "samples in an epoch", samples,
         [this](int64_t size) { return Sizes{.batch = std::min(size, settings_.experiment.batch), .samples = size}; }},
        {"image",
         "pixels",
         {14 * 14, 28 * 28, 56 * 56, 112 * 112},
         [this](int64_t size) {
           return Sizes{.batch = settings_.experiment.batch, .rows = std::lround(std::sqrt(static_cast<double>(size)))};
         }},
        {"channels", "channels of an image", {1, 2, 4, 8, 16, 32}, [this](int64_t size) {
           return Sizes{.batch = settings_.experiment.batch, .channels = size};
         }}};
    if (device == Device::cpu) {
      axes.push_back({"threads", "threads", counts, [this](int64_t size) {
                        set_threads(static_cast<int>(size));
                        return Sizes{.batch = settings_.experiment.batch};
                      }});
    }
    return axes;
  }

  // Seconds of each measurement: at least `rounds`, and more while there is time.
  std::vector<double> time(const Sizes& sizes, Device device) const {
    const MemorySource source = random_pixels(sizes, std::max(sizes.samples, sizes.batch));
    Loader loader(source, {.batch = sizes.batch, .shuffle = sizes.samples > 0, .device = device});
    const int64_t accumulate = settings_.experiment.accumulate;
    measure::OneStep step(settings_.experiment, source.info());
    const std::vector<Batch> batches = measure::next_batches(loader, accumulate);
    for (int i = 0; i < 2; ++i) step.run(batches);
    const int64_t steps = (sizes.samples + sizes.batch * accumulate - 1) / (sizes.batch * accumulate);
    std::vector<double> seconds;
    const Clock::time_point begin = Clock::now();
    while (static_cast<int64_t>(seconds.size()) < rounds_ || seconds_since(begin) < seconds_) {
      check_signals();
      seconds.push_back(seconds_on(device, [&] {
        if (sizes.samples == 0) step.run(batches);
        for (int64_t i = 0; i < steps; ++i) step.run(measure::next_batches(loader, accumulate));
      }));
    }
    return seconds;
  }

  void run(const cli::Flags& flags) override {
    settings_.use();
    const measure::Experiment& experiment = settings_.experiment;
    const Device device = experiment.device;
    const cli::ForcedKernels forced(experiment.kernels);
    outputs_.open();
    const int all_threads = threads();
    Json record = report::new_record(name(), device, flags.config());
    record["rows"] = record["axes"] = Json::array();
    report::Rows rows;
    std::vector<std::string> remarks;
    for (const Axis& axis : axes(device)) {
      std::vector<Point> points;
      for (const int64_t size : axis.sizes) {
        Point point = {.size = size, .seconds = time(axis.sizes_at(size), device)};
        if (!points.empty()) point.growth = growth(points.back(), point);
        const double middle = median(point.seconds);
        const auto [fastest, slowest] = std::ranges::minmax(point.seconds);
        rows.add(
            {{"axis", axis.name, "axis"},
             {"size", size, "size"},
             {"seconds", middle, "ms", "{:.3f}", 1e3},
             {"seconds_low", fastest, "fastest", "{:.3f}", 1e3},
             {"seconds_high", slowest, "slowest", "{:.3f}", 1e3},
             {"", axis.name == "threads" ? Json() : Json(middle / static_cast<double>(size)), "us each", "{:.2f}", 1e6},
             {"rounds", point.seconds.size()},
             {"growth", points.empty() ? Json() : Json(point.growth), "growth", "{:.2f}"}});
        points.push_back(point);
      }
      if (points.size() < 2) continue;  // one thread
      const double exponent = growth(points[points.size() / 2 - 1], points.back());
      record["axes"].push_back({{"axis", axis.name}, {"unit", axis.unit}, {"exponent", exponent}});
      remarks.push_back(sentence(axis, points, exponent));
    }
    set_threads(all_threads);
    record["rows"] = rows.json;
    outputs_.finish(record,
                    fmt::format("{} on random pixels, batch {}, {}, device {}, threads {}", experiment.model,
                                experiment.batch, hs::name(experiment.precision), hs::name(device), all_threads),
                    {report::without_empty_columns(rows.table)}, remarks);
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_scaling_command() { return std::make_unique<ScalingCommand>(); }

}  // namespace hs::bench::commands
