// The CUDA device's runtime: memory, streams, events, errors, captured work. On the emulator and on a device.
#include <doctest/doctest.h>

#include "engine/tensor.h"
#include "kernels/relu.h"

namespace hs::test {
namespace {

TEST_CASE("a tensor goes to the device and comes back, and an op runs there") {
  const std::vector<float> values = {-1, 2, -3, 4, 5};
  const Tensor x = Tensor::from(values, {5}).to(Device::cuda);
  CHECK(x.device() == Device::cuda);
  CHECK(x.to_vector<float>() == values);
  CHECK(relu(x).to_vector<float>() == std::vector<float>{0, 2, 0, 4, 5});
}

}  // namespace
}  // namespace hs::test
