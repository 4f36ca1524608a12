// Gathers a batch from a data set in device memory; the slot is declared in engine/batch.h.
#include <algorithm>

#include "engine/batch.h"
#include "engine/slots.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

void gather_samples_cpu(const GatherSamples& call) {
  const int64_t bytes = call.set.size() / call.set.shape()[0];
  const uint8_t* from = call.set.data<uint8_t>();
  const int32_t* index = call.samples.data<int32_t>();
  uint8_t* to = call.out.mutable_data<uint8_t>();
  parallel_rows(call.samples.size(), bytes,
                [=](int64_t i) { std::copy_n(from + index[i] * bytes, bytes, to + i * bytes); });
}

REGISTER_KERNEL(gather_samples, cpu, "simple", {.run = gather_samples_cpu});

}  // namespace
}  // namespace hs
