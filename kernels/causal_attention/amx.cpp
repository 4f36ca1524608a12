// Registers causal_attention for bf16 on AMX tiles. Read kernels/causal_attention/amx.h.
#include "kernels/causal_attention/amx.h"

#if defined(__x86_64__)

namespace hs {
namespace {

template <class Call>
bool supports(const Call& call) {
  return amx::takes_attention(call) && amx::is_usable();
}

REGISTER_KERNEL(causal_attention_forward, cpu, "amx",
                {.run = amx::attention_forward<amx::HardwareTiles>,
                 .supported = supports<CausalAttentionForward>,
                 .workspace = amx::attention_workspace<CausalAttentionForward>,
                 .rank = 20,
                 .error_growth = amx::attention_growth});
REGISTER_KERNEL(causal_attention_backward, cpu, "amx",
                {.run = amx::attention_backward<amx::HardwareTiles>,
                 .supported = supports<CausalAttentionBackward>,
                 .workspace = amx::attention_workspace<CausalAttentionBackward>,
                 .rank = 20,
                 .error_growth = amx::attention_growth});

}  // namespace
}  // namespace hs

#endif
