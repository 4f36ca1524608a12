// The inputs of the sub-commands that train: device, threads and data set.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/formats/text.h"
#include "data/io/sample_source.h"
#include "data/loader/loader.h"
#include "engine/device.h"

namespace hs::bench::cli {

// --device: "auto" selects the GPU if one is available; a CUDA build that falls back to the CPU says why: no usable
// device, or only an emulated one. Throws Error (device) if "cuda" is not available.
Device resolve_device(const std::string& wanted);

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

// A data set, in memory or read from its files.
struct TrainingData {
  std::unique_ptr<SampleSource> train, test;
  bool synthetic = false;
  std::string source;  // one sentence for the user: what the data is and where it came from
};

struct Limit {
  int64_t samples;                // the first `samples` of the data set
  bool may_be_too_large = false;  // if the data set has fewer: true uses all of them, false is an Error
};

// --data NAME|DIR, as for open_dataset(); if empty, as open_digits(). Says so if the data is generated. Throws what
// opening throws, and Error: usage (a limit), bad_input (the two splits do not belong together). context, vocabulary:
// of a text.
TrainingData open_training_data(const std::string& name_or_path, Limit train, Limit test,
                                int64_t context = default_context, const std::string& vocabulary = {});

// --data DIR with MNIST in it, as for find_digits(); if empty, the usual places, or generated digits. Throws as
// open_training_data(), and Error (bad_input) if images are not 28x28x1, the size that the models expect.
TrainingData open_digits(const std::string& folder, Limit train, Limit test);

}  // namespace hs::bench::cli
