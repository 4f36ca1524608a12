// ReLU and its derivative for the variants that compute products only: the best of them computes C, then a kernel of
// its own applies the epilogue. This costs another pass over C, but the product runs on tensor cores, which the naive
// kernel does not have. The results are the naive kernel's, whose mask it also shares.
#include <cuda_runtime.h>

#include "kernels/gemm/gemm.cuh"

namespace hs {
namespace {

// A block takes row after row. One thread for each byte of the mask, the bits of 8 columns; see naive.cu for the order.
template <class T>
__global__ void relu_and_mask(int64_t M, int64_t N, int64_t mask_row, T* c, uint8_t* mask) {
  for (int64_t row = blockIdx.x; row < M; row += gridDim.x) {
    for (int64_t byte = threadIdx.x; byte < mask_row; byte += blockDim.x) {
      unsigned bits = 0;
      for (int64_t column = byte * 8; column < byte * 8 + 8 && column < N; ++column) {
        T& value = c[row * N + column];
        if (cuda::to_f32(value) <= 0) {  // false for NaN, which is kept
          value = T{};
        } else {
          bits |= 1u << column % 8;
        }
      }
      mask[row * mask_row + byte] = static_cast<uint8_t>(bits);
    }
  }
}

// C = 0 where the output of the ReLU is, or where the mask says so if there is no such output.
template <class T>
__global__ void relu_backward(int64_t M, int64_t N, int64_t mask_row, const T* output, const uint8_t* mask, T* c) {
  for (int64_t row = blockIdx.x; row < M; row += gridDim.x) {
    for (int64_t column = threadIdx.x; column < N; column += blockDim.x) {
      const int64_t i = row * N + column;
      const bool keep = output ? !(cuda::to_f32(output[i]) <= 0) : mask[row * mask_row + column / 8] >> column % 8 & 1;
      if (!keep) c[i] = T{};
    }
  }
}

// The best variant for the product alone; "tiled" supports all. Not by a call of the slot: where this variant is
// forced, no other would run.
void run_product(const Gemm& call) {
  Gemm product{.a = call.a, .b = call.b, .bias = call.bias, .options = call.options, .c = call.c};
  product.options.epilogue = Epilogue::none;
  for (const VariantBase* v = gemm.variants(); v; v = v->next) {
    if (v->device != Device::cuda) continue;
    const auto& options = static_cast<const decltype(gemm)::Variant*>(v)->options;
    if (!options.supported(product)) continue;
    options.run.plain(product);
    return;
  }
}

void gemm_unfused_by_mask(const Gemm& call) {
  gemm_unfused({.a = call.a,
                .b = call.b,
                .bias = call.bias,
                .options = call.options,
                .c = call.c,
                .mask = call.mask,
                .saved_mask = call.saved_mask,
                .bias_gradient = call.bias_gradient});
}

REGISTER_KERNEL(gemm, cuda, "unfused",
                {.run = gemm_unfused_by_mask, .supported = cuda::gemm_types_supported, .rank = 5, .layout = "rows"});

}  // namespace

void gemm_unfused(const Gemm& call) {
  run_product(call);
  if (call.options.epilogue == Epilogue::none) return;
  cuda::for_gemm_types(call, [&]<class In, class Out>() {
    const int64_t M = call.c.shape()[0], N = call.c.shape()[1], mask_row = gemm_mask_row(N);
    Out* c = call.c.mutable_data<Out>();
    if (call.options.epilogue == Epilogue::relu) {
      cuda::launch(relu_and_mask<Out>, cuda::blocks_for(M * cuda::block_threads), cuda::block_threads, 0,
                   cuda::compute_stream(), M, N, mask_row, c, call.mask.mutable_data<uint8_t>());
      return;
    }
    const bool by_output = call.relu_output.defined();
    cuda::launch(relu_backward<Out>, cuda::blocks_for(M * cuda::block_threads), cuda::block_threads, 0,
                 cuda::compute_stream(), M, N, mask_row, by_output ? call.relu_output.data<Out>() : nullptr,
                 by_output ? nullptr : call.saved_mask.data<uint8_t>(), c);
    gemm_column_sums<Out>(M, N, c, call.bias_gradient.mutable_data<Out>());
  });
}

}  // namespace hs
