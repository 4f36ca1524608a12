// NumPy arrays in a folder, as numpy.save writes them: x_train.npy and y_train.npy, x_test.npy and y_test.npy, each x
// also with a capital X. x: (N, F), (N, H, W) or (N, H, W, C), bytes or f32; f32 values are taken as they are. y: (N)
// integers, the classes from 0.
#pragma once

#include <filesystem>
#include <memory>

#include "data/io/sample_source.h"

namespace hs {

// Whether any of a part's two files is there.
bool has_arrays(const std::filesystem::path& folder, bool training);

// Reads a part whole. There are as many classes as the largest label in either part says. Throws Error: io, bad_input
// (as read_npy() and from_tensors(); y has no integers).
std::unique_ptr<SampleSource> open_arrays(const std::filesystem::path& folder, bool training, const SetIdentity& set);

}  // namespace hs
