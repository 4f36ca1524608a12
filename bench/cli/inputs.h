// What a command computes with, and what it reads: device, precision, threads and data set.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/formats/text.h"
#include "data/io/sample_source.h"
#include "data/loader/loader.h"
#include "engine/ambient.h"

namespace hs::bench::cli {

// --device: "auto" selects the GPU if one is available; a CUDA build that falls back to the CPU says why: no usable
// device, or only an emulated one. Throws Error (device) if "cuda" is not available.
Device resolve_device(const std::string& wanted);

// `wanted`, or, if that is none, the type in which a training is fastest on this device by docs/results.md: bf16 where
// the CPU has AMX or is an AMD with AVX-512 BF16, f16 on a GPU, else f32. Says which.
Precision resolve_precision(std::optional<Precision> wanted, Device device);

// The decision of resolve_device(). built_cuda: BuildInfo::cuda; why_not_cuda: why_unavailable(Device::cuda).
struct DeviceChoice {
  Device device;
  std::string notice;  // for the user; empty: nothing to say
};
DeviceChoice choose_device(std::string_view wanted, std::string_view built_cuda, const std::string& why_not_cuda);

// --threads: sets the number of threads, and says so if this build has fewer.
void use_threads(int64_t wanted);

// The mode's name, as in --cache.
const char* name(CacheMode mode);

// --data, --size, --test-split and --skip-damaged: which set, and how it becomes a training and a test part.
struct DataChoice {
  std::string name;                // as for find_dataset(); empty: MNIST, or generated digits where it is not found
  std::optional<ImageShape> size;  // to resize the images of a folder to
  double test_split = automatic;   // the fraction of a set without a test part that becomes one
  bool skip_damaged = false;       // leave out the damaged images of a folder
  std::optional<PixelScale> scale = {};  // of the model that is tested on it; empty: the set's own

  static constexpr double automatic = 0;  // 0.2, and a notice says so
  bool operator==(const DataChoice&) const = default;
};
// "32x48": rows and columns; empty: as the files have it. Throws Error (usage).
std::optional<ImageShape> parse_size(const std::string& text);
std::string size_text(const DataChoice& choice);
// The name of a known data set, or the path that names the same wherever the program is started.
std::string lasting_name(const std::string& name_or_path);
inline constexpr const char* resizing_text = ": --size 32x32";  // SetIdentity::how_to_resize

// Images that --skip-damaged leaves out.
struct LeftOut {
  int64_t count = 0;
  std::string first;  // why the first of them

  void add(const std::string& why) {
    if (count++ == 0) first = why;
  }
  void say() const;  // if there are any
};
inline constexpr const char* leaving_out_text = "; --skip-damaged on leaves out damaged images";  // how_to_leave_out

// A data set, in memory or read from its files.
struct TrainingData {
  std::unique_ptr<SampleSource> train, test;
  bool synthetic = false;
  std::string source;         // one sentence for the user: what the data is and where it came from
  DataChoice choice;          // that gives the same set wherever the program is started
  bool is_split = false;      // the test part was cut off the training part
  LeftOut left_out = {};      // of both parts
  std::string contents = {};  // fingerprint() of the whole set, before a limit; empty: known by its name
};

// Counts, sizes, a checksum of all labels and some of the images: the same for the same samples in the same order.
std::string fingerprint(const SampleSource& source);

struct Limit {
  int64_t samples;                // of the part; automatic_samples: all, or those of the headline experiment
  bool may_be_too_large = false;  // if the data set has fewer: true uses all of them, false is an Error
};
inline constexpr int64_t automatic_samples = 0;
inline constexpr int64_t headline_train = 20000, headline_test = 5000;  // samples, if no data are named

// Says so if the data is generated, and what was skipped, left out or split. A limit takes the first samples of a set
// that is known by its name, or of a text, and mixed ones of another, which may be in the order of its classes. Throws
// what opening throws, and Error: usage (a limit, or a choice that the set does not have), bad_input (the two parts do
// not belong together).
TrainingData open_training_data(const DataChoice& choice, Limit train, Limit test, const TextOptions& text = {});

}  // namespace hs::bench::cli
