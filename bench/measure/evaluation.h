// How well a trained model does on a test set: the tables of images that it classified, and what it knows of a text.
#pragma once

#include "bench/report/table.h"
#include "data/io/sample_source.h"
#include "models/files/model_file.h"

namespace hs::bench::measure {

struct Mistake {
  int64_t sample;
  size_t label, predicted;
  double probability;
};

struct Classification {
  std::vector<std::vector<int64_t>> confusion;  // by label, by predicted class
  std::vector<Mistake> mistakes;                // the most certain first
  std::vector<double> rates;                    // samples per second, by batch
  double loss_sum = 0;
  int64_t right = 0, samples = 0;

  double accuracy() const { return static_cast<double>(right) / static_cast<double>(samples); }
  double loss() const { return loss_sum / static_cast<double>(samples); }
};

report::Rows classes_of(const Classification& result, const ModelDescription& model);
report::Table table_of_confusion(const Classification& result, const ModelDescription& model);
report::Rows mistakes_of(const Classification& result, const ModelDescription& model, const SampleSource& test);

struct TextEvaluation {
  report::Rows rows;  // one
  std::string summary;
};
// Each symbol of the windows but the first one of all is predicted once. Throws Error (numeric) if the loss is not
// finite.
TextEvaluation evaluate_text(Module& model, const SampleSource& test, Device device);

}  // namespace hs::bench::measure
