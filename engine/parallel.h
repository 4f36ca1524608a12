// Parallel loops on the CPU's threads. The number of pieces and their bounds depend only on the shapes, never on the
// number of threads, and pieces write to disjoint memory, so any number of threads gives the same bits.
#pragma once

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace hs {

// Sets the number of threads of parallel(); 0: one per core. More threads than cores are allowed.
void set_threads(int count);
// The first call starts them. Throws Error (out_of_memory) if not all can be started.
int threads();

// Calls body(piece, thread) for each piece in 0 .. pieces-1, thread < threads(). The body must not throw.
template <class Body>
void parallel(int64_t pieces, const Body& body) {
#ifdef _OPENMP
  if (pieces > 1 && threads() > 1) {
#pragma omp parallel for schedule(static) num_threads(threads())
    for (int64_t piece = 0; piece < pieces; ++piece) body(piece, omp_get_thread_num());
    return;
  }
#endif
  for (int64_t piece = 0; piece < pieces; ++piece) body(piece, 0);
}

// Splits 0 .. size-1 into ranges of `grain` and calls body(begin, end) for each.
template <class Body>
void parallel_ranges(int64_t size, int64_t grain, const Body& body) {
  parallel((size + grain - 1) / grain, [&](int64_t piece, int) {
    const int64_t begin = piece * grain;
    body(begin, begin + grain < size ? begin + grain : size);
  });
}

// Elements per piece for element-wise kernels: large enough to hide the cost of a piece.
inline constexpr int64_t elementwise_grain = 16384;

}  // namespace hs
