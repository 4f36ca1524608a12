// What a trained model's file says of it beside its weights (models/files/model_file.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/symbols.h"
#include "models/models.h"

namespace hs {

// Of a trained model.
struct ModelDescription {
  std::string model;                          // as for make_model()
  ModelSizes sizes;                           // as for make_model()
  PixelScale scale;                           // how pixels become the model's input: see normalize_image()
  std::string data;                           // the name of the data set that it was trained on; for people
  Vocabulary vocabulary = {};                 // of a model of a text
  std::vector<std::string> class_names = {};  // see SampleInfo; empty: the numbers are the names
  // Where to find the test samples again.
  struct Origin {
    std::string source;         // the name of a set, or a path
    std::string size;           // "32x48" that its images were resized to; empty: as they are
    double test_split;          // the fraction that was held out for the test; 0: the set has a test part
    int64_t test;               // test samples
    std::string contents = {};  // what tells the set from one that has changed; empty: not known
    bool skip_damaged = false;  // whether damaged images of it were left out
  };
  std::optional<Origin> origin = {};  // empty: not known
  DType type = DType::u8;             // of the samples: u8 pixels, which `scale` is for, or f32 values

  // What to call a class.
  std::string class_name(size_t label) const {
    return class_names.empty() ? std::to_string(label) : class_names[label];
  }
};

}  // namespace hs
