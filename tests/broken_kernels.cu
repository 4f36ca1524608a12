// Kernels that each break one rule of tests/cubin.py, and twins that break none, for `tests/cubin.py selftest`.
// Compiled with nvcc alone and never run. A name begins with the rule that it breaks, or with fine.
#include <cuda_runtime.h>

struct Half {
  unsigned short bits;
};
struct alignas(16) Pack {
  Half value[8];
};

__global__ void local_array(int n, const int* x, int* y) {
  int values[32];  // indexed with what no compiler knows, so not in registers
  for (int i = 0; i < 32; ++i) values[i] = x[i];
  for (int i = 0; i < n; ++i) values[x[i] % 32] += i;
  y[threadIdx.x] = values[x[n] % 32];
}

__global__ void atomic_sum(const float* x, float* y) { atomicAdd(y, x[threadIdx.x]); }
__global__ void fine_integer_sum(const int* x, int* y) { atomicAdd(y, x[threadIdx.x]); }

__global__ void mma_in_name_only(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }

__global__ void division_in_loop(long n, long size, const float* x, float* y) {
  for (long i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i / size];
}
__global__ void fine_division_before_loop(long n, long size, const float* x, float* y) {
  const long first = n / size;
  for (long i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i + first];
}
__global__ void fine_32_bit_division_in_loop(unsigned n, unsigned size, const float* x, float* y) {
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i / size];
}

// As kernels/cuda/cuda.cuh, but the pack is passed by reference.
template <class F, class Out, class In>
__global__ void elementwise_kernel(long packs, Out* y, const In* x) {
  const auto apply = [](const Pack& in, Pack& out) {
    for (int j = 0; j < 8; ++j) out.value[j].bits = in.value[j].bits & 0x8000 ? 0 : in.value[j].bits;
  };
  for (long p = threadIdx.x; p < packs; p += blockDim.x) {
    Pack out;
    apply(reinterpret_cast<const Pack*>(x)[p], out);
    reinterpret_cast<Pack*>(y)[p] = out;
  }
}
struct Relu {};
template __global__ void elementwise_kernel<Relu, Half, Half>(long, Half*, const Half*);
