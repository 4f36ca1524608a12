// NumPy's .npy format, version 1.0: numpy.load() opens it. Format: numpy.lib.format in NumPy's manual.
#pragma once

#include <string>

#include "engine/tensor.h"

namespace hs {

// The file's bytes. Throws Error (usage) for bf16, which NumPy has not.
std::string to_npy(const Tensor& tensor);

}  // namespace hs
