// What the sub-commands that train look up before they start: the device, the model and the digits.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/io/sample_source.h"
#include "data/loader/loader.h"
#include "engine/device.h"

namespace hs::bench::cli {

// --device: "auto" is the GPU if there is one; a build with CUDA that takes the CPU nevertheless says why: no usable
// device, or only an emulated one. Throws Error (device) if "cuda" is not there.
Device resolve_device(const std::string& wanted);

// The decision of resolve_device(). built_cuda: BuildInfo::cuda; why_not_cuda: why_unavailable(Device::cuda).
struct DeviceChoice {
  Device device;
  std::string notice;  // for the user; empty: nothing to say
};
DeviceChoice choose_device(std::string_view wanted, std::string_view built_cuda, const std::string& why_not_cuda);

// --threads: sets them, and says so if this build has fewer.
void use_threads(int64_t wanted);

// As --cache takes it.
const char* name(CacheMode mode);

// A data set that stays where it is: in memory, or in its files.
struct TrainingData {
  std::unique_ptr<SampleSource> train, test;
  bool synthetic = false;
  std::string source;  // one sentence for the user: what the data is and where it came from
};

struct Limit {
  int64_t samples;                // the first so many of the set
  bool may_be_too_large = false;  // take all if the set has fewer; else that is an Error
};

// --data NAME|DIR, as open_dataset() takes it; empty: as open_digits(). Says so if the data is generated. Throws what
// opening throws, and Error: usage (a limit), bad_input (the two parts do not belong together).
TrainingData open_training_data(const std::string& name_or_path, Limit train, Limit test);

// --data DIR with MNIST in it, as find_digits() takes it; empty: the usual places, or generated digits. Throws as
// open_training_data(), and Error (bad_input) if images are not those that the models were made for, 28x28x1.
TrainingData open_digits(const std::string& folder, Limit train, Limit test);

}  // namespace hs::bench::cli
