// mnist_cnn: 28x28x1, conv 3x3 1->32, pool 2, ReLU, conv 3x3 32->64, pool 2, ReLU, dropout 0.5, linear 1600->10;
// 34,826 parameters. The model of the headline results.
//
// Pooling comes before ReLU if they are adjacent, here and in the other models: the maximum commutes with ReLU, so
// values and gradients are the same to the last bit, and ReLU has a quarter of the work.
#include "models/layers.h"
#include "models/models.h"

namespace hs {
namespace {

constexpr Conv2dOptions unpadded_3x3{.kernel_h = 3, .kernel_w = 3};

class MnistCnn : public StagedModel {
 public:
  MnistCnn(LayerKeys& keys, const ModelSizes& sizes)
      : conv1_(sizes.channels, 32, unpadded_3x3, keys),
        conv2_(32, 64, unpadded_3x3, keys),
        dropout_(0.5, keys),
        linear_(64 * positions_after("mnist_cnn", sizes, side_after), sizes.classes, keys) {
    add_child("conv1", conv1_);
    add_child("conv2", conv2_);
    add_child("linear", linear_);
    // (N, 28, 28, 1) -> (N, 13, 13, 32) -> (N, 5, 5, 64) -> (N, 10)
    add_stage("conv1", [this](const Tensor& x) { return conv1_.forward_pool_relu(x); });
    add_stage("conv2", [this](const Tensor& x) { return conv2_.forward_pool_relu(x, &dropout_); });
    add_stage("linear", [this](const Tensor& x) { return linear_.forward(flatten(x)); });
  }

 private:
  // Twice a convolution of 3 x 3 and pooling by 2: 28 -> 5. positions_after() applies it to both sides.
  static int64_t side_after(int64_t side) { return ((side - 2) / 2 - 2) / 2; }

  Conv2d conv1_, conv2_;
  Dropout dropout_;
  Head linear_;
};

REGISTER_MODEL("mnist_cnn", MnistCnn);

}  // namespace
}  // namespace hs
