// Registers conv2d_pool_relu for bf16 on AMX tiles. Read kernels/conv2d_pool_relu/amx.h.
#include "kernels/conv2d_pool_relu/amx.h"

#if defined(__x86_64__)

namespace hs {
namespace {

REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "amx",
                {.run = amx::pooled_forward<amx::HardwareTiles>,
                 .supported = [](const Conv2dPoolReluForward& call) { return amx::takes(call) && amx::is_usable(); },
                 .workspace = amx::pooled_workspace,
                 .rank = 30});
REGISTER_KERNEL(conv2d_pool_relu_backward, cpu, "amx",
                {.run = amx::pooled_backward<amx::HardwareTiles>,
                 .supported = [](const Conv2dPoolReluBackward& call) { return amx::takes(call) && amx::is_usable(); },
                 .workspace = amx::pooled_backward_workspace,
                 .rank = 30});

}  // namespace
}  // namespace hs

#endif
