// Registers conv2d and conv2d_pool_relu for bf16 on AMX tiles. Read kernels/conv2d/amx.h and amx_backward.h, then
// kernels/conv2d_pool_relu/amx.h.
#include "kernels/conv2d_pool_relu/amx.h"

#if defined(__x86_64__)

namespace hs {
namespace {

template <class Call>
bool supports(const Call& call) {
  return amx::takes(call) && amx::is_usable();
}

REGISTER_KERNEL(conv2d_forward, cpu, "amx",
                {.run = amx::forward<amx::HardwareTiles>,
                 .supported = supports<Conv2dForward>,
                 .workspace = amx::forward_workspace,
                 .rank = 30});
REGISTER_KERNEL(conv2d_backward, cpu, "amx",
                {.run = amx::backward<amx::HardwareTiles>,
                 .supported = supports<Conv2dBackward>,
                 .workspace = amx::backward_workspace,
                 .rank = 30});
REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "amx",
                {.run = amx::pooled_forward<amx::HardwareTiles>,
                 .supported = supports<Conv2dPoolReluForward>,
                 .workspace = amx::pooled_workspace,
                 .rank = 30});
REGISTER_KERNEL(conv2d_pool_relu_backward, cpu, "amx",
                {.run = amx::pooled_backward<amx::HardwareTiles>,
                 .supported = supports<Conv2dPoolReluBackward>,
                 .workspace = amx::pooled_backward_workspace,
                 .rank = 30});

}  // namespace
}  // namespace hs

#endif
