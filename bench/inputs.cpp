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
#include "models/models.h"

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

namespace {

std::string models_with_blocks() {
  std::vector<std::string> names = model_names();
  std::erase_if(names, [](const std::string& name) { return !model_has_blocks(name); });
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void declare_model(Flags& flags, std::string& model, int64_t& blocks) {
  flags.choice("--model", model, model_names(), "Model");
  flags.integer("--blocks", blocks, 1, 4096, "Blocks of the model (" + models_with_blocks() + ")");
}

void check_blocks(const Flags& flags, const std::string& model, int64_t blocks) {
  if (!flags.given("--blocks") || model_has_blocks(model)) return;
  fail(ExitCode::usage, "--blocks {}: {} has none; models with blocks: {}", blocks, model, models_with_blocks());
}

Json blocks_or_null(const std::string& model, int64_t blocks) {
  return model_has_blocks(model) ? Json(blocks) : Json(nullptr);
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
