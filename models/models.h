// The models, by name. All take images (N, H, W, C) as normalised f32 and return logits (N, classes).
//
//   mnist_cnn        28x28x1: conv 3x3 1->32, pool 2, ReLU, conv 3x3 32->64, pool 2, ReLU, dropout 0.5, linear
//   1600->10;
//                    34,826 parameters. The model of the headline figures.
//   mnist_cnn_large  conv 3x3 1->32, ReLU, conv 3x3 32->64, pool 2, ReLU, dropout 0.25, linear 9216->128, ReLU,
//                    dropout 0.5, linear 128->10; 1,199,882 parameters.
//   mlp              linear 784->500, ReLU, linear 500->10; 397,510 parameters.
//   deep_cnn         conv 3x3 1->32, ReLU; `blocks` equal blocks x + relu(conv 3x3 32->32 (x)) / blocks; pool 4, linear
//                    1568->10. 64 blocks: 607,882 parameters. Deep enough to show what checkpointing saves. Each block
//                    adds its share to what goes past it, so that a stack of any height starts with activations and
//                    gradients of the size of one block's, and learns with the same learning rate as the others.
//
// Convolutions have no padding, but for deep_cnn's, which keep images at 28x28. Pooling comes before ReLU where both
// follow each other: the maximum commutes with it, so values and gradients are the same to the last bit, and ReLU has a
// quarter of the work.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/staged_model.h"

namespace hs {

inline constexpr int64_t default_blocks = 64;  // of deep_cnn; the other models have none

// What a model is made for: MNIST's, or another set's images and classes; the first and the last layer follow.
struct ModelSizes {
  int64_t rows = 28;
  int64_t columns = 28;
  int64_t channels = 1;
  int64_t classes = 10;
  int64_t blocks = default_blocks;
};

// Throws Error: usage (there is no such model: the message has their names), bad_input (the images are too small).
// REQUIRES: blocks > 0
std::unique_ptr<StagedModel> make_model(std::string_view name, uint64_t seed, const ModelSizes& sizes = {});

std::vector<std::string> model_names();

}  // namespace hs
