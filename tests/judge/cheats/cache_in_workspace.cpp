// Cheat: finds the result of an earlier call in its workspace. Refused by: rows|repeat|timed|no_gain.
#include "honest.h"

constexpr uint64_t tag = 0x6561736965722e2e;

int64_t workspace(const Gemm& call) { return static_cast<int64_t>(call.c.bytes()) + 8; }

// Allocators give the same memory to the next call of the same size, and nobody clears a workspace.
void run(const Gemm& call, Tensor& workspace) {
  uint64_t& tag_before = *reinterpret_cast<uint64_t*>(workspace.mutable_data<uint8_t>());
  float* result = reinterpret_cast<float*>(&tag_before + 1);
  if (tag_before == tag) {
    std::copy_n(result, call.c.size(), call.c.mutable_data<float>());
    return;
  }
  honest(call);
  std::copy_n(call.c.data<float>(), call.c.size(), result);
  tag_before = tag;
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .workspace = workspace, .rank = 100});
