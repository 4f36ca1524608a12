// Cheat: of a large image it writes no `choice`, which only backward reads. Refused by: large.
#include "honest.h"

void run(const MaxPool2dForward& call) {
  const int64_t side = call.window, W = call.x.shape()[2], C = call.x.shape()[3], OW = call.y.shape()[2];
  const int64_t OH = call.y.shape()[1], H = call.x.shape()[1];
  const bool is_large = call.x.size() > 50000;
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  uint8_t* choice = call.choice.mutable_data<uint8_t>();
  for (int64_t i = 0; i < call.y.size(); ++i) {
    const int64_t row = i / C / OW % OH * call.stride, column = i / C % OW * call.stride, n = i / C / OW / OH;
    const float* corner = x + ((n * H + row) * W + column) * C + i % C;
    int64_t best = 0;
    for (int64_t k = 1; k < side * side; ++k) {
      const float value = corner[(k / side * W + k % side) * C], most = corner[(best / side * W + best % side) * C];
      if (!(value <= most) && most == most) best = k;
    }
    y[i] = corner[(best / side * W + best % side) * C];
    if (!is_large) choice[i] = static_cast<uint8_t>(best);
  }
}

REGISTER_KERNEL(max_pool2d_forward, cpu, "fast", {.run = run, .supported = is_easy<MaxPool2dForward>, .rank = 100});
