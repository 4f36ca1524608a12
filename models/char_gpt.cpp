// char_gpt: a transformer that predicts the next symbol of a text (Radford et al., "Language models are unsupervised
// multitask learners", 2019, in the small form of nanoGPT): embedding of symbols and positions, 4 blocks of width 128
// with 4 heads, layer norm, and a linear layer that shares the embedding's weights; 812,288 parameters for the 65
// symbols of Tiny Shakespeare and a context of 128. There are no biases, and no dropout. Parameters have the names of
// nanoGPT's state_dict.
#include <cmath>
#include <memory>
#include <vector>

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/random.h"
#include "kernels/causal_attention/causal_attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/feed_forward/gelu_feed_forward.h"
#include "kernels/gelu/gelu.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "models/layers.h"
#include "models/models.h"

namespace hs {
namespace {

constexpr double default_deviation = 0.02;  // of initial weights; GPT-2's

// Normal with mean 0, from (seed, layer).
Tensor normal_init(const Shape& shape, double deviation, uint64_t seed, uint32_t layer) {
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  const RandomStream stream{seed, RandomPurpose::init, layer, 0, 0};
  Tensor values = Tensor::empty(shape, DType::f32);
  float* data = values.mutable_data<float>();
  for (int64_t i = 0; i < values.size(); ++i) {
    const auto pair = 2 * static_cast<uint64_t>(i);
    data[i] = static_cast<float>(normal_number(deviation, random_bits(stream, pair), random_bits(stream, pair + 1)));
  }
  return values;
}

class Norm : public Module {
 public:
  explicit Norm(int64_t width) : weight_(Tensor::from(std::vector<float>(static_cast<size_t>(width), 1), {width})) {
    add_parameter("weight", weight_, ParameterRole::norm);
  }
  // In the type of the product that follows: an Autocast scope's, or f32.
  Tensor forward(const Tensor& x) override { return layer_norm(x, weight_, {}, 1e-5, ambient().autocast); }

 private:
  Tensor weight_;  // (C)
};

// x + attention(norm(x)), then the same with a feed-forward layer: (N, T, C) -> (N, T, C).
class TransformerBlock : public Module {
 public:
  TransformerBlock(const ModelSizes& sizes, LayerKeys& keys)
      : heads_(sizes.heads),
        norm1_(sizes.width),
        norm2_(sizes.width),
        qkv_(initial(sizes.width, 3 * sizes.width, keys)),
        projection_(initial(sizes.width, sizes.width, keys, last_deviation(sizes))),
        fc_(initial(sizes.width, 4 * sizes.width, keys)),
        fc_projection_(initial(4 * sizes.width, sizes.width, keys, last_deviation(sizes))) {
    add_child("ln_1", norm1_);
    add_child("attn.c_attn", qkv_);
    add_child("attn.c_proj", projection_);
    add_child("ln_2", norm2_);
    add_child("mlp.c_fc", fc_);
    add_child("mlp.c_proj", fc_projection_);
  }
  Tensor forward(const Tensor& x) override {
    // The sum over all blocks stays f32 in an Autocast scope.
    const Tensor y = add(x, projection_.forward(causal_attention(qkv_.forward(norm1_.forward(x)), heads_)));
    return add(y, feed_forward(norm2_.forward(y)));
  }

 private:
  // As one op, if there are no adapters.
  Tensor feed_forward(const Tensor& x) {
    const bool is_adapted = fc_.is_adapted() || fc_projection_.is_adapted();
    return is_adapted ? fc_projection_.forward(gelu(fc_.forward(x)))
                      : gelu_feed_forward(x, fc_.weight(), fc_projection_.weight());
  }
  static Tensor initial(int64_t in, int64_t out, LayerKeys& keys, double deviation = default_deviation) {
    return normal_init({in, out}, deviation, keys.seed(), keys.next());
  }
  // Smaller with depth, so that the sum of all blocks starts with the same variance at any depth.
  static double last_deviation(const ModelSizes& sizes) {
    return default_deviation / std::sqrt(2 * static_cast<double>(sizes.blocks));
  }
  const int64_t heads_;
  Norm norm1_, norm2_;
  Linear qkv_, projection_, fc_, fc_projection_;
};

class CharGpt : public StagedModel {
 public:
  CharGpt(LayerKeys& keys, const ModelSizes& sizes)
      : symbols_(normal_init({sizes.classes, sizes.width}, default_deviation, keys.seed(), keys.next())),
        positions_(normal_init({sizes.context(), sizes.width}, default_deviation, keys.seed(), keys.next())),
        norm_(sizes.width) {
    check(sizes.heads > 0 && sizes.width % sizes.heads == 0,
          "char_gpt: a width of {} and {} heads, expected a multiple of them", sizes.width, sizes.heads);
    add_parameter("transformer.wte.weight", symbols_, ParameterRole::embedding);
    add_parameter("transformer.wpe.weight", positions_, ParameterRole::embedding);
    add_stage("embedding", [this](const Tensor& tokens) { return embedding(tokens, symbols_, positions_); });
    for (int64_t b = 0; b < sizes.blocks; ++b) {
      TransformerBlock& block = *blocks_.emplace_back(std::make_unique<TransformerBlock>(sizes, keys));
      add_child(fmt::format("transformer.h.{}", b), block);
      add_stage(fmt::format("block{}", b + 1), [&block](const Tensor& x) { return block.forward(x); });
    }
    add_child("transformer.ln_f", norm_);
    add_stage("head", [this](const Tensor& x) {
      const Tensor logits = linear(norm_.forward(x), symbols_, {}, WeightOrder::out_in);
      return logits.reshape({x.shape()[0] * x.shape()[1], symbols_.shape()[0]});
    });
    // (N, T) -> (N, T, C) -> ... -> (N, T, C) -> (N * T, classes)
  }
  InputKind input_kind() const override { return InputKind::tokens; }

 private:
  Tensor symbols_;    // (classes, C), also the head's weight
  Tensor positions_;  // (context, C)
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  Norm norm_;
};

REGISTER_MODEL("char_gpt", CharGpt, {.has_blocks = true, .blocks = 4, .input = InputKind::tokens});

}  // namespace
}  // namespace hs
