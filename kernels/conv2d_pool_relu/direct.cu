// conv2d_pool_relu of grey and colour images by 3 x 3 fields. Read kernels/conv2d/direct.cuh.
#include <cuda_runtime.h>

#include "kernels/conv2d/direct.cuh"

namespace hs {
namespace {

void forward_direct(const Conv2dPoolReluForward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::direct_forward<T, true>(call.sizes, true, call.x.data<T>(), call.weight.data<T>(),
                                  call.bias.defined() ? call.bias.data<T>() : nullptr, call.y.mutable_data<T>(),
                                  call.winner.mutable_data<uint8_t>());
  });
}

void backward_direct(const Conv2dPoolReluBackward& call, Tensor& workspace) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::direct_backward<T, true>(call.sizes, call.accumulate,
                                   {call.dy.data<T>(), call.winner.data<uint8_t>(), call.dy_factor}, call.x.data<T>(),
                                   call.weight.data<T>(), workspace, call.dx, call.dweight, call.dbias);
  });
}

REGISTER_KERNEL(conv2d_pool_relu_forward, cuda, "direct",
                {.run = forward_direct,
                 .supported =
                     [](const Conv2dPoolReluForward& call) {
                       return !call.dropped && cuda::is_float(call.x) && cuda::direct_supports(call.sizes, true);
                     },
                 .rank = 10});
REGISTER_KERNEL(conv2d_pool_relu_backward, cuda, "direct",
                {.run = backward_direct,
                 .supported =
                     [](const Conv2dPoolReluBackward& call) {
                       return cuda::is_float(call.x) && cuda::direct_supports(call.sizes, true);
                     },
                 .workspace =
                     [](const Conv2dPoolReluBackward& call) { return cuda::DirectParts(call.sizes, true).bytes; },
                 .rank = 10});

}  // namespace
}  // namespace hs
