#include "bench/cli/inputs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/json_file.h"
#include "data/io/memory_source.h"
#include "data/open_dataset.h"
#include "engine/check.h"
#include "engine/cpu_features.h"
#include "engine/files/crc32c.h"
#include "engine/parallel.h"
#include "engine/parsed_number.h"
#include "engine/printable.h"

namespace hs::bench::cli {
namespace {

void set_options(FoundDataset& found, const DataChoice& choice, const TextOptions& text, LeftOut& left_out) {
  found.text = text;
  found.text.how_to_drop = ": --unknown drop";
  found.set.size = choice.size;
  found.set.how_to_resize = resizing_text;
  if (choice.scale) found.set.scale = choice.scale;
  if (choice.skip_damaged) {
    found.set.on_damaged = [&](const std::string& why) { left_out.add(why); };
  } else {
    found.set.how_to_leave_out = leaving_out_text;
  }
}

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

using Order = SampleOrder;
constexpr double usual_test_split = 0.2;

std::unique_ptr<SampleSource> cut(std::unique_ptr<SampleSource> source, Part part, const Limit& limit, Order order) {
  const int64_t count = source->info().count;
  if (limit.samples > count && !limit.may_be_too_large) {
    fail(ExitCode::usage, "--{} {}: the set has {} samples", name(part), limit.samples, count);
  }
  if (limit.samples == automatic_samples || limit.samples >= count) return source;
  return std::make_unique<PartOfSamples>(std::move(source), 0, limit.samples, order);
}

// Those of a set that is known by its name are mixed as they are, and those of a text belong together.
void cut_both(TrainingData& data, const FoundDataset& found, const Limit& train, const Limit& test) {
  const Order order = found.has_mixed_samples() || data.train->info().is_text() ? Order::as_it_is : Order::mixed;
  data.train = cut(std::move(data.train), Part::train, train, order);
  data.test = cut(std::move(data.test), Part::test, test, order);
}

// Makes the test part of a set that has none of some of its training samples, and looks at how to normalise those that
// remain.
void split(TrainingData& data, bool measures) {
  double& fraction = data.choice.test_split;
  const bool is_automatic = fraction == DataChoice::automatic;
  if (is_automatic) fraction = usual_test_split;
  const std::shared_ptr<const SampleSource> all = std::move(data.train);
  const SampleInfo& info = all->info();
  if (info.count < 2) {
    fail(ExitCode::usage, "{}: has one sample and no test part, expected 2 or more, of which --test-split cuts one off",
         info.name);
  }
  TrainAndTest parts = split_samples(all, fraction);
  data.train = std::move(parts.train);
  data.test = std::move(parts.test);
  data.is_split = true;
  const PixelScale scale = measures ? measured_scale(*data.train) : info.scale;
  for (const auto& part : {data.train.get(), data.test.get()}) part->set_scale_and_names(scale, {});
  if (!is_automatic) return;
  notice(fmt::format("{}: has no test part; {} of its {} samples, mixed, are the test (--test-split {})", info.name,
                     data.test->info().count, info.count, fraction));
}

void open_test(TrainingData& data, const FoundDataset& found, const std::string& what, int64_t limit) {
  if (const double fraction = data.choice.test_split; fraction != DataChoice::automatic) {
    fail(ExitCode::usage, "--test-split {}: {} has a test part of its own; leave it out", fraction, what);
  }
  data.test = open_dataset(found, Part::test, limit);
  if (!data.contents.empty()) data.contents += "; test: " + fingerprint(*data.test);
}

void say_remarks(const TrainingData& data, const SampleInfo& train, const FoundDataset& found) {
  for (const std::string& remark : {train.remark, data.is_split ? "" : data.test->info().remark, found.remark}) {
    if (!remark.empty()) notice(remark);
  }
  data.left_out.say();
}

std::string describe_digits(const FoundDataset& found, const SampleInfo& train, const SampleInfo& test) {
  if (found.format != DataFormat::generated) {
    return fmt::format("mnist from {}: {} training and {} test images", printable(found.train), train.count,
                       test.count);
  }
  return fmt::format(
      "synthetic digits, because MNIST was not found in {}; `halfstep-bench data get mnist` downloads it",
      usual_places_text("mnist"));
}

}  // namespace

void LeftOut::say() const {
  if (count > 0) notice(fmt::format("left out {} damaged image{}, the first: {}", count, count == 1 ? "" : "s", first));
}

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

Precision resolve_precision(std::optional<Precision> wanted, Device device) {
  if (wanted) return *wanted;
  const bool fast_pairs = multiplies_bf16_faster();
  const Precision best = device == Device::cuda ? Precision::f16 : fast_pairs ? Precision::bf16 : Precision::f32;
  notice(fmt::format("--precision auto: {}, {}", hs::name(best),
                     device == Device::cuda ? "for the tensor cores; not measured on a GPU so far"
                     : fast_pairs           ? "the fastest measured where a CPU multiplies bf16 faster than f32"
                                            : "the fastest measured on a CPU that does not multiply bf16 faster"));
  return best;
}

void use_threads(int64_t wanted) {
  set_threads(static_cast<int>(wanted));
  threads();  // starts them, so that a failure is reported before anything else is done
}

std::optional<ImageShape> parse_size(const std::string& text) {
  if (text.empty()) return {};
  if (const size_t x = text.find('x'); x != std::string::npos) {
    const auto rows = parsed_number<int64_t>(text.substr(0, x)), columns = parsed_number<int64_t>(text.substr(x + 1));
    const ImageShape shape{rows.value_or(0), columns.value_or(0)};
    if (shape.is_allowed()) return shape;
  }
  fail(ExitCode::usage, "--size {}: expected ROWSxCOLUMNS, each 1 to {}, as in 32x32", printable_text(text),
       max_image_side);
}

std::string lasting_name(const std::string& name_or_path) {
  if (std::ranges::find(dataset_names(), name_or_path) != dataset_names().end()) return name_or_path;
  std::error_code error;
  const std::string path = std::filesystem::weakly_canonical(std::filesystem::absolute(name_or_path, error), error);
  return error ? name_or_path : path;
}

std::string size_text(const DataChoice& choice) {
  return choice.size ? fmt::format("{}x{}", choice.size->rows, choice.size->columns) : "";
}

std::string fingerprint(const SampleSource& source) {
  const SampleInfo& info = source.info();
  uint32_t sum = 0;
  for (int64_t i = 0; i < info.count; ++i) {
    const int32_t label = source.label(i);
    sum = crc32c(&label, sizeof label, sum);
  }
  constexpr int64_t max_images = 100;
  std::vector<uint8_t> image(static_cast<size_t>(info.image_bytes()));
  for (int64_t i = 0; i < std::min(info.count, max_images); ++i) {
    source.read(i * (info.count / std::min(info.count, max_images)), image.data());
    sum = crc32c(image.data(), image.size(), sum);
  }
  return fmt::format("{} samples of {}, {} classes, checksum {:08x}", info.count, info.text(), info.classes, sum);
}

TrainingData open_training_data(const DataChoice& choice, Limit train, Limit test, const TextOptions& text) {
  const bool is_headline = choice.name.empty();
  FoundDataset found = is_headline ? find_digits() : find_dataset(choice.name);
  const std::string what = is_headline ? printable(found.train) : printable(choice.name);
  TrainingData data;
  data.choice = choice;
  data.synthetic = found.format == DataFormat::generated;
  data.choice.name = !is_headline ? lasting_name(choice.name) : data.synthetic ? "synthetic" : "mnist";
  set_options(found, choice, text, data.left_out);
  if (is_headline && train.samples == automatic_samples) train = {headline_train, true};
  if (is_headline && test.samples == automatic_samples) test = {headline_test, true};
  // Of these the first samples are the same however many are opened, and the others take time.
  const bool takes_some = is_headline || data.synthetic;
  const bool splits = !found.has(Part::test), measures = splits && needs_scale(found);
  if (measures) found.set.scale = default_pixel_scale;  // until it is known which samples are for training
  data.train = open_dataset(found, Part::train, takes_some ? train.samples : 0);
  const SampleInfo info = data.train->info();
  found.set.scale = info.scale;  // not measured again
  if (!takes_some && !found.is_named) data.contents = fingerprint(*data.train);
  if (!takes_some && !info.is_text()) warn_of_empty_classes(what, *data.train);
  splits ? split(data, measures) : open_test(data, found, what, takes_some ? test.samples : 0);
  check_one_set(what, info, data.test->info());
  say_remarks(data, info, found);
  cut_both(data, found, train, test);
  const SampleInfo &used = data.train->info(), &tested = data.test->info();
  data.source = is_headline ? describe_digits(found, used, tested) : describe(used, tested);
  if (data.synthetic) notice(data.source);
  return data;
}

}  // namespace hs::bench::cli
