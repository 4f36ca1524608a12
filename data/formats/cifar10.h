// The binary version of CIFAR-10 (https://www.cs.toronto.edu/~kriz/cifar.html): data_batch_1.bin to data_batch_5.bin
// and test_batch.bin, each 10,000 records of 3,073 bytes: a label from 0 to 9, then 32 x 32 red, green and blue values,
// one plane after the other; read whole, as (32, 32, 3). The format has no checksum: damage that leaves sizes and
// labels valid is detected only by data/get.
#pragma once

#include <filesystem>
#include <memory>

#include "data/io/sample_source.h"

namespace hs {

inline constexpr int64_t cifar10_side = 32;                                           // pixels
inline constexpr int64_t cifar10_record_bytes = 1 + 3 * cifar10_side * cifar10_side;  // a label and three planes
inline constexpr int64_t cifar10_records_per_file = 10000;                            // samples
// One mean and deviation for all three channels of the 50,000 training images, from the published values of each:
// (0.4914, 0.4822, 0.4465) and (0.2470, 0.2435, 0.2616).
inline constexpr PixelScale cifar10_scale{0.4734f, 0.2516f};

// `training`: reads the five training files, otherwise the test file. `records_per_file` is for tests.
// Throws Error: io (a file is missing or cannot be read), bad_input (another size, or a label above 9).
std::unique_ptr<SampleSource> open_cifar10(const std::filesystem::path& folder, bool training,
                                           int64_t records_per_file = cifar10_records_per_file);

}  // namespace hs
