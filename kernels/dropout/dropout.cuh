// Dropout as kernels use it: the one of its own and those that drop in their epilogue. .cu files only.
#pragma once

#include "kernels/cuda/cuda.cuh"
#include "kernels/dropout/dropout.h"

namespace hs::cuda {

class DropoutMasker {
 public:
  explicit DropoutMasker(const DropoutRule& rule)
      : stream_(rule.stream),
        step_(rule.step.defined() ? rule.step.data<int32_t>() : nullptr),
        threshold_(dropout_threshold(rule.rate)),
        factor_(static_cast<float>(dropout_scale(rule.rate))) {}

  __device__ __forceinline__ bool drops() const { return threshold_ > 0; }

  // The random numbers of a group of dropout_group elements.
  __device__ __forceinline__ Random4 block(int64_t group) const {
    RandomStream now = stream_;
    if (step_) now.step += static_cast<uint32_t>(*step_);
    return random_block(now, static_cast<uint32_t>(group));
  }
  // i: within the group.
  __device__ __forceinline__ bool keeps(const Random4& block, int i) const {
    return dropout_keeps(block, i, threshold_);
  }
  template <class T>
  __device__ __forceinline__ T masked(const Random4& block, int i, T value) const {
    return from_f32<T>(keeps(block, i) ? to_f32(value) * factor_ : 0.0f);
  }

 private:
  RandomStream stream_;
  const int32_t* step_;
  uint32_t threshold_;
  float factor_;
};

// The gradient that dropout passes on where it kept the element, with the bits of its own kernel. factor:
// dropout_scale().
template <class T>
__device__ __forceinline__ T scaled(T dy, float factor) {
  return factor == 1 ? dy : from_f32<T>(to_f32(dy) * factor);
}

}  // namespace hs::cuda
