// What a trained model says about images.
#pragma once

#include <string>
#include <vector>

#include "data/io/sample_source.h"
#include "engine/module.h"
#include "models/model_file.h"

namespace hs::bench::measure {

// As load_model(), and throws Error (usage) if it is a model of a text.
LoadedModel load_image_model(const std::string& file);

// For each image of (N, H, W, C) the probability of each class. images: u8 pixels, on the model's device. Throws Error
// (numeric) if the model computes something that is not finite.
std::vector<std::vector<double>> predict(Module& model, const Tensor& images, const PixelScale& scale);

// The class of highest probability.
size_t most_probable(const std::vector<double>& probabilities);

// Throws Error (bad_input) unless the set has images of the model's size and as many classes.
void check_fits(const ModelDescription& model, const SampleInfo& set);

}  // namespace hs::bench::measure
