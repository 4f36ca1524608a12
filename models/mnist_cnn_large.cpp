// mnist_cnn_large: conv 3x3 1->32, ReLU, conv 3x3 32->64, pool 2, ReLU, dropout 0.25, linear 9216->128, ReLU,
// dropout 0.5, linear 128->10; 1,199,882 parameters.
#include "kernels/relu/relu.h"
#include "models/layers.h"
#include "models/models.h"

namespace hs {
namespace {

class MnistCnnLarge : public StagedModel {
 public:
  MnistCnnLarge(LayerKeys& keys, const ModelSizes& sizes)
      : conv1_(sizes.channels, 32, {}, keys),
        conv2_(32, 64, {}, keys),
        dropout1_(0.25, keys),
        linear1_(64 * positions_after("mnist_cnn_large", sizes, [](int64_t side) { return (side - 4) / 2; }), 128,
                 keys),
        dropout2_(0.5, keys),
        linear2_(128, sizes.classes, keys) {
    add_child("conv1", conv1_);
    add_child("conv2", conv2_);
    add_child("linear1", linear1_);
    add_child("linear2", linear2_);
    add_stage("conv1", [this](const Tensor& x) { return conv1_.forward_relu(x); });
    add_stage("conv2", [this](const Tensor& x) { return conv2_.forward_pool_relu(x, &dropout1_); });
    add_stage("linear1", [this](const Tensor& x) { return relu(linear1_.forward(flatten(x))); });
    add_stage("linear2", [this](const Tensor& x) { return linear2_.forward(dropout2_.forward(x)); });
    // (N, 28, 28, 1) -> (N, 26, 26, 32) -> (N, 12, 12, 64) -> (N, 128) -> (N, 10)
  }

 private:
  Conv2d conv1_, conv2_;
  Dropout dropout1_;
  Linear linear1_;
  Dropout dropout2_;
  Head linear2_;
};

REGISTER_MODEL("mnist_cnn_large", MnistCnnLarge);

}  // namespace
}  // namespace hs
