#include "kernels/mse_loss/mse_loss.h"

#include "engine/check.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/reduce.h"

namespace hs {
namespace {

Tensor widened(const Tensor& x) { return size_of(x.dtype()) == 2 ? cast(x, DType::f32) : x; }

}  // namespace

Tensor mse_loss(const Tensor& prediction, const Tensor& target) {
  const Op op("mse_loss");
  const Tensor y = widened(prediction), wanted = widened(target);
  check(y.shape() == wanted.shape() && y.dtype() == wanted.dtype() && y.size() > 0,
        "mse_loss: prediction is {} {} and target {} {}; expected one shape, not empty, and cast() to one type",
        name(prediction.dtype()), prediction.shape(), name(target.dtype()), target.shape());
  const Tensor difference = sub(y, wanted);
  return mean(mul(difference, difference));
}

}  // namespace hs
