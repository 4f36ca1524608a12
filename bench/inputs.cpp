#include "bench/inputs.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/build_info.h"
#include "bench/console.h"
#include "data/open_dataset.h"
#include "engine/check.h"

namespace hs::bench {
namespace {

// Where the labels alone say how many classes there are, a stray one makes some that have no image.
void warn_of_empty_classes(const std::string& name_or_path, const SampleSource& training) {
  const SampleInfo& info = training.info();
  std::vector<bool> seen(static_cast<size_t>(info.classes));
  for (int64_t i = 0; i < info.count; ++i) seen[static_cast<size_t>(training.label(i))] = true;
  const auto empty = std::ranges::count(seen, false);
  if (empty == 0) return;
  notice(fmt::format(
      "{}: {} classes, but {} of them without a training image, the first with the label {}; check the labels",
      name_or_path, info.classes, empty, std::ranges::find(seen, false) - seen.begin()));
}

}  // namespace

Device resolve_device(const std::string& wanted) {
  if (wanted == "cpu") return Device::cpu;
  if (is_available(Device::cuda)) return Device::cuda;
  if (wanted == "cuda") {
    fail(ExitCode::device, "--device cuda: {}; use --device cpu or auto", why_unavailable(Device::cuda));
  }
  if (build_info.cuda != std::string_view("OFF")) {
    notice(fmt::format("{}: using the CPU", why_unavailable(Device::cuda)));
  }
  return Device::cpu;
}

DatasetPair load_digits(const std::string& folder, int64_t train, int64_t test) {
  constexpr int64_t image_side = 28;
  DatasetPair data =
      load_mnist(folder.empty() ? std::nullopt : std::optional<std::filesystem::path>(folder), train, test);
  const Dataset& set = data.train;
  if (set.rows != image_side || set.columns != image_side || set.channels != 1) {
    fail(ExitCode::bad_input, "--data {}: images are {}x{}x{}, expected {}x{}x1", folder, set.rows, set.columns,
         set.channels, image_side, image_side);
  }
  if (set.synthetic) notice(data.source);
  return data;
}

TrainingData open_training_data(const std::string& name_or_path, Limit train, Limit test) {
  TrainingData data;
  if (name_or_path.empty()) {
    DatasetPair digits = load_digits("", train.samples, test.samples);
    data.synthetic = digits.train.synthetic;
    data.source = digits.source;
    const std::string name = digits.train.name;
    data.train = std::make_unique<MemorySource>(std::move(digits.train), name);
    data.test = std::make_unique<MemorySource>(std::move(digits.test), name);
    return data;
  }
  const FoundDataset found = find_dataset(name_or_path);
  const auto open = [&](Part part, const Limit& limit) {
    auto source = open_dataset(found, part);
    const int64_t count = source->info().count;
    if (part == Part::train) warn_of_empty_classes(name_or_path, *source);
    const int64_t wanted = limit.may_be_too_large ? std::min(limit.samples, count) : limit.samples;
    return first_samples(std::move(source), wanted, part == Part::train ? "--train" : "--test");
  };
  data.train = open(Part::train, train);
  data.test = open(Part::test, test);
  check_one_set(name_or_path, data.train->info(), data.test->info());
  data.synthetic = found.format == DataFormat::generated;
  data.source = describe(data.train->info(), data.test->info());
  if (data.synthetic) notice(data.source);
  return data;
}

}  // namespace hs::bench
