#include "bench/cli/inputs.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "bench/cli/build_info.h"
#include "bench/cli/console.h"
#include "data/memory_source.h"
#include "data/open_dataset.h"
#include "data/places.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/printable.h"

namespace hs::bench::cli {
namespace {

// If the number of classes comes from the labels, a stray label creates classes without an image.
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

DeviceChoice choose_device(std::string_view wanted, std::string_view built_cuda, const std::string& why_not_cuda) {
  if (wanted == "cpu") return {Device::cpu, ""};
  if (wanted == "cuda") {
    if (why_not_cuda.empty()) return {Device::cuda, ""};
    fail(ExitCode::device, "--device cuda: {}; use --device cpu or auto", why_not_cuda);
  }
  if (built_cuda == "OFF") return {Device::cpu, ""};
  if (!why_not_cuda.empty()) return {Device::cpu, why_not_cuda + ": using the CPU"};
  if (built_cuda.starts_with("EMULATED")) {
    return {Device::cpu, "cuda is emulated in this build, slowly: using the CPU; --device cuda runs the emulator"};
  }
  return {Device::cuda, ""};
}

Device resolve_device(const std::string& wanted) {
  const DeviceChoice choice = choose_device(wanted, build_info.cuda, why_unavailable(Device::cuda));
  if (!choice.notice.empty()) notice(choice.notice);
  return choice.device;
}

void use_threads(int64_t wanted) {
  set_threads(static_cast<int>(wanted));
  threads();  // starts them, so that a failure is reported before anything else is done
}

namespace {

// The first samples of a split. `name_or_path`: of a data set whose labels determine its classes; empty for digits.
std::unique_ptr<SampleSource> open_part(const FoundDataset& found, Part part, const Limit& limit,
                                        const std::string& name_or_path) {
  const bool are_digits = name_or_path.empty();
  // Generated samples take time, and the first ones are the same however many there are.
  const bool takes_some = are_digits || found.format == DataFormat::generated;
  auto source = open_dataset(found, part, takes_some ? limit.samples : 0);
  if (!takes_some && part == Part::train && !source->info().is_text()) warn_of_empty_classes(name_or_path, *source);
  const int64_t count = source->info().count;
  if (limit.samples > count && !limit.may_be_too_large) {
    fail(ExitCode::usage, "--{} {}: the set has {} samples", name(part), limit.samples, count);
  }
  if (limit.samples >= count) return source;
  return std::make_unique<FirstSamples>(std::move(source), limit.samples);
}

}  // namespace

TrainingData open_training_data(const std::string& name_or_path, Limit train, Limit test, int64_t context,
                                const std::string& vocabulary) {
  if (name_or_path.empty()) return open_digits("", train, test);
  FoundDataset found = find_dataset(name_or_path);
  found.context = context;
  found.vocabulary = vocabulary;
  TrainingData data;
  data.train = open_part(found, Part::train, train, name_or_path);
  data.test = open_part(found, Part::test, test, name_or_path);
  check_one_set(name_or_path, data.train->info(), data.test->info());
  data.synthetic = found.format == DataFormat::generated;
  data.source = describe(data.train->info(), data.test->info());
  if (data.synthetic) notice(data.source);
  return data;
}

TrainingData open_digits(const std::string& folder, Limit train, Limit test) {
  constexpr int64_t image_side = 28;
  const FoundDataset found = folder.empty() ? find_digits() : find_digits(folder);
  TrainingData data;
  data.train = open_part(found, Part::train, train, "");
  data.test = open_part(found, Part::test, test, "");
  const SampleInfo& info = data.train->info();
  check_one_set(printable(found.train), info, data.test->info());
  if (info.rows != image_side || info.columns != image_side) {
    fail(ExitCode::bad_input, "--data {}: images are {}x{}x{}, expected {}x{}x1", folder, info.rows, info.columns,
         info.channels, image_side, image_side);
  }
  data.synthetic = found.format == DataFormat::generated;
  if (data.synthetic) {
    data.source = fmt::format("synthetic digits, because MNIST was not found in {}; `data/get mnist` downloads it",
                              usual_places_text("mnist"));
    notice(data.source);
  } else {
    data.source = fmt::format("mnist from {}: {} training and {} test images", printable(found.train), info.count,
                              data.test->info().count);
  }
  return data;
}

}  // namespace hs::bench::cli
