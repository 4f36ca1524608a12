// LoRA: a trained network is adapted to new data by small matrices beside its large ones (Hu et al., "LoRA: low-rank
// adaptation of large language models", ICLR 2022). A weight W (in, out) stays as it is; what is trained is A (r, in)
// and B (out, r), and the layer computes
//   y = x W + (alpha / r) (x A^T) B^T
// B starts at zero, so that training starts with the network as it was. A and B lie as in Hugging Face's peft.
//
// Linear computes it so. Conv2d, whose x A^T would be a second convolution, forms W + (alpha / r) (B A)^T once for each
// forward pass, and so does mlp, whose two layers are one op.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/module.h"

namespace hs {

class OutputFolder;
class StagedModel;

// The size of adapters.
struct LoraOptions {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;  // 0: twice the rank
  // `alpha`, or its default.
  double used_alpha() const { return alpha > 0 ? alpha : 2 * static_cast<double>(rank); }
  // alpha / r in the formula above.
  double factor() const { return used_alpha() / static_cast<double>(rank); }
};

// A and B beside the matrix W of one layer, whose parameters they are.
class Adapters {
 public:
  // A starts uniform in +-1/sqrt(in), B with zeros. Throws Error (usage) unless 1 <= rank <= in and out.
  Adapters(const Shape& weight, const LoraOptions& options, LayerKeys& keys);  // weight: (in, out), of W
  Tensor add_to(const Tensor& y, const Tensor& x) const;                       // y + (alpha / r) (x A^T) B^T
  // W + (alpha / r) (B A)^T, a new tensor, whose gradient goes on to A and B, and not to W: a product, and two in
  // backward.
  Tensor merged(const Tensor& weight) const;

  Tensor a, b;  // (r, in) and (out, r)

 private:
  double factor_;  // alpha / r
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
