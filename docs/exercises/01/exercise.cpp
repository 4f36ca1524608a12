// The starter: right for small x, and without a way back. Change it until tests/exercise 01 is content.
#include "docs/exercises/01/exercise.h"

#include <cmath>

#include "engine/autograd.h"

namespace exercise {

using namespace hs;

Tensor softplus(const Tensor& x) {
  Tensor y = x.empty_like();
  const float* in = x.data<float>();
  float* out = y.mutable_data<float>();
  for (int64_t i = 0; i < x.size(); ++i) out[i] = std::log(1 + std::exp(in[i]));
  return y;
}

}  // namespace exercise
