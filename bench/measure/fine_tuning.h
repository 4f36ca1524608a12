// --start, --lora, --lora-alpha and --save-adapters: a run that begins with a trained model, all of which it trains, or
// adapters beside it alone (models/lora.h).
#pragma once

#include "bench/cli/command_line.h"
#include "bench/measure/experiment.h"
#include "engine/files/output_file.h"
#include "models/files/model_file.h"

namespace hs::bench::measure {

class FineTuning {
 public:
  void declare(cli::Flags& flags, Experiment& experiment);
  // Reads the model's file. Model, depth and context are the file's, unless other flags say so. Throws Error: usage
  // (flags that contradict each other or the file), and what load_model() throws.
  void open(const cli::Flags& flags, Experiment& experiment, int64_t& context);
  // Of a model of a text; empty: the data's own.
  const std::string& vocabulary() const { return vocabulary_; }
  // Throws Error (bad_input) unless the model is for such samples. Says so if they are other ones than it was trained
  // on.
  void check_fits(const cli::TrainingData& data) const;

  void discard() { save_adapters_.clear(); }  // for a process that writes nothing
  // What the trained model computes, without adapters.
  static std::vector<NamedTensor> parameters(StagedModel& trained, const Experiment& experiment);
  // Writes the adapters, and gives the folder its name. Throws Error (io).
  void save(StagedModel& trained, const Experiment& experiment);

 private:
  std::string save_adapters_, vocabulary_, sha256_;
  std::optional<ModelDescription> base_;
  std::optional<OutputFolder> folder_;
};

}  // namespace hs::bench::measure
