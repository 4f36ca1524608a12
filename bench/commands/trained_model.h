// What predict and evaluate share: a model in a file, and the samples to test it on.
#pragma once

#include <string>
#include <vector>

#include "bench/commands/commands.h"
#include "models/files/model_file.h"

namespace hs::bench::commands {

// For each image of (N, H, W, C) the natural logarithm of the probability of each class, which is finite where that is
// 0. images: u8 pixels or f32 values, on the model's device. Throws Error (numeric) if the model computes something
// that is not finite.
std::vector<std::vector<double>> log_probabilities(Module& model, const Tensor& images, const PixelScale& scale);

// A command that looks at samples with a model that train saved.
class TrainedModelCommand : public RecordingCommand {
 protected:
  std::string model_;
  cli::DataChoice data_;
  LoadedModel loaded_;
  bool drops_unknown_ = false;  // of a text, characters that the model has not

  // Throws Error: usage (none is given), and as load_model().
  void load();
  bool reads_text() const { return loaded_.model->input_kind() == InputKind::tokens; }
  // The set to test the model on: the one that is given, or without one that of its training, with as many test
  // samples. Throws Error as open_training_data(), and if the model does not say where its own is (usage), if that is
  // not there (io), or if it does not fit: a text for images, images of another size, or other classes (bad_input).
  cli::TrainingData open_test_data(cli::Limit test) const;
  // What the user should know about samples that the model is tested on; empty: nothing.
  std::string doubt_about(const cli::TrainingData& data) const;
};

}  // namespace hs::bench::commands
