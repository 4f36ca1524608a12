#include <halfstep/kernel.h>

namespace {

using namespace hs;

void relu_mine(const ReluForward& call) {
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  parallel_ranges(call.x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
    // A comparison with NaN is false: this one keeps NaN, `x > 0 ? x : 0` does not.
    for (int64_t i = begin; i < end; ++i) y[i] = x[i] <= 0 ? 0 : x[i];
  });
}

REGISTER_KERNEL(relu_forward, cpu, "mine",
                {.run = relu_mine,
                 .supported = [](const ReluForward& call) { return call.x.dtype() == DType::f32; },
                 .rank = 100});

}  // namespace
