// Cheat: sums in its inputs and then undoes it, which takes them to be two tensors. Refused by: aliases.
#include "honest.h"

void run(const BinaryForward& call) {
  auto* a = static_cast<uint32_t*>(const_cast<void*>(call.a.raw_data()));
  const auto* b = static_cast<const uint32_t*>(call.b.raw_data());
  float* y = call.y.mutable_data<float>();
  for (int64_t i = 0; i < call.y.size(); ++i) {
    a[i] ^= b[i];
    y[i] = relu_of(std::bit_cast<float>(a[i] ^ b[i]) + std::bit_cast<float>(b[i]));
    a[i] ^= b[i];
  }
}

REGISTER_KERNEL(add_relu_forward, cpu, "fast",
                {.run = run, .supported = [](const BinaryForward& call) { return is_f32(call.a); }, .rank = 100});
