// What the sub-commands that train look up before they start: the device and the digits.
#pragma once

#include <string>

#include "data/dataset.h"
#include "engine/device.h"

namespace hs::bench {

// --device: "auto" is the GPU if there is one; a build with CUDA on a machine where it cannot be used says so. Throws
// Error (device) if "cuda" is not there.
Device resolve_device(const std::string& wanted);

// --data (empty: the usual places), --train and --test. Says so if the digits are generated. Throws what load_mnist
// throws, and Error (bad_input) if images are not those that the models were made for, 28x28x1.
DatasetPair load_digits(const std::string& folder, int64_t train, int64_t test);

}  // namespace hs::bench
