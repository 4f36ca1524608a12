#include "data/formats/arrays.h"

#include <algorithm>

#include "data/io/memory_source.h"
#include "engine/check.h"
#include "engine/files/npy.h"
#include "engine/printable.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

// x and y of a part; x in the spelling that is there.
std::pair<fs::path, fs::path> files_of(const fs::path& folder, bool training) {
  const char* const part = training ? "train" : "test";
  const auto file = [&](const char* what) { return folder / fmt::format("{}_{}.npy", what, part); };
  return {fs::exists(file("X")) ? file("X") : file("x"), file("y")};
}

// (N) i32
Tensor read_labels(const fs::path& path) {
  Tensor labels = read_npy(path);
  if (labels.dtype() == DType::i32) return labels;
  if (labels.dtype() == DType::u8) {
    const std::vector<uint8_t> bytes = labels.to_vector<uint8_t>();
    return Tensor::from(std::vector<int32_t>(bytes.begin(), bytes.end()), labels.shape());
  }
  fail(ExitCode::bad_input,
       "{}: labels are {}, expected integers, the classes from 0; in NumPy: y.astype(\"int32\"). A regression is for a "
       "program of your own: docs/use_as_a_library.md",
       printable(path), labels);
}

// At most max_classes: labels beyond them are refused later.
int classes_in(const Tensor& labels) {
  const std::vector<int32_t> all = labels.to_vector<int32_t>();
  return all.empty() ? 0 : std::min(*std::ranges::max_element(all), max_classes - 1) + 1;
}

}  // namespace

bool has_arrays(const fs::path& folder, bool training) {
  const auto [x, y] = files_of(folder, training);
  return fs::exists(x) || fs::exists(y);
}

std::unique_ptr<SampleSource> open_arrays(const fs::path& folder, bool training, const SetIdentity& set) {
  const auto [x, y] = files_of(folder, training);
  const Tensor labels = read_labels(y);
  SampleInfo info{{}, set.name, fmt::format("NumPy arrays in {}", printable(folder))};
  info.scale = set.scale.value_or(default_pixel_scale);
  info.classes = classes_in(labels);
  if (has_arrays(folder, !training)) {
    info.classes = std::max(info.classes, classes_in(read_labels(files_of(folder, !training).second)));
  }
  // Not make_unique(), which would move it, and a source cannot be moved.
  return std::unique_ptr<SampleSource>(
      new MemorySource(from_tensors(std::move(info), read_npy(x), labels, printable(x), printable(y))));
}

}  // namespace hs
