// LoRA: a trained network is adapted to new data by small matrices beside its large ones (Hu et al., "LoRA: low-rank
// adaptation of large language models", ICLR 2022). A weight W (in, out) stays as it is; what is trained is A (r, in)
// and B (out, r), and the layer computes
//   y = x W + (alpha / r) (x A^T) B^T
// B starts at zero, so that training starts with the network as it was. A and B lie as in Hugging Face's peft.
//
// LoraLinear, whose x has many rows, computes it so. The layers of models/layers.h form W + (alpha / r) (B A)^T once
// for each forward pass, which a convolution's matrix permits too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "models/layers.h"

namespace hs {

class OutputFolder;

// The size of adapters.
struct LoraOptions {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;  // 0: twice the rank
  // `alpha`, or its default.
  double used_alpha() const { return alpha > 0 ? alpha : 2 * static_cast<double>(rank); }
  // alpha / r in the formula above.
  double factor() const { return used_alpha() / static_cast<double>(rank); }
};

// A linear layer without bias, to which adapters can be added: (..., in) -> (..., out).
class LoraLinear : public AdaptableLayer {
 public:
  explicit LoraLinear(const Tensor& weight);  // (in, out)
  Tensor forward(const Tensor& x) override;

  // two.forward(gelu(one.forward(x))), as one op if neither has adapters.
  friend Tensor gelu_feed_forward(const Tensor& x, LoraLinear& one, LoraLinear& two);
};

inline constexpr const char* lora_names[] = {"lora_A.weight", "lora_B.weight"};  // the parameters A and B of a layer
bool is_adapter(const std::string& parameter);                                   // by its name

// The parameters of the network without adapters that computes the same: W + (alpha / r) (B A)^T in place of each W
// that has them, formed in f64 and rounded once. On the CPU.
std::vector<NamedTensor> merged_parameters(Module& module, const LoraOptions& options);

// Adapters in a folder, as peft saves and opens them:
//   adapter_model.safetensors   base_model.model.NAME for each parameter NAME of the adapters, as in
//                               base_model.model.transformer.h.0.attn.c_attn.lora_A.weight; with the rank, alpha and
//                               the base's hash as metadata
//   adapter_config.json         for peft
// Writes both files into `folder`, which is to be kept. base: a hash of the values of the network that was adapted.
// Throws Error (io).
void write_adapters(const OutputFolder& folder, Module& model, const LoraOptions& options, const std::string& base);
// Adds the folder's adapters to `model`, whose values have the hash `base`. Throws Error: checkpoint (damaged, no
// adapters of halfstep, not of this model, or trained on values of another hash), io, usage (the model takes none); the
// model is of no use then.
LoraOptions load_adapters(StagedModel& model, const std::string& base, const std::filesystem::path& folder);

}  // namespace hs
