// What a test may ask of the CUDA emulator beside the CUDA API itself. tests/cuda_emulator/README.md says what is
// emulated and how faithfully. All functions may be called from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hs::emulator {

enum class Order { forward, reverse, random };

// A call that the emulated cuBLASLt refuses.
struct Refusal {
  int epilogue = -1;    // of the product, a cublasLtEpilogue_t; -1: any
  bool at_run = false;  // cublasLtMatmul refuses, otherwise the heuristic
  int status = 15;      // the cublasStatus_t that it returns
};

// cuBLASLt as an adversary: all of this is allowed to the real library, or has been seen of it.
struct Library {
  std::vector<Refusal> refusals = {};
  bool late_bias = false;    // the bias is added to a sum that is rounded already
  int guard_bits = -1;       // 0 or 2: sums are truncated as in a tensor core with this many guard bits
  int wrong_candidates = 0;  // HALFSTEP_EMULATOR_LT_WRONG=1: the first of the heuristic's candidates computes nonsense
};

// Initial values come from the environment variables named here.
struct Options {
  Order threads = Order::forward;  // HALFSTEP_EMULATOR_THREADS=forward|reverse|random: threads of a block, and blocks
  bool delay_streams = false;      // HALFSTEP_EMULATOR_STREAMS=eager|random: random runs queued work late
  uint64_t seed = 1;               // HALFSTEP_EMULATOR_SEED: of both kinds of randomness; reset() starts over from it
  bool no_device = false;          // HALFSTEP_EMULATOR_NO_DEVICE=1: as a machine without a driver
  int device = 90;                 // HALFSTEP_EMULATOR_DEVICE=80: its compute capability, times ten
  int code = 90;                   // HALFSTEP_EMULATOR_CODE=80: that for which the kernels were compiled
  int64_t drop_k_tail = 0;         // HALFSTEP_EMULATOR_DROP_K_TAIL=64: cublasLtMatmul forgets the last K % 64 terms
  bool every_order = false;        // HALFSTEP_EMULATOR_EVERY_ORDER=1: each launch runs in all three, with one result
  bool private_pages = false;      // HALFSTEP_EMULATOR_PRIVATE_PAGES=1: blocks see each other's writes after a fence
  bool pageable_access = false;    // HALFSTEP_EMULATOR_PAGEABLE_ACCESS=1: uploads read pageable memory when they run
  Library library = {};
  std::string nccl;                  // HALFSTEP_EMULATOR_NCCL=hang@1=5: rank 1's fifth group of calls never ends;
                                     // error@1=5: an asynchronous error; absent@1=0: it does not join
  bool print = true;                 // HALFSTEP_EMULATOR_PRINT=0: reports are kept but not printed to stderr
  bool protect = true;               // HALFSTEP_EMULATOR_PROTECT=0: let the host touch device memory without a SIGSEGV
  bool collectives_order = false;    // shuffles and votes order memory too, as __syncwarp does (CUDA does not say so)
  bool keep_ranges = false;          // NVTX ranges are kept for take_ranges()
  bool count = false;                // HALFSTEP_EMULATOR_COUNTS=1: counts accesses, and prints them at the end
  uint64_t sample = 0;               // if not 0, a launch runs this many of its blocks, or twice as many: for counts
  int registers = 0;                 // HALFSTEP_EMULATOR_REGISTERS=40 per thread, for the printed occupancy; 0: unknown
  size_t total_memory = 2ull << 30;  // HALFSTEP_EMULATOR_MEMORY=bytes: what cudaMalloc can give out in total
};
Options& options();

// Forgets queued work, errors, reports, captures, which kernels are loaded and planned failures, and seeds the
// randomness again. Allocations, streams and events live on.
void reset();

// What the detectors have found since the last call: races, uninitialised reads, divergence, overruns.
std::vector<std::string> take_reports();
size_t symbols_named();  // so far, for the text of reports: each is searched for in all symbols of its file

// The kernels since the last call whose first launch, in this process or since reset(), was in a capture. A device
// loads a kernel at its first launch, which may allocate memory and wait: a capture does not allow it. A report, not an
// error: whether the capture fails depends on the driver.
std::vector<std::string> take_first_launches_in_captures();

// The NVTX ranges of this thread since the last call: the name of each that began, and "" where one ended.
std::vector<std::string> take_ranges();

// What one kernel has done in all of its launches. A request is one load or store of a warp.
struct Counts {
  std::string kernel;
  int64_t launches = 0;
  uint64_t blocks = 0;  // that have run
  struct Global {
    uint64_t requests = 0;
    uint64_t sectors = 0;     // pieces of 32 bytes that each request touches: 32 * sectors bytes are moved
    uint64_t bytes_used = 0;  // of them those that some lane asked for
  } loads, stores;            // only of files compiled with -fsanitize=thread (HALFSTEP_EMULATOR_COUNTS in CMake)
  struct Shared {
    uint64_t requests = 0;
    uint64_t conflicts = 0;  // wavefronts more than without any: 31 for 32 words of one bank
  } shared;
  // Requests by instruction: loads of 1, 2, 4, 8 and 16 bytes, stores, the same of shared memory; cp.async, mma.
  std::array<uint64_t, 22> instructions = {};
  // The request that cost most, and of equals the one that reaches furthest: for a picture of it.
  struct Costliest {
    struct Lane {
      int lane;
      uint64_t address;  // in global memory as on a device, where an allocation starts at a multiple of 256
      uint32_t bytes;
    };
    std::vector<Lane> lanes = {};  // by number; empty if there was no request
    uint64_t cost = 0, reach = 0;  // sectors, or conflicts; bytes from the lowest to the highest address
    bool is_store = false;
  } costliest_global, costliest_shared;
  uint64_t divergent = 0;   // how often lanes of a warp that were together went on in different directions; see loads
  int threads = 0;          // of a block of the last launch
  size_t shared_bytes = 0;  // of it: dynamic, and the static arrays that it has used
};
// Since the last call, in the order of first launches. Empty unless options().count was on.
std::vector<Counts> take_counts();
// The same of all kernels together: requests to global memory, sectors, bytes used, bank conflicts, divergent branches.
// False if options().count is off. A C function, because bench/measure/observers finds it by its name where there is an
// emulator.
extern "C" bool hs_emulator_memory_counts(uint64_t (&totals)[5]);

// What the threads resident on one multiprocessor share: registers, places for warps and for blocks, shared memory.
struct Multiprocessor {
  int registers, warps, blocks, shared_bytes;
};
inline constexpr Multiprocessor sm_80 = {65536, 64, 32, 164 << 10};
inline constexpr Multiprocessor sm_90 = {65536, 64, 32, 228 << 10};
// How many blocks of `threads` fit at once, and what fraction of its places for warps they fill (0 to 1).
// `registers` per thread; 0 if they are unknown and do not limit it. `shared_bytes` per block.
int resident_blocks(const Multiprocessor& sm, int threads, int registers, size_t shared_bytes);
double occupancy(const Multiprocessor& sm, int threads, int registers, size_t shared_bytes);

// The nth cudaMalloc from now on (1: the next one) returns cudaErrorMemoryAllocation, once.
void fail_malloc(int nth);

size_t live_bytes();        // in cudaMalloc allocations
size_t live_allocations();  // how many there are

}  // namespace hs::emulator
