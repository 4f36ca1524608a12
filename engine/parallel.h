// Parallel loops on the CPU's threads. The number of pieces and their bounds depend only on the shapes, never on the
// number of threads, and pieces write to disjoint memory, so any number of threads gives the same bits.
#pragma once

#include <cstdint>

namespace hs {

// CPUs that this process may use: those that it is allowed on, and no more than its quota of time, rounded up.
int cores();
// That quota, in CPUs, as the control groups below `root` say ("/": this system's); 0: there is none.
double cpu_quota(const char* root);
// Sets the number of threads of parallel(); 0: one per core. More threads than cores are allowed.
void set_threads(int count);
// The first call starts them. Throws Error (out_of_memory) if not all can be started.
int threads();

// parallel() on several threads; `run` calls a body. Implemented in engine/parallel.cpp.
using RunPiece = void (*)(const void* body, int64_t piece, int thread);
void run_on_threads(int64_t pieces, RunPiece run, const void* body) noexcept;  // called by parallel()

template <class Body>
void run_piece(const void* body, int64_t piece, int thread) {  // a RunPiece
  (*static_cast<const Body*>(body))(piece, thread);
}

// Calls body(piece, thread) for each piece in 0 .. pieces-1, thread < threads(). The body must not throw. A loop within
// a body, or beside one that another thread has started, runs on its caller alone, as thread 0.
template <class Body>
void parallel(int64_t pieces, const Body& body) {
  if (pieces > 1 && threads() > 1) return run_on_threads(pieces, run_piece<Body>, &body);
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
