// The models, by name. All take images (N, H, W, C) as normalised f32 and return logits (N, classes).
//
//   mnist_cnn        28x28x1: conv 3x3 1->32, pool 2, ReLU, conv 3x3 32->64, pool 2, ReLU, dropout 0.5, linear
//   1600->10;
//                    34,826 parameters. The model of the headline figures.
//   mnist_cnn_large  conv 3x3 1->32, ReLU, conv 3x3 32->64, pool 2, ReLU, dropout 0.25, linear 9216->128, ReLU,
//                    dropout 0.5, linear 128->10; 1,199,882 parameters.
//   mlp              linear 784->500, ReLU, linear 500->10; 397,510 parameters.
//
// Convolutions have no padding. Pooling comes before ReLU where both follow each other: the maximum commutes with it,
// so values and gradients are the same to the last bit, and ReLU has a quarter of the work.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/module.h"

namespace hs {

// What a model is made for: MNIST's, or another set's images and classes; the first and the last layer follow.
struct ModelInput {
  int64_t rows = 28;
  int64_t columns = 28;
  int64_t channels = 1;
  int64_t classes = 10;
};

// Throws Error: usage (there is no such model: the message has their names), bad_input (the images are too small).
std::unique_ptr<Module> make_model(std::string_view name, uint64_t seed, const ModelInput& input = {});

std::vector<std::string> model_names();

}  // namespace hs
