// Registers conv2d for bf16 on AMX tiles. Read kernels/conv2d/amx.h and amx_backward.h.
#include "kernels/conv2d/amx_backward.h"

#if defined(__x86_64__)

namespace hs {
namespace {

REGISTER_KERNEL(conv2d_forward, cpu, "amx",
                {.run = amx::forward<amx::HardwareTiles>,
                 .supported = [](const Conv2dForward& call) { return amx::takes(call) && amx::is_usable(); },
                 .workspace = amx::forward_workspace,
                 .rank = 30});
REGISTER_KERNEL(conv2d_backward, cpu, "amx",
                {.run = amx::backward<amx::HardwareTiles>,
                 .supported = [](const Conv2dBackward& call) { return amx::takes(call) && amx::is_usable(); },
                 .workspace = amx::backward_workspace,
                 .rank = 30});

}  // namespace
}  // namespace hs

#endif
