// Gathers a batch from a data set in device memory; the slot is declared in engine/batch.h.
#include <algorithm>

#include "engine/batch.h"
#include "engine/slots.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

void gather_samples_cpu(const GatherSamples& call) {
  const int64_t bytes = static_cast<int64_t>(call.set.bytes()) / call.set.shape()[0];
  const auto* from = static_cast<const uint8_t*>(call.set.raw_data());
  const int32_t* index = call.samples.data<int32_t>();
  auto* to = static_cast<uint8_t*>(call.out.mutable_raw_data());
  parallel_rows(call.samples.size(), bytes,
                [=](int64_t i) { std::copy_n(from + index[i] * bytes, bytes, to + i * bytes); });
}

REGISTER_KERNEL(gather_samples, cpu, "simple", {.run = gather_samples_cpu});

}  // namespace
}  // namespace hs
