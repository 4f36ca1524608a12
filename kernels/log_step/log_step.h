// What a recorded step leaves behind for the host to read later: its loss and the loss scale after it.
#pragma once

#include "engine/kernel.h"

namespace hs {

// losses[e] = loss and scales[e] = scale for e = place[place_entry] + step; place: kernels/gather_batch/. All f32 but
// the place. scale and scales may be undefined, both.
struct LogStep {
  const Tensor& loss;
  const Tensor& scale;
  const Tensor& place;
  int64_t step;
  Tensor& losses;
  Tensor& scales;
  auto tensors() const { return tensor_list(loss, scale, place, losses, scales); }
};
constinit inline Kernel<LogStep> log_step{"log_step"};

}  // namespace hs
