// The gradient of relu through an installed halfstep.
#include "kernels/relu.h"

int main() {
  hs::Tensor x = hs::Tensor::from<float>({-1, 0, 2}, {3});
  x.set_requires_grad(true);
  hs::backward(hs::relu(x), hs::Tensor::from<float>({5, 6, 7}, {3}));
  return x.grad().to_vector<float>() == std::vector<float>{0, 0, 7} ? 0 : 1;
}
