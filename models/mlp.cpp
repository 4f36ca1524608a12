// mlp: linear 784->500, ReLU, linear 500->10; 397,510 parameters.
#include "kernels/feed_forward/feed_forward.h"
#include "models/layers.h"
#include "models/models.h"

namespace hs {
namespace {

class Mlp : public StagedModel {
 public:
  Mlp(LayerKeys& keys, const ModelSizes& sizes)
      : linear1_(sizes.rows * sizes.columns * sizes.channels, 500, keys), linear2_(500, sizes.classes, keys) {
    add_child("linear1", linear1_);
    add_child("linear2", linear2_);
    add_stage("feed_forward", [this](const Tensor& x) {
      return feed_forward(flatten(x), linear1_.weight(), linear1_.bias(), linear2_.weight(), linear2_.bias());
    });
  }

 private:
  Linear linear1_;
  Head linear2_;
};

REGISTER_MODEL("mlp", Mlp);

}  // namespace
}  // namespace hs
