// conv2d of grey and colour images by 3 x 3 fields, with or without ReLU. Read kernels/conv2d/direct.cuh.
#include "kernels/conv2d/direct.cuh"

#include <cuda_runtime.h>

namespace hs {
namespace {

void forward_direct(const Conv2dForward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::direct_forward<T, false>(call.sizes, call.relu, call.x.data<T>(), call.weight.data<T>(),
                                   call.bias.defined() ? call.bias.data<T>() : nullptr, call.y.mutable_data<T>(),
                                   nullptr);
  });
}

void backward_direct(const Conv2dBackward& call, Tensor& workspace) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T* mask = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
    cuda::direct_backward<T, false>(call.sizes, call.accumulate, {call.dy.data<T>(), mask}, call.x.data<T>(),
                                    call.weight.data<T>(), workspace, call.dx, call.dweight, call.dbias);
  });
}

REGISTER_KERNEL(conv2d_forward, cuda, "direct",
                {.run = forward_direct,
                 .supported =
                     [](const Conv2dForward& call) {
                       return cuda::is_float(call.x) && cuda::direct_supports(call.sizes, false);
                     },
                 .rank = 10});
REGISTER_KERNEL(conv2d_backward, cuda, "direct",
                {.run = backward_direct,
                 .supported =
                     [](const Conv2dBackward& call) {
                       return cuda::is_float(call.x) && cuda::direct_supports(call.sizes, false);
                     },
                 .workspace = [](const Conv2dBackward& call) { return cuda::DirectParts(call.sizes, false).bytes; },
                 .rank = 10});

}  // namespace
}  // namespace hs
