// What a trained model says about images.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/inputs.h"
#include "engine/module.h"
#include "models/model_file.h"

namespace hs::bench::measure {

// As load_model(), and throws Error (usage) if it is a model of a text.
LoadedModel load_image_model(const std::string& file);

// For each image of (N, H, W, C) the probability of each class. images: u8 pixels, on the model's device. Throws Error
// (numeric) if the model computes something that is not finite.
std::vector<std::vector<double>> predict(Module& model, const Tensor& images, const PixelScale& scale);

// The same as natural logarithms, which are finite where a probability is 0: for a loss.
std::vector<std::vector<double>> log_probabilities(Module& model, const Tensor& images, const PixelScale& scale);

// The set to test a model on: the one that is given, or without one that of its training, with as many test samples.
// Throws Error as open_training_data(), and if the model does not say where its own is (usage), if that is not there
// (io), or if it does not fit: images of another size, or other classes (bad_input).
cli::TrainingData open_test_data(const ModelDescription& model, const cli::DataChoice& given, cli::Limit test);

}  // namespace hs::bench::measure
