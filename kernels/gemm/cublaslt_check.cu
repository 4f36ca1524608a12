// The check of an algorithm of cuBLASLt, before it is used: it must multiply ones to exactly K, and agree with the
// naive kernel on random numbers.
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/cublaslt_plan.cuh"
#include "kernels/gemm/gemm.cuh"

namespace hs::cublaslt {
namespace {

// Values for the check: a constant, integers from -2 to 2, or values in [-1, 1) from a hash of the index.
enum class Fill { constant, integers, random };

struct FillWith {
  Fill fill;
  uint32_t seed;
  float constant;
  __device__ float operator()(int64_t i) const {
    if (fill == Fill::constant) return constant;
    uint32_t h = static_cast<uint32_t>(i) * 0x9E3779B9u + seed;
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    h ^= h >> 16;
    if (fill == Fill::integers) return static_cast<float>(static_cast<int>(h % 5)) - 2;
    return static_cast<float>(h >> 8) * 0x1p-23f - 1;
  }
};

Tensor filled(const Shape& shape, DType dtype, Fill fill, uint32_t seed, float constant = 0) {
  Tensor tensor = Tensor::empty(shape, dtype, Device::cuda);
  cuda::for_float_type(dtype, [&]<class T>() {
    cuda::elementwise(tensor.size(), FillWith{fill, seed, constant}, tensor.mutable_data<T>());
  });
  return tensor;
}

// How far a result may be from the naive kernel's: relative * |expected| + absolute. `relative` is two roundings to C's
// type, one on either side of the true value. The library may also round the sum of products to C's type before it adds
// the bias, where it splits K; so with a bias half of `relative`, one rounding, of |expected - bias| is allowed too.
struct Bound {
  float relative, absolute;
};

// Counts the elements begin .. end - 1 that are beyond the bound. bias: (N) or nullptr.
template <class T>
__global__ void count_differences(int64_t begin, int64_t end, int64_t N, const T* got, const T* expected, const T* bias,
                                  Bound bound, int* count) {
  const int64_t step = cuda::global_threads() % N;
  int64_t column = (begin + cuda::global_thread()) % N;  // advanced below: a division costs more than an addition
  for (int64_t i = begin + cuda::global_thread(); i < end; i += cuda::global_threads()) {
    const float want = cuda::to_f32(expected[i]);
    float size = fabsf(want);
    if (bias) size += 0.5f * fabsf(want - cuda::to_f32(bias[column]));
    const bool close = fabsf(cuda::to_f32(got[i]) - want) <= bound.relative * size + bound.absolute;
    if (!close) atomicAdd(count, 1);  // integers: the order does not matter
    column = column + step < N ? column + step : column + step - N;
  }
}

int differences(const Tensor& got, const Tensor& expected, int64_t begin, int64_t end, Bound bound,
                const Tensor& bias = {}) {
  Tensor count = Tensor::zeros({}, DType::i32, Device::cuda);
  cuda::for_float_type(got.dtype(), [&]<class T>() {
    cuda::launch(count_differences<T>, cuda::blocks_for(end - begin), cuda::block_threads, 0, cuda::compute_stream(),
                 begin, end, got.shape()[got.shape().rank() - 1], got.data<T>(), expected.data<T>(),
                 bias.defined() ? bias.data<T>() : nullptr, bound, count.mutable_data<int32_t>());
  });
  return static_cast<int>(count.item());
}

// A mask for the derivative of ReLU can only come from the library's own forward product, with a bias as feed_forward()
// has it, or without. Returns why there is none, or an empty string.
std::string make_masks(const Key& key, Tensor& of_library, Tensor& of_naive) {
  const int64_t inner = 32;
  const Tensor a = filled({key.M, inner}, key.in, Fill::integers, 5),
               b = filled({inner, key.N}, key.in, Fill::integers, 6);
  Tensor c = Tensor::empty({key.M, key.N}, key.in, Device::cuda);
  const Tensor zeros = Tensor::zeros({key.N}, key.in, Device::cuda);
  const GemmOptions options{.epilogue = Epilogue::relu};
  std::string fault;
  for (const Tensor& bias : {zeros, Tensor()}) {
    const Gemm product{.a = a, .b = b, .bias = bias, .options = options, .c = c, .mask = of_library};
    const Plan forward(key_of(product), product);
    fault = forward.fault;
    if (!fault.empty()) continue;
    forward.run(product);
    gemm_naive({.a = a, .b = b, .options = options, .c = c, .mask = of_naive}, 0, key.M);
    return "";
  }
  return "no ReLU makes a mask for it: " + fault;
}

}  // namespace

std::string find_fault(const Key& key, const Plan& plan) {
  const Shape shape_a = key.transpose_a ? Shape{key.K, key.M} : Shape{key.M, key.K};
  const Shape shape_b = key.transpose_b ? Shape{key.N, key.K} : Shape{key.K, key.N};
  const GemmOptions options{.transpose_a = key.transpose_a,
                            .transpose_b = key.transpose_b,
                            .beta = key.adds ? 1.0f : 0.0f,
                            .epilogue = key.epilogue};
  const bool masked = key.epilogue != Epilogue::none, backward = key.epilogue == Epilogue::relu_backward;
  Tensor mask, naive_mask, gradient, naive_gradient;
  if (masked) mask = gemm_mask(key.M, key.N, Device::cuda), naive_mask = gemm_mask(key.M, key.N, Device::cuda);
  if (backward) {
    const std::string none = make_masks(key, mask, naive_mask);
    if (!none.empty()) return none;
    gradient = Tensor::empty({key.N}, key.out, Device::cuda);
    naive_gradient = gradient.empty_like();
  }
  // Rows that are compared: all, or 64 at each end, because the naive kernel is slow.
  const int64_t ends = 64;
  const int64_t head = key.M <= 2 * ends ? key.M : ends, tail = key.M <= 2 * ends ? key.M : key.M - ends;

  for (const Fill fill : {Fill::constant, Fill::random}) {
    const Tensor a = filled(shape_a, key.in, fill, 1, 1), b = filled(shape_b, key.in, fill, 2, 1);
    const Tensor bias = key.has_bias ? filled({key.N}, key.out, fill, 3) : Tensor();
    Tensor got = filled({key.M, key.N}, key.out, fill, 4), expected = got.clone();
    plan.run({.a = a,
              .b = b,
              .bias = bias,
              .options = options,
              .c = got,
              .mask = mask,
              .saved_mask = mask,
              .bias_gradient = gradient});
    const int64_t all = key.M * key.N;
    if (fill == Fill::constant && !backward) {
      expected = filled({key.M, key.N}, key.out, fill, 0, static_cast<float>(key.K));
      if (const int wrong = differences(got, expected, 0, all, {0, 0})) {
        return "of ones times ones, " + std::to_string(wrong) + " elements are not K";
      }
      continue;
    }
    const Gemm by_naive{.a = a,
                        .b = b,
                        .bias = bias,
                        .options = options,
                        .c = expected,
                        .mask = naive_mask,
                        .saved_mask = naive_mask,
                        .bias_gradient = naive_gradient};
    gemm_naive(by_naive, 0, head);
    if (tail < key.M) gemm_naive(by_naive, tail, key.M);
    // Products are below 1 and 1/4 on average; their sum of K may err by a few sqrt(K) roundings of its size, which is
    // far below the error of 1/3 sqrt(n) from n missing products.
    const float unit = key.tf32 ? 0x1p-11f : 0x1p-24f * std::sqrt(static_cast<float>(key.K));
    const float absolute = 8 * unit * std::sqrt(static_cast<float>(key.K) + 2);
    const float relative = key.out == DType::f16 ? 0x1p-10f : key.out == DType::bf16 ? 0x1p-7f : 0x1p-20f;
    const Bound bound{relative, absolute};
    const Tensor late_bias = key.out == DType::f32 ? Tensor() : bias;  // f32 is not rounded on the way
    const int wrong = differences(got, expected, 0, head * key.N, bound, late_bias) +
                      differences(got, expected, tail * key.N, all, bound, late_bias);
    if (wrong) return std::to_string(wrong) + " elements differ from the naive kernel's";
    if (backward && key.M <= 2 * ends) {  // sums of M such numbers
      const auto rows = static_cast<float>(key.M);
      const int wrong_sums = differences(gradient, naive_gradient, 0, key.N, {relative, (absolute + relative) * rows});
      if (wrong_sums) return std::to_string(wrong_sums) + " elements of the bias gradient differ";
    }
  }
  return "";
}

}  // namespace hs::cublaslt
