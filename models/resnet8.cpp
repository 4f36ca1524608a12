// resnet8: the residual network of the MLPerf Tiny benchmark (Banbury et al., NeurIPS 2021, "image classification") for
// 32x32x3: conv 3x3 3->16; blocks of two convs 3x3 with 16, 32 and 64 channels, the last two of stride 2 and with a
// conv 1x1 as the shortcut; average over the image, linear 64->10. 78,186 parameters and 480 statistics.
//
// Each conv 3x3 has a batch norm behind it, and its bias although that takes it away again: the published number of
// parameters counts it. Padding is 1 on all sides, as PyTorch writes this network; TensorFlow pads the convs of stride
// 2 by 0 before and 1 after the image, so that weights trained there need other windows.
#include <optional>

#include "kernels/global_average_pool2d/global_average_pool2d.h"
#include "models/layers.h"
#include "models/models.h"

namespace hs {
namespace {

constexpr Bias has_bias = Bias::on;
constexpr Init start = Init::he_normal;

Conv2dOptions conv3x3(int64_t stride = 1) { return {.stride = stride, .padding = 1}; }

// relu(convs(x) + shortcut(x)); without a shortcut of its own x itself.
class Block : public Module {
 public:
  Block(int64_t in, int64_t out, int64_t stride, LayerKeys& keys)
      : conv1_(in, out, conv3x3(stride), keys, has_bias, start),
        conv2_(out, out, conv3x3(), keys, has_bias, start),
        bn1_(out, {.relu = true}),
        bn2_(out, {.relu = true}) {
    add_child("conv1", conv1_);
    add_child("bn1", bn1_);
    add_child("conv2", conv2_);
    if (stride > 1) {
      shortcut_.emplace(in, out, Conv2dOptions{.kernel_h = 1, .kernel_w = 1, .stride = stride}, keys, has_bias, start);
      add_child("shortcut", *shortcut_);
    }
    add_child("bn2", bn2_);  // last, because backward finishes its gradients first
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = bn1_.forward(conv1_.forward(x));
    return bn2_.forward(conv2_.forward(y), shortcut_ ? shortcut_->forward(x) : x);
  }

 private:
  Conv2d conv1_, conv2_;
  std::optional<Conv2d> shortcut_;
  BatchNorm2d bn1_, bn2_;
};

class ResNet8 : public StagedModel {
 public:
  ResNet8(LayerKeys& keys, const ModelSizes& sizes)
      : conv_(sizes.channels, 16, conv3x3(), keys, has_bias, start),
        bn_(16, {.relu = true}),
        block1_(16, 16, 1, keys),
        block2_(16, 32, 2, keys),
        block3_(32, 64, 2, keys),
        linear_(64, sizes.classes, keys, has_bias, start) {
    add_child("conv", conv_);
    add_child("bn", bn_);
    add_child("block1", block1_);
    add_child("block2", block2_);
    add_child("block3", block3_);
    add_child("linear", linear_);
    add_stage("stem", [this](const Tensor& x) { return bn_.forward(conv_.forward(x)); });
    add_stage("block1", [this](const Tensor& x) { return block1_.forward(x); });
    add_stage("block2", [this](const Tensor& x) { return block2_.forward(x); });
    add_stage("block3", [this](const Tensor& x) { return block3_.forward(x); });
    add_stage("linear", [this](const Tensor& x) { return linear_.forward(global_average_pool2d(x)); });
    // (N, 32, 32, 3) -> (N, 32, 32, 16) -> (N, 32, 32, 16) -> (N, 16, 16, 32) -> (N, 8, 8, 64) -> (N, 10)
  }

 private:
  Conv2d conv_;
  BatchNorm2d bn_;
  Block block1_, block2_, block3_;
  Head linear_;
};

REGISTER_MODEL("resnet8", ResNet8);

}  // namespace
}  // namespace hs
