// A launch: its blocks one after another in an order of choice, and what is checked around them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "block.h"
#include "counters.h"
#include "internal.h"
#include "memory.h"

namespace hs::emulator {

Launch& launch_now = *new Launch;

namespace {

void run_blocks() {
  const uint64_t blocks = static_cast<uint64_t>(gridDim.x) * gridDim.y * gridDim.z;
  std::vector<uint64_t> order;
  if (options().threads == Order::random) {
    order.resize(blocks);
    std::iota(order.begin(), order.end(), uint64_t{0});
    std::shuffle(order.begin(), order.end(), randomness());
  }
  begin_private_pages();
  const uint64_t apart = options().sample == 0 ? 1 : std::max<uint64_t>(1, blocks / options().sample);
  for (uint64_t i = 0; i < blocks; i += apart) {
    const uint64_t b = !order.empty() ? order[i] : options().threads == Order::reverse ? blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(b % gridDim.x), static_cast<unsigned>(b / gridDim.x % gridDim.y),
                static_cast<unsigned>(b / gridDim.x / gridDim.y)};
    const bool finished = run_block();
    warp_is_together(-1);
    count_block();
    end_block();
    if (!finished) break;
  }
  end_private_pages();
}

void report_overwritten(const volatile unsigned char* byte) {
  // Which thread was it? The launch has failed, so its results do not matter: it runs again, and is watched.
  launch_now.has_fault = true;
  launch_now.watched = byte;
  launch_now.watched_value = *byte;
  run_blocks();
  if (launch_now.watched) {
    report(cudaErrorIllegalAddress, "kernel " + symbol_name(launch_now.kernel) + ": writes memory " + describe(byte));
  }
  launch_now.watched = nullptr;
  find_overwritten();
}

// The launch has run once; it runs again from the same memory in the orders that it has not had.
void check_order() {
  keep_result();
  const Order first = options().threads;
  for (const auto& [order, name] :
       {std::pair{Order::forward, "forward"}, {Order::reverse, "reverse"}, {Order::random, "random"}}) {
    if (order == first || launch_now.has_fault) continue;
    restore_snapshot();
    options().threads = order;
    run_blocks();
    const char* differs = launch_now.has_fault ? nullptr : find_difference();
    if (!differs) continue;
    launch_now.has_fault = true;
    report(cudaErrorLaunchFailure, "kernel " + symbol_name(launch_now.kernel) +
                                       ": the result depends on the order of threads and blocks: in " + name +
                                       " order another value is left " + describe(differs));
  }
  options().threads = first;
}

}  // namespace

bool waits_for_launches_before() { return launch_now.closed; }

void run_grid(const void* kernel, dim3 grid, dim3 size, size_t shared_bytes, bool early,
              const std::function<void()>& thread, const std::vector<const void*>& pointers) {
  DeviceAccess access({});
  launch_now = {kernel, &thread, early};
  gridDim = grid;
  blockDim = size;
  prepare_block(size, shared_bytes);
  if (early) run_blocks();
  launch_now.closed = false;
  if (sticky_error() != cudaSuccess) return;
  access.open(pointers.data(), pointers.size());
  const bool one_thread = grid.x * grid.y * grid.z * size.x * size.y * size.z == 1;  // which have only one order
  const bool in_every_order = options().every_order && !one_thread;
  if (in_every_order) begin_snapshot();
  begin_counting();
  run_blocks();
  end_counting();
  if (in_every_order) {
    if (!launch_now.has_fault) check_order();
    end_snapshot();
  }
  const volatile unsigned char* overwritten = find_overwritten();
  if (overwritten && !launch_now.has_fault) report_overwritten(overwritten);
}

}  // namespace hs::emulator
