#include "kernels/elementwise/elementwise.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct Add {
  __device__ float operator()(int64_t, float a, float b) const { return a + b; }
};

struct Subtract {
  __device__ float operator()(int64_t, float a, float b) const { return a - b; }
};

struct Multiply {
  __device__ float operator()(int64_t, float a, float b) const { return a * b; }
};

struct Scale {
  float factor;
  __device__ float operator()(int64_t, float x) const { return x * factor; }
};

void add_cuda(const BinaryForward& call) {
  cuda::for_float_type(call.a, call.b, [&]<class T, class B>() {
    cuda::elementwise(call.a.size(), Add{}, call.y.mutable_data<T>(), call.a.data<T>(), call.b.data<B>());
  });
}

template <class Function>  // of two numbers
void binary_cuda(const BinaryForward& call) {
  cuda::for_float_type(call.a.dtype(), [&]<class T>() {
    cuda::elementwise(call.a.size(), Function{}, call.y.mutable_data<T>(), call.a.data<T>(), call.b.data<T>());
  });
}

void scale_cuda(const ScaleForward& call) {
  const Scale scale{static_cast<float>(call.factor)};
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::elementwise(call.x.size(), scale, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

// The column index is advanced, not computed by division for each element: a division costs more than the addition.
template <class T>
__global__ void bias_add_kernel(cuda::Previous previous, int64_t size, int64_t packs, int64_t C, const T* x,
                                const T* bias, T* y) {
  previous.wait();
  using Pack = cuda::Pack<T, cuda::pack_size<T>>;
  constexpr int N = cuda::pack_size<T>;
  const int64_t step = cuda::global_threads() * N % C;
  int64_t first = cuda::global_thread() * N % C;
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) {
    Pack pack = reinterpret_cast<const Pack*>(x)[p];
    int64_t c = first;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      pack.value[j] = cuda::from_f32<T>(cuda::to_f32(pack.value[j]) + cuda::to_f32(bias[c]));
      c = c + 1 < C ? c + 1 : 0;
    }
    reinterpret_cast<Pack*>(y)[p] = pack;
    first = first + step < C ? first + step : first + step - C;
  }
  const int64_t step_of_one = cuda::global_threads() % C;
  int64_t c = (packs * N + cuda::global_thread()) % C;
  for (int64_t i = packs * N + cuda::global_thread(); i < size; i += cuda::global_threads()) {
    y[i] = cuda::from_f32<T>(cuda::to_f32(x[i]) + cuda::to_f32(bias[c]));
    c = c + step_of_one < C ? c + step_of_one : c + step_of_one - C;
  }
}

void bias_add_cuda(const BiasAddForward& call) {
  const int64_t size = call.x.size(), C = call.x.shape().back();
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    constexpr int N = cuda::pack_size<T>;
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    const bool aligned = cuda::is_aligned<T, N>(in) && cuda::is_aligned<T, N>(out);
    const int64_t packs = aligned ? size / N : 0;
    cuda::launch(bias_add_kernel<T>, cuda::blocks_for(aligned ? (size + N - 1) / N : size), cuda::block_threads, 0,
                 cuda::compute_stream(), size, packs, C, in, call.bias.data<T>(), out);
  });
}

REGISTER_KERNEL(add_forward, cuda, "simple", {.run = add_cuda, .supported = [](const BinaryForward& call) {
                                                return cuda::is_float_or_narrower(call.a, call.b);
                                              }});
REGISTER_KERNEL(sub_forward, cuda, "simple", {.run = binary_cuda<Subtract>, .supported = cuda::takes_floats});
REGISTER_KERNEL(mul_forward, cuda, "simple", {.run = binary_cuda<Multiply>, .supported = cuda::takes_floats});
REGISTER_KERNEL(scale_forward, cuda, "simple", {.run = scale_cuda, .supported = cuda::takes_floats});
REGISTER_KERNEL(bias_add_forward, cuda, "simple", {.run = bias_add_cuda, .supported = [](const BiasAddForward& call) {
                                                     return cuda::is_float(call.x) &&
                                                            call.bias.dtype() == call.x.dtype();
                                                   }});

}  // namespace
}  // namespace hs
