// The device language on the CPU: the keywords, threadIdx and friends, barriers, warp collectives, atomics, maths.
// The threads of a block are fibers of one host thread (source/block.cpp), which switch only inside the functions that
// wait (barriers and collectives); so plain global variables can serve as threadIdx and blockIdx, where a debugger
// finds them. Waiting functions take their place in the source as a hidden last argument: it names them in reports,
// and tells one barrier from another.
#pragma once

#include <math.h>  // not <cmath>: this one also puts isnan and friends into the global namespace, as CUDA has them
#include <string.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "emulator/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
// Blocks run one after another, so one copy will do. `const`, because hs::SharedArray alone is written to all the same:
// a plain array, whose races and bank conflicts nobody would see, does not compile ("uninitialized const").
#define __shared__ static const
#define __forceinline__ \
  __attribute__((always_inline)) inline  // also: one access in the code for each in the source, to be counted
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace hs::emulator {

struct Place {  // clang 14 does not have std::source_location
  const char* file;
  int line;
};
enum class Vote { none, count, all, any };

// Waits for all threads of the block; returns the count of non-zero predicates, or whether all or any were.
int block_barrier(Vote vote, int predicate, const Place& place);

// Waits for the lanes in `mask`. The last one to arrive calls `perform` for all of them, with the argument of each
// lane; the others' stacks are alive then, so it may write results through the pointers.
using Perform = void (*)(void* const (&arguments)[32], uint32_t mask, const Place& place);
void collective(uint32_t mask, void* argument, Perform perform, bool orders_memory, const Place& place);

int lane();  // of the running thread in its warp

// Something is wrong in the running kernel; the report gets the kernel and the thread added. Execution goes on.
void device_fault(int cuda_error, const char* format, ...) __attribute__((format(printf, 2, 3)));

// A vector in global memory: reports one that is misaligned or reaches behind the end. Its branches are not the
// kernel's, so it is not inline: they do not count.
void check_vector(const void* at, size_t bytes, bool write);

// What the running block writes is seen by other blocks once it is published (source/pages.cpp).
void fence();                                     // all that it has written so far
void publish(const void* address, size_t bytes);  // what an atomic has changed
void wait_for_launches_before();

// A memcpy that is one access to global memory where accesses are counted (source/counters.cpp).
void counted_copy(void* to, const void* from, size_t bytes, bool write);
__forceinline__ void copy_vector(void* to, const void* from, size_t bytes, [[maybe_unused]] bool write) {
#ifdef HS_EMULATOR_COUNTS
  counted_copy(to, from, bytes, write);
#else
  memcpy(to, from, bytes);
#endif
}

struct Exchange {  // one lane's part in a shuffle
  uint64_t value, result;
  int source;
};
void exchange(void* const (&arguments)[32], uint32_t mask, const Place& place);

template <class T>
T shuffle(uint32_t mask, T value, int source, const Place& place) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "shuffles move numbers of at most 8 bytes");
  Exchange mine{0, 0, source};
  memcpy(&mine.value, &value, sizeof(T));
  collective(mask, &mine, exchange, false, place);
  memcpy(&value, &mine.result, sizeof(T));
  return value;
}
uint32_t ballot(uint32_t mask, bool predicate, const Place& place);

}  // namespace hs::emulator

#define HS_HERE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define HS_PLACE (hs::emulator::Place{file_, line_})

inline void __syncthreads(HS_HERE) { hs::emulator::block_barrier(hs::emulator::Vote::none, 0, HS_PLACE); }
inline int __syncthreads_count(int predicate, HS_HERE) {
  return hs::emulator::block_barrier(hs::emulator::Vote::count, predicate, HS_PLACE);
}
inline int __syncthreads_and(int predicate, HS_HERE) {
  return hs::emulator::block_barrier(hs::emulator::Vote::all, predicate, HS_PLACE);
}
inline int __syncthreads_or(int predicate, HS_HERE) {
  return hs::emulator::block_barrier(hs::emulator::Vote::any, predicate, HS_PLACE);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, HS_HERE) {
  hs::emulator::collective(mask, nullptr, nullptr, true, HS_PLACE);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, HS_HERE) {
  return hs::emulator::ballot(mask, predicate != 0, HS_PLACE);
}
inline int __any_sync(unsigned mask, int predicate, HS_HERE) {
  return hs::emulator::ballot(mask, predicate != 0, HS_PLACE) != 0;
}
inline int __all_sync(unsigned mask, int predicate, HS_HERE) {
  return hs::emulator::ballot(mask, predicate != 0, HS_PLACE) == mask;
}
// A source lane outside the group of `width` lanes: the value stays the lane's own (up, down, xor) or wraps (shfl).
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, HS_HERE) {
  const int first = hs::emulator::lane() & ~(width - 1);
  return hs::emulator::shuffle(mask, value, first + (source & (width - 1)), HS_PLACE);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, HS_HERE) {
  const int lane = hs::emulator::lane(), end = (lane & ~(width - 1)) + width, source = lane + static_cast<int>(delta);
  return hs::emulator::shuffle(mask, value, source < end ? source : lane, HS_PLACE);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, HS_HERE) {
  const int lane = hs::emulator::lane(), first = lane & ~(width - 1), source = lane - static_cast<int>(delta);
  return hs::emulator::shuffle(mask, value, source >= first ? source : lane, HS_PLACE);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize, HS_HERE) {
  const int lane = hs::emulator::lane(), end = (lane & ~(width - 1)) + width, source = lane ^ lanes;
  return hs::emulator::shuffle(mask, value, source < end ? source : lane, HS_PLACE);
}
inline void __threadfence() { hs::emulator::fence(); }
inline void __threadfence_block() {}

// Atomics on global memory; kernels/cuda/shared.cuh has those on shared memory. None for floats: their order is not
// fixed, and halfstep gives the same bits in every run.
#define HS_EMULATOR_ATOMIC(name, T, changed) \
  inline T name(T* at, T value) {            \
    const T old = *at;                       \
    *at = changed;                           \
    hs::emulator::publish(at, sizeof(T));    \
    return old;                              \
  }
#define HS_EMULATOR_ATOMICS(T)                                \
  HS_EMULATOR_ATOMIC(atomicAdd, T, old + value)               \
  HS_EMULATOR_ATOMIC(atomicOr, T, old | value)                \
  HS_EMULATOR_ATOMIC(atomicAnd, T, old& value)                \
  HS_EMULATOR_ATOMIC(atomicMax, T, old < value ? value : old) \
  HS_EMULATOR_ATOMIC(atomicMin, T, value < old ? value : old) \
  HS_EMULATOR_ATOMIC(atomicExch, T, value)                    \
  inline T atomicCAS(T* at, T expected, T value) {            \
    const T old = *at;                                        \
    *at = old == expected ? value : old;                      \
    hs::emulator::publish(at, sizeof(T));                     \
    return old;                                               \
  }
HS_EMULATOR_ATOMICS(int)
HS_EMULATOR_ATOMICS(unsigned)
HS_EMULATOR_ATOMICS(unsigned long long)
#undef HS_EMULATOR_ATOMICS
#undef HS_EMULATOR_ATOMIC
float atomicAdd(float*, float) = delete;
double atomicAdd(double*, double) = delete;

inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void cudaGridDependencySynchronize() { hs::emulator::wait_for_launches_before(); }

template <class T>
__forceinline__ T __ldg(const T* at) {
  return *at;
}
template <class T>
__forceinline__ T __ldcs(const T* at) {
  return *at;
}
template <class T>
__forceinline__ void __stcs(T* at, T value) {
  *at = value;
}

#define HS_EMULATOR_MIN_MAX(T)                        \
  constexpr T min(T a, T b) { return b < a ? b : a; } \
  constexpr T max(T a, T b) { return a < b ? b : a; }
HS_EMULATOR_MIN_MAX(int)
HS_EMULATOR_MIN_MAX(unsigned)
HS_EMULATOR_MIN_MAX(long)
HS_EMULATOR_MIN_MAX(unsigned long)
HS_EMULATOR_MIN_MAX(long long)
HS_EMULATOR_MIN_MAX(unsigned long long)
#undef HS_EMULATOR_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }  // as on the device: a NaN loses
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

// The fast intrinsics are exact here; on the device they are off by a few units in the last place.
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}
