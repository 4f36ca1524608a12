// Cheat: computes before it is called. Refused by: leftover|timed|guard|isolation|allocation|repeat.
#include "honest.h"

static std::atomic<const float*> x;  // of the last call: the next one is likely to use the same memory
static std::atomic<float*> y;
static std::atomic<int64_t> size;

void run(const GeluForward& call) {
  static std::thread& watcher = *new std::thread([] {
    for (int64_t i = 0;; i = i + 1 < size ? i + 1 : 0) {
      if (i < size) y[i] = gelu_of(x[i]);
    }
  });
  (void)watcher;
  if (x == call.x.data<float>() && y == call.y.data<float>() && size == call.x.size()) return;  // already done
  honest(call);
  size = 0, x = call.x.data<float>(), y = call.y.mutable_data<float>(), size = call.x.size();
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
