// C = alpha * op(A) op(B) + beta * C + bias: the matrix product that linear and the simple conv2d are made of.
#pragma once

#include "engine/kernel.h"

namespace hs {

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;  // with 0, C is not read
};

// op(A) is (M, K), op(B) is (K, N), bias is (N) or undefined, C is (M, N); row-major, one dtype.
constinit inline Kernel<void(const Tensor& a, const Tensor& b, const Tensor& bias, const GemmOptions&, Tensor& c)> gemm{
    "gemm"};

// Checks the shapes, allocates C and calls gemm: op(a) op(b) + bias. Not differentiable; linear() is.
Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias = {}, const GemmOptions& options = {});

}  // namespace hs
