// A workspace's parts: a variant says once what it needs, and so both how much that is and where. CPU files only.
//   struct Memory : Parts {
//     const Sizes& s;
//     float* weights = take<float>(s.K * s.OC);  // (K, OC)
//     Each<float> sums = each<float>(s.OC);      // of a thread: (OC)
//   };
//   int64_t workspace(const Call& call) { return Memory{Parts(), call.sizes}.bytes(); }
//   void run(const Call& call, Tensor& workspace) { const Memory m{Parts(workspace), call.sizes}; ... m.sums[thread]
//   ... }
#pragma once

#include <algorithm>

#include "engine/parallel.h"
#include "engine/tensor.h"
#include "kernels/cpu/pack.h"

namespace hs {

// An array of `size` for each thread, or each group of rows. Of cells T is uint32_t: a template drops what Cell may
// alias.
template <class T>
struct Each {
  T* first;
  int64_t size;
  T* operator[](int64_t i) const { return first + i * size; }
  T* zeroed(int64_t i) const { return std::fill_n((*this)[i], size, T{}) - size; }  // the same, filled with zeros
};

class Parts {
 public:
  Parts() = default;  // of no memory: only counts
  explicit Parts(uint8_t* memory) : memory_(memory) {}
  explicit Parts(Tensor& workspace) : Parts(workspace.mutable_data<uint8_t>()) {}
  int64_t bytes() const { return bytes_; }  // of the parts taken so far

 protected:
  // The next part, at a multiple of 64 bytes.
  template <class T>
  T* take(int64_t count) {
    uint8_t* const part = memory_ ? memory_ + bytes_ : nullptr;
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(part);
  }
  template <class T>
  Each<T> each(int64_t size, int64_t number = threads()) {
    return {take<T>(number * size), size};
  }

 private:
  uint8_t* memory_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace hs
