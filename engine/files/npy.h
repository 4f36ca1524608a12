// NumPy's .npy format: what numpy.load() opens, and what numpy.save() writes. Format: numpy.lib.format in NumPy's
// manual.
#pragma once

#include <filesystem>
#include <string>

#include "engine/tensor.h"

namespace hs {

// The file's bytes, of version 1.0. Throws Error (usage) for bf16, which NumPy has not.
std::string to_npy(const Tensor& tensor);

// The array in a file: floats of 16, 32 and 64 bits and bytes (bools too) as they are, other integers as i32.
// Throws Error: io, bad_input (no such file, or truncated; another type, big-endian, Fortran order, more than 4
// dimensions, an integer beyond 32 bits: each says what to do in NumPy).
Tensor read_npy(const std::filesystem::path& path);

}  // namespace hs
