// The starter: wrong for some numbers, and for some tensors. Change it until tests/exercise 03 is content.
#include <halfstep/kernel.h>

namespace {

using namespace hs;

void relu_mine(const ReluForward& call) {
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  const int64_t size = call.x.size();  // a call into the library: ten times slower in the loop's condition
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}

REGISTER_KERNEL(relu_forward, cpu, "mine", {.run = relu_mine, .rank = 100});

}  // namespace
