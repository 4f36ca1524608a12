// Elements of the arrays that read_npy() reads.
#pragma once

#include <span>

#include "engine/files/npy.h"

namespace hs {

// Valid while the array is alive. Throws if T is not the C++ type of its elements.
template <class T>
std::span<const T> values_of(const Tensor& array) {
  return {array.data<T>(), static_cast<size_t>(array.size())};
}

}  // namespace hs
