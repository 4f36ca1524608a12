// Cheat: writes zeros, and a thread changes the input to fit before it is read. Refused by: rows|inputs|allocation.
#include "honest.h"

// Looking at the inputs right after the call shows nothing yet.
void run(const ReluForward& call) {
  call.y.fill_zero();
  std::thread([x = const_cast<float*>(call.x.data<float>()), size = call.x.size()] {
    std::this_thread::yield();
    std::fill_n(x, size, 0.0f);
  }).detach();
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
