// The functions of kernels/unary/unary.h and their gradients, of float or double: the same lines on CPU and GPU.
#pragma once

#include <cmath>

#include "engine/host_device.h"

namespace hs::functions {

struct Exp {
  HS_HOST_DEVICE static auto value(auto x) { return std::exp(x); }
  HS_HOST_DEVICE static auto gradient(auto y, auto dy) { return dy * y; }
};
struct Log {
  HS_HOST_DEVICE static auto value(auto x) { return std::log(x); }
  HS_HOST_DEVICE static auto gradient(auto x, auto dy) { return dy / x; }
};
struct Tanh {
  HS_HOST_DEVICE static auto value(auto x) { return std::tanh(x); }
  HS_HOST_DEVICE static auto gradient(auto y, auto dy) { return dy * (1 - y * y); }
};
struct Sigmoid {  // far below 0 the exponential is inf, whose reciprocal is the right 0
  HS_HOST_DEVICE static auto value(auto x) { return 1 / (1 + std::exp(-x)); }
  HS_HOST_DEVICE static auto gradient(auto y, auto dy) { return dy * (y * (1 - y)); }
};

}  // namespace hs::functions
