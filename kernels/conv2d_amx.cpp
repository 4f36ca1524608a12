// conv2d for bf16 on AMX tiles: where they are registered. Read kernels/conv2d_amx.h.
#include "kernels/conv2d_amx.h"

#if defined(__x86_64__)

namespace hs {
namespace {

REGISTER_KERNEL(conv2d_forward, cpu, "amx",
                {.run = amx::forward<amx::HardwareTiles>,
                 .supported = [](const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes& s, Tensor&,
                                 Tensor&) { return amx::takes_forward(x, s) && amx::is_usable(); },
                 .workspace = [](const Tensor&, const Tensor&, const Tensor&, const Conv2dSizes& s, Tensor&,
                                 Tensor&) { return amx::forward_workspace(s); },
                 .rank = 30});
REGISTER_KERNEL(conv2d_backward, cpu, "amx",
                {.run = amx::backward<amx::HardwareTiles>,
                 .supported = [](const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes& s, bool, Tensor&,
                                 Tensor& dx, Tensor&,
                                 Tensor&) { return amx::takes_backward(x, s, dx) && amx::is_usable(); },
                 .workspace = [](const Tensor&, const Tensor&, const Tensor&, const Conv2dSizes& s, bool, Tensor&,
                                 Tensor& dx, Tensor&, Tensor&) { return amx::backward_workspace(s, dx.defined()); },
                 .rank = 30});

}  // namespace
}  // namespace hs

#endif
