// The running block: its threads, its warps and what they wait for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "emulator/device.h"
#include "fiber.h"

namespace hs::emulator {

struct AsyncCopy;

struct Thread {
  uint3 index;  // threadIdx
  int number;   // in the block
  int lane;
  int warp;
  enum State : uint8_t { fresh, running, at_barrier, at_collective, finished } state;
  Fiber* fiber;        // while started and not finished
  const Place* place;  // where it waits
  uint32_t mask;       // of the collective it waits for
};

// Which accesses of which lanes a lane may rely on. Time counts the __syncwarp calls of the warp; known[v][u] is the
// last one after which v has heard of u. An access of u at time t is in v's past if known[v][u] > t.
struct Warp {
  uint32_t time;
  uint32_t known[32][32];
};

struct Block {
  uint32_t epoch = 0;        // counts barriers, over all blocks and launches, so that no shadow ever needs clearing
  uint32_t first_epoch = 0;  // of this block
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  size_t dynamic_bytes = 0;
};
extern Block& block;

// The launch that runs, or that ran last.
struct Launch {
  const void* kernel = nullptr;
  const std::function<void()>* body = nullptr;  // one thread's work
  bool closed = false;     // global memory: each thread runs until it waits for the launch in front
  bool has_fault = false;  // the first finding counts, the rest is mostly its echo
  // A byte that no thread may write, and what it holds; looked at whenever a thread stops.
  const volatile unsigned char* watched = nullptr;
  unsigned char watched_value = 0;
};
extern Launch& launch_now;

void prepare_block(dim3 size, size_t shared_bytes);
// Runs the block blockIdx. Returns false if it got stuck, or a thread has left it after a bad access.
bool run_block();

extern Thread* running;  // null outside kernels

void check_pending_copies(int thread);  // cp.async without a wait, at the end of a thread (shared.cpp)

}  // namespace hs::emulator
