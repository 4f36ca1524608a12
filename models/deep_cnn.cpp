// deep_cnn: conv 3x3 1->32, ReLU; `blocks` equal blocks x + relu(conv 3x3 32->32 (x)) / blocks; pool 4, linear
// 1568->10. 64 blocks: 607,882 parameters. Deep enough to show what checkpointing saves. Convolutions are padded, so
// images keep their size. Dividing by the number of blocks lets a model of any depth start with activations and
// gradients of the size of one block's, and learn with the same learning rate as the other models.
#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"
#include "models/layers.h"
#include "models/models.h"

namespace hs {
namespace {

class DeepCnn : public StagedModel {
 public:
  DeepCnn(LayerKeys& keys, const ModelSizes& sizes)
      : share_(1 / static_cast<double>(sizes.blocks)),
        conv_(sizes.channels, 32, same_size, keys),
        linear_(32 * positions_after("deep_cnn", sizes, [](int64_t side) { return side / 4; }), sizes.classes, keys) {
    add_child("conv", conv_);
    add_stage("conv", [this](const Tensor& x) { return relu(conv_.forward(x)); });  // (N, 28, 28, 32)
    for (int64_t b = 1; b <= sizes.blocks; ++b) {
      const std::string name = fmt::format("block{}", b);
      Conv2d& conv = *blocks_.emplace_back(std::make_unique<Conv2d>(32, 32, same_size, keys));
      add_child(name, conv);
      add_stage(name, [&conv, this](const Tensor& x) { return add(x, scale(relu(conv.forward(x)), share_)); });
    }
    add_child("linear", linear_);
    add_stage("linear", [this](const Tensor& x) { return linear_.forward(flatten(max_pool2d(x, 4, 4))); });
  }

 private:
  static constexpr Conv2dOptions same_size{.padding = 1};

  const double share_;  // of one block in the sum
  Conv2d conv_;
  std::vector<std::unique_ptr<Conv2d>> blocks_;
  Head linear_;
};

REGISTER_MODEL("deep_cnn", DeepCnn, {.has_blocks = true});

}  // namespace
}  // namespace hs
