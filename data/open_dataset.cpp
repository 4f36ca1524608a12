#include "data/open_dataset.h"

#include <fmt/ranges.h>

#include <strings.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "data/formats/arrays.h"
#include "data/formats/cifar10.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/record_file.h"
#include "data/formats/shards.h"
#include "data/formats/tfrecord.h"
#include "data/io/memory_source.h"
#include "data/synthetic.h"
#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

// $HALFSTEP_DATA/NAME and $HOME/.cache/halfstep/NAME, each only if its variable is set.
std::vector<fs::path> default_places(const std::string& name) {
  std::vector<fs::path> places;
  const auto add = [&](const char* variable, const fs::path& below) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') places.push_back(fs::path(value) / below);
  };
  add("HALFSTEP_DATA", name);
  add("HOME", fs::path(".cache/halfstep") / name);
  return places;
}

// Throws Error (io) if that cannot be determined.
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) {
    fail(ExitCode::io, "{}: cannot be looked at: {}", printable(path), error.message());
  }
  return status.type() != fs::file_type::not_found;
}

// The first of these paths that exists.
fs::path first_there(const std::vector<fs::path>& paths) {
  const auto first = std::ranges::find_if(paths, is_there);
  return first == paths.end() ? fs::path() : *first;
}

// The four files of MNIST, and of every set that is published like it: train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, in this order; also spelled with .idx, and
// with the suffix .gz.
struct IdxPlace {
  fs::path folder;
  std::array<fs::path, 4> files;     // empty: missing
  std::array<std::string, 4> names;  // the first spelling
};
IdxPlace look_for_idx(const fs::path& folder) {
  constexpr std::array<const char*, 4> names = {"train-images{}idx3-ubyte", "train-labels{}idx1-ubyte",
                                                "t10k-images{}idx3-ubyte", "t10k-labels{}idx1-ubyte"};
  IdxPlace place{folder, {}, {}};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto spelled = [&](const char* separator) { return fmt::format(fmt::runtime(names[i]), separator); };
    place.names[i] = spelled("-");
    place.files[i] = first_there({folder / spelled("-"), folder / spelled("."), folder / (spelled("-") + ".gz"),
                                  folder / (spelled(".") + ".gz")});
  }
  return place;
}

// Scales are those of the training images, and names of classes those of the pages that publish the sets.
const std::vector<SetIdentity>& known_sets() {
  static const std::vector<SetIdentity> sets = {
      {"mnist", PixelScale{0.1307f, 0.3081f}},
      {"fashion_mnist",
       PixelScale{0.2860f, 0.3530f},
       {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"}},
      {"cifar10",
       cifar10_scale,
       {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}},
      {"tinyshakespeare", default_pixel_scale}};
  return sets;
}

const SetIdentity* find_known(const std::string& name) {
  const auto known = std::ranges::find(known_sets(), name, &SetIdentity::name);
  return known == known_sets().end() ? nullptr : &*known;
}

SetIdentity identity_of(const fs::path& path) {
  fs::path last = path.has_filename() ? path : path.parent_path();
  std::error_code ignored;
  if (last.filename() == "." || last.filename() == "..") last = fs::canonical(last, ignored);
  return {printable(last.filename())};
}

fs::path shards_there(const fs::path& prefix) { return has_shards(prefix) ? prefix : fs::path(); }

// The folder of images with the first of these names that there is, in any case; others that there are: to `unused`.
fs::path part_folder(const fs::path& folder, const std::vector<std::string>& names, std::string& unused) {
  const std::vector<std::string> there = class_names(folder);
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    std::ranges::copy_if(there, std::back_inserter(parts), [&](const std::string& one) {
      return ::strcasecmp(one.c_str(), name.c_str()) == 0 && is_image_folder(folder / one);
    });
  }
  for (size_t i = 1; i < parts.size(); ++i) unused += fmt::format(" {}", printable_text(parts[i]));
  return parts.empty() ? fs::path() : folder / parts.front();
}

// All formats that match the files of a folder.
std::vector<FoundDataset> formats_in(const fs::path& folder) {
  std::vector<FoundDataset> all;
  const auto add = [&](DataFormat format, const fs::path& train, const fs::path& test) {
    if (!train.empty() || !test.empty()) all.push_back({format, identity_of(folder), train, test});
  };
  const IdxPlace idx = look_for_idx(folder);
  const auto part_of_idx = [&](size_t file) {
    return idx.files[file].empty() && idx.files[file + 1].empty() ? fs::path() : folder;
  };
  add(DataFormat::idx, part_of_idx(0), part_of_idx(2));
  add(DataFormat::record, shards_there(folder / "train.record"), shards_there(folder / "test.record"));
  const auto tfrecord = [&](const char* name) {
    const fs::path path = folder / name;
    return has_shards(path) ? path : first_there({path});
  };
  add(DataFormat::tfrecord, tfrecord("train.tfrecord"), tfrecord("test.tfrecord"));
  for (const fs::path& place : {folder, folder / "cifar-10-batches-bin"}) {
    const auto part = [&](const char* name) { return is_there(place / name) ? place : fs::path(); };
    add(DataFormat::cifar10, part("data_batch_1.bin"), part("test_batch.bin"));
  }
  const fs::path text = first_there({folder / "input.txt"});
  add(DataFormat::text, text, text);
  const auto arrays = [&](bool training) { return has_arrays(folder, training) ? folder : fs::path(); };
  add(DataFormat::arrays, arrays(true), arrays(false));
  std::string unused;
  const fs::path train = part_folder(folder, {"train", "training"}, unused);
  const fs::path test = part_folder(folder, {"test", "testing", "validation", "valid", "val", "dev"}, unused);
  add(DataFormat::images, train, test);
  if (!unused.empty()) all.back().remark = fmt::format("{}: not used:{}", printable(folder), unused);
  if (train.empty() && test.empty()) add(DataFormat::images, is_image_folder(folder) ? folder : fs::path(), {});
  if (!all.empty()) return all;
  std::vector<fs::path> texts;  // of another name: the only one is meant
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") texts.push_back(entry.path());
  }
  if (texts.size() == 1) add(DataFormat::text, texts[0], texts[0]);
  return all;
}

FoundDataset find_in_folder(const fs::path& folder) {
  const std::vector<FoundDataset> all = formats_in(folder);
  if (all.empty()) {
    fail(ExitCode::bad_input,
         "{}: no data set in this folder; looked for the files of idx (train-images-idx3-ubyte ...), record "
         "(train.record-00000-of-...), tfrecord (train.tfrecord ...), cifar10 (data_batch_1.bin ...), text (input.txt, "
         "or one .txt file), arrays (x_train.npy ...) and for images as CLASS/FILE.png, .jpg, .jpeg or .pgm, in it or "
         "in train/ and test/{}; `halfstep-bench data get NAME DIR` downloads mnist, fashion_mnist, cifar10 or "
         "tinyshakespeare",
         printable(folder), has_images(folder) ? ", but the images here are in no folder of a class" : "");
  }
  if (all.size() > 1) {
    fail(ExitCode::bad_input, "{}: files of two formats, {} and {}; keep one format in a folder", printable(folder),
         name(all[0].format), name(all[1].format));
  }
  return all.front();
}

FoundDataset find_named(const SetIdentity& known) {
  const fs::path folder = first_there(default_places(known.name));
  if (folder.empty()) {
    fail(ExitCode::io, "{}: not found in {}; `halfstep-bench data get {}` downloads it, and `synthetic` needs no files",
         known.name, usual_places_text(known.name), known.name);
  }
  FoundDataset found = find_in_folder(folder);
  found.set = known;
  found.is_named = true;
  return found;
}

void check_complete(const IdxPlace& place, size_t from, size_t to) {
  std::vector<std::string> missing;
  for (size_t i = from; i < to; ++i) {
    if (place.files[i].empty()) missing.push_back(place.names[i]);
  }
  if (missing.empty()) return;
  fail(ExitCode::io,
       "{}: {} not found, also not spelled with .idx or with .gz; `halfstep-bench data get NAME DIR` downloads a set",
       printable(place.folder), fmt::join(missing, ", "));
}

// 10 of a set known by name, otherwise one more than the largest label in either split.
int classes_of(const IdxPlace& place, const FoundDataset& found) {
  if (found.is_named) return 10;
  int32_t largest = 0;
  for (const size_t file : {1, 3}) {
    if (place.files[file].empty()) continue;
    const std::vector<int32_t> labels = read_idx_labels(place.files[file], max_classes);
    largest = std::max(largest, *std::ranges::max_element(labels));
  }
  return largest + 1;
}

std::unique_ptr<SampleSource> open_idx(const FoundDataset& found, Part part, int64_t limit) {
  const IdxPlace place = look_for_idx(found.path(part));
  const size_t first = part == Part::train ? 0 : 2;
  check_complete(place, first, first + 2);
  IdxImages images = read_idx_images(place.files[first], limit);
  const ImageShape shape{images.rows, images.columns, 1};
  if (!shape.is_allowed()) {
    fail(ExitCode::bad_input, "{}: images of {} x {} pixels, expected at most {} x {}", printable(place.files[first]),
         images.rows, images.columns, max_image_side, max_image_side);
  }
  SampleInfo info{shape, found.set.name, fmt::format("IDX files in {}", printable(place.folder))};
  info.scale = found.set.scale.value_or(default_pixel_scale);
  info.classes = classes_of(place, found);
  std::vector<int32_t> labels = read_idx_labels(place.files[first + 1], info.classes);
  if (images.total != std::ssize(labels)) {
    fail(ExitCode::bad_input, "{} holds {} images but {} holds {} labels; expected as many, download both again",
         printable(place.files[first]), images.total, printable(place.files[first + 1]), labels.size());
  }
  labels.resize(static_cast<size_t>(images.count));
  return std::make_unique<MemorySource>(std::move(info), std::move(images.pixels), std::move(labels));
}

std::unique_ptr<SampleSource> open_images(const FoundDataset& found, Part part, int64_t) {
  if (!found.train.empty() && !found.test.empty()) {
    const std::vector<std::string> train = class_names(found.train), test = class_names(found.test);
    if (train != test) {
      const auto [a, b] = std::ranges::mismatch(train, test);
      fail(ExitCode::bad_input, "{} has the class {} where {} has {}; expected the same folders in both",
           printable(found.train), a == train.end() ? "(none)" : printable(*a), printable(found.test),
           b == test.end() ? "(none)" : printable(*b));
    }
  }
  return open_image_folder(found.path(part), found.set, found.path(part == Part::train ? Part::test : Part::train));
}

std::unique_ptr<SampleSource> open_generated(const FoundDataset&, Part part, int64_t limit) {
  const bool training = part == Part::train;
  const int64_t all = training ? 60000 : 10000;  // as many as MNIST has
  const int64_t count = limit == 0 ? all : std::min(limit, all);
  // make_unique() would move it, and a source cannot be moved.
  return std::unique_ptr<SampleSource>(
      new MemorySource(synthetic_digits(training ? synthetic_train_seed : synthetic_test_seed, count)));
}

// In the order of DataFormat.
struct Format {
  const char* name;
  bool has_scale;  // the files say it, or it has none
  std::unique_ptr<SampleSource> (*open)(const FoundDataset& found, Part part, int64_t limit);
};
constexpr Format formats[] = {
    {"idx", false, open_idx},
    {"record", true, [](const auto& found, Part part, int64_t) { return open_records(found.path(part)); }},
    {"tfrecord", false,
     [](const auto& found, Part part, int64_t) { return open_tfrecords(found.path(part), found.set); }},
    {"images", false, open_images},
    {"cifar10", true,
     [](const auto& found, Part part, int64_t) { return open_cifar10(found.path(part), part == Part::train); }},
    {"text", true,
     [](const auto& found, Part part, int64_t) {
       return open_text(found.path(part), found.set, part == Part::train, found.text);
     }},
    {"arrays", false,
     [](const auto& found, Part part, int64_t) {
       return open_arrays(found.path(part), part == Part::train, found.set);
     }},
    {"generated", true, open_generated}};

const Format& table_row(DataFormat format) { return formats[static_cast<size_t>(format)]; }

}  // namespace

const char* name(Part part) { return part == Part::train ? "train" : "test"; }

const char* name(DataFormat format) { return table_row(format).name; }

std::string usual_places_text(const std::string& name) {
  std::string text;
  for (const fs::path& place : default_places(name)) text += (text.empty() ? "" : " and ") + printable(place);
  return text.empty() ? "any place (HALFSTEP_DATA and HOME are not set)" : text;
}

const std::vector<std::string>& dataset_names() {
  static const std::vector<std::string> names = {"mnist", "fashion_mnist", "cifar10", "tinyshakespeare", "synthetic"};
  return names;
}

FoundDataset find_dataset(const std::string& name_or_path) {
  if (name_or_path == "synthetic") return {DataFormat::generated, {"synthetic digits"}, {}, {}, true};
  if (const SetIdentity* known = find_known(name_or_path)) return find_named(*known);

  const fs::path path = name_or_path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return find_in_folder(path);
  // One file, or a prefix: the name determines the format.
  const std::string file = path.filename().string();
  const bool tfrecord = file.find(".tfrecord") != std::string::npos;
  if (is_there(path) || has_shards(path)) {
    if (tfrecord) return {DataFormat::tfrecord, identity_of(path), path, {}};
    if (file.find(".record") != std::string::npos) return {DataFormat::record, identity_of(path), path, {}};
    if (file.ends_with(".txt")) return {DataFormat::text, identity_of(path), path, path};
    fail(ExitCode::bad_input,
         "{}: expected a folder, or a file whose name has .record or .tfrecord in it or ends in .txt", printable(path));
  }
  fail(ExitCode::io, "{}: not found; expected a folder, record files, a .txt file, or one of the names {}",
       printable(path), fmt::join(dataset_names(), ", "));
}

FoundDataset find_digits() {
  for (const fs::path& folder : default_places("mnist")) {
    const IdxPlace place = look_for_idx(folder);
    if (std::ranges::all_of(place.files, &fs::path::empty)) continue;
    check_complete(place, 0, 4);
    return {DataFormat::idx, *find_known("mnist"), folder, folder, true};
  }
  return find_dataset("synthetic");
}

bool needs_scale(const FoundDataset& found) { return !found.set.scale && !table_row(found.format).has_scale; }

// Rounded to the four digits that are usual; of more than 64 MiB of pixels, of samples at even distances.
PixelScale measured_scale(const SampleSource& source) {
  constexpr int64_t max_bytes = int64_t{1} << 26;
  const SampleInfo& info = source.info();
  if (info.type != DType::u8) return {};
  const int64_t max = std::max<int64_t>(1, max_bytes / info.image_bytes()), step = (info.count + max - 1) / max;
  std::array<int64_t, 256> counts{};
  std::vector<uint8_t> image(static_cast<size_t>(info.image_bytes()));
  for (int64_t i = 0; i < info.count; i += step) {
    source.read(i, image.data());
    for (const uint8_t pixel : image) ++counts[pixel];
  }
  double pixels = 0, sum = 0, squares = 0;
  for (size_t value = 0; value < counts.size(); ++value) {
    const double scaled = static_cast<double>(value) / 255, count = static_cast<double>(counts[value]);
    pixels += count, sum += count * scaled, squares += count * scaled * scaled;
  }
  const double mean = sum / pixels, deviation = std::sqrt(std::max(0.0, squares / pixels - mean * mean));
  const auto rounded = [](double number) { return static_cast<float>(std::round(number * 1e4) / 1e4); };
  constexpr double least = 1e-3;  // images of one colour
  return {rounded(mean), deviation < least ? default_pixel_scale.deviation : rounded(deviation)};
}

std::unique_ptr<SampleSource> open_dataset(const FoundDataset& found, Part part, int64_t limit) {
  if (!found.has(part)) {
    fail(ExitCode::io, "{}: the set has no {} part, only the other one in {}", found.set.name, name(part),
         printable(found.path(part == Part::train ? Part::test : Part::train)));
  }
  if (found.set.size && found.format != DataFormat::images) {
    fail(ExitCode::usage, "{}: has samples of one size; only images of a folder are resized", found.set.name);
  }
  if (found.set.on_damaged && found.format != DataFormat::images) {
    fail(ExitCode::usage, "skip-damaged on: {} is no folder of images, which are read one by one; leave it out",
         found.set.name);
  }
  const Format& format = table_row(found.format);
  const SetIdentity& set = found.format == DataFormat::cifar10 ? *find_known("cifar10") : found.set;
  const bool measures = needs_scale(found);
  auto source = format.open(found, part, measures ? 0 : limit);
  PixelScale scale = source->info().scale;
  if (measures) {
    const bool is_other = part == Part::test && found.has(Part::train);
    scale = measured_scale(is_other ? *format.open(found, Part::train, 0) : *source);
  }
  source->set_scale_and_names(scale, set.class_names);
  if (limit == 0 || limit >= source->info().count) return source;
  return std::make_unique<PartOfSamples>(std::move(source), 0, limit, SampleOrder::as_it_is);
}

std::unique_ptr<SampleSource> open_dataset(const std::string& name_or_path, Part part, int64_t limit) {
  return open_dataset(find_dataset(name_or_path), part, limit);
}

void check_one_set(const std::string& name_or_path, const SampleInfo& a, const SampleInfo& b) {
  if (const auto [own, other] = std::ranges::mismatch(a.class_names, b.class_names);
      own != a.class_names.end() && other != b.class_names.end()) {
    fail(ExitCode::bad_input, "{}: class {} is {} in training, but {} in the test; they are not of one set",
         name_or_path, own - a.class_names.begin(), *own, *other);
  }
  if (a.shape() == b.shape() && a.type == b.type && b.classes <= a.classes && a.vocabulary == b.vocabulary) return;
  fail(ExitCode::bad_input,
       "{}: training images are {} of {} classes but test images {} of {}; they are not of one set", name_or_path,
       a.text(), a.classes, b.text(), b.classes);
}

std::string describe(const SampleInfo& train, const SampleInfo& test) {
  const char* const samples = train.type == DType::u8 ? "images" : "samples";
  return fmt::format("{} from {}: {} training and {} test {} of {} {}", train.name, train.description, train.count,
                     test.count, train.is_text() ? "windows" : samples, train.classes,
                     train.is_text() ? "symbols" : "classes");
}

}  // namespace hs
