// C = alpha * op(A) op(B) + beta * C + bias: the matrix product that linear, feed_forward and the simple conv2d are
// built from.
#pragma once

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/kernel.h"
#include "engine/observe.h"
#include "kernels/cast/cast.h"

namespace hs {

// Applied to C before it is stored.
enum class Epilogue : uint8_t {
  none,           // nothing more
  relu,           // C = max(C, 0); `mask` records where C > 0. Whether a NaN stays NaN depends on the variant
  relu_backward,  // C = 0 where `saved_mask` says so; bias_gradient = column sums of C. Needs beta = 0 and no bias
};

// Options of gemm().
struct GemmOptions {
  bool transpose_a = false;            // op(A) is the transpose of A
  bool transpose_b = false;            // op(B) is the transpose of B
  float alpha = 1;                     // factor on the product
  float beta = 0;                      // with 0, C is not read
  Epilogue epilogue = Epilogue::none;  // what happens to C
  bool tf32 = false;  // f32 factors may be rounded to 10 bits of mantissa, for tensor cores; off by default
};

// op(A) is (M, K), op(B) is (K, N), row-major, of one dtype; sums are f32 (f64 for f64). C is (M, N), of that dtype, or
// f32. bias and bias_gradient are (N), of C's dtype. A mask is gemm_mask(M, N), a bit for each element of C in an order
// that depends on the variant: `layout` is that of the variant that wrote saved_mask; other variants refuse it. If the
// library that wrote it cannot read it, relu_output, the C of that call and of this C's type, says the same.
struct Gemm {  // c = alpha * op(a) op(b) + beta * c + bias, by its options
  const Tensor& a;
  const Tensor& b;
  const Tensor& bias = no_tensor();
  GemmOptions options = {};
  Tensor& c;
  Tensor& mask = no_tensor();               // relu
  const Tensor& saved_mask = no_tensor();   // relu_backward
  const Tensor& relu_output = no_tensor();  // relu_backward, optional; not one of tensors(), as it is rarely read
  const char* layout = nullptr;             // relu_backward
  Tensor& bias_gradient = no_tensor();      // relu_backward
  auto tensors() const { return tensor_list(a, b, bias, saved_mask, mask, bias_gradient, c); }
};
constinit inline Kernel<Gemm> gemm{"gemm"};

// Casts an operand of a product inside an Autocast scope: returns x in the scope's type, differentiably. Outside, x.
inline Tensor autocast(const Tensor& x) { return ambient().autocast == DType::f32 ? x : cast_operand(x); }
// The same for a parameter: returns the scope's copy, which has no history: the op's backward rule returns the gradient
// of the parameter itself, in f32.
inline Tensor autocast_parameter(const Tensor& parameter) {
  return ambient().autocast == DType::f32 ? parameter : cast_of_parameter(parameter);
}

// Checks the shapes, allocates C, of a's type, and calls gemm: op(a) op(b) + bias. Not differentiable; linear() is.
Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias = {}, const GemmOptions& options = {});

// gemm() without bias or masks.
void matmul_into(const Tensor& a, const Tensor& b, const GemmOptions& options, Tensor& c);

// Gradient of a parameter, a matrix, from its two factors, as a backward rule returns it: undefined if it is not
// needed.
Tensor matmul_gradient(const Tensor& a, const Tensor& b, GemmOptions options, const GradientTarget& parameter);

// Bytes of one row of the mask: 128 bits or a multiple, as cuBLASLt requires.
inline int64_t gemm_mask_row(int64_t N) { return (N + 127) / 128 * 16; }
inline Tensor gemm_mask(int64_t M, int64_t N, Device device) {  // its contents are unspecified
  return Tensor::empty({M, gemm_mask_row(N)}, DType::u8, device);
}

// sum[c] = sum over rows of x[i, c], added to the old sum[c] if `accumulate`: the gradient of a bias. x may be f16 or
// bf16 and sum f32.
struct ColumnSum {
  const Tensor& x;
  bool accumulate;
  Tensor& sum;
  auto tensors() const { return tensor_list(x, sum); }
};
constinit inline Kernel<ColumnSum> column_sum{"column_sum"};

// Gradient of a bias (C) from dy (..., C), as a backward rule returns it: undefined if it is not needed.
Tensor bias_gradient(const Tensor& dy, const GradientTarget& bias);

}  // namespace hs
