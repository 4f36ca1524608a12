// Adding the groups of a weight gradient, in its own layout.
#include "kernels/conv2d/groups.h"

namespace hs {

void add_groups(const Conv2dSizes& s, const Each<float>& groups, bool accumulate, Tensor& dweight, int64_t stride,
                const std::function<int64_t(int64_t k)>& place) {
  if (!dweight.defined()) return;
  float* const sums = groups.first;
  const auto add = [=, count = conv2d_groups(s)](int64_t begin, int64_t end) {
    for (int64_t group = 1; group < count; ++group) {
      const float* from = groups[group];
      for (int64_t i = begin; i < end; ++i) sums[i] += from[i];
    }
  };
  for_float_type(dweight.dtype(), [&]<class T>() {
    T* to = dweight.mutable_data<T>();
    const auto update = [&](int64_t k, int64_t first, int64_t last) {
      const float* totals = sums + place(k);
      for (int64_t oc = first; oc < last; ++oc) {
        T& gradient = to[k * s.OC + oc];
        const Computing<T> before = accumulate ? to_computing(gradient) : 0;
        gradient = from_computing<T>(s.N == 0 ? before : before + totals[oc * stride]);
      }
    };
    if (stride == 1) {
      return parallel_ranges(s.K(), 16, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) add(place(k), place(k) + s.OC), update(k, 0, s.OC);
      });
    }
    constexpr int64_t channels = 8;  // of a piece: their totals stay in the cache until they are transposed
    parallel((s.OC + channels - 1) / channels, [&](int64_t piece, int) {
      const int64_t first = piece * channels, last = std::min(first + channels, s.OC);
      add(first * stride, last * stride);
      for (int64_t k = 0; k < s.K(); ++k) update(k, first, last);
    });
  });
}

}  // namespace hs
