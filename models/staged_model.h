// A model that is a list of stages, each applied to the output of the previous one: the units of checkpointing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/module.h"
#include "models/lora.h"

namespace hs {

struct Stage {  // a name for messages, and forward()
  std::string name;
  std::function<Tensor(const Tensor&)> forward;
};

// Stages begin to end - 1, run as one checkpoint(): forward keeps only the first one's input, and backward runs them
// all again.
struct Segment {
  size_t begin, end;
  bool operator==(const Segment&) const = default;
};

class StagedModel : public Module {  // see the head of this file
 public:
  Tensor forward(const Tensor& x) override;

  const std::vector<Stage>& stages() const { return stages_; }        // in the order in which they run
  const std::vector<Segment>& segments() const { return segments_; }  // see set_segments()
  // From the next forward on; none (the default) keeps everything. The results are the same bits for any segments.
  // Throws Error (usage) unless they are in order, not empty, disjoint and within the stages.
  void set_segments(std::vector<Segment> segments);

  // Freezes all parameters and adds adapters to linear layers (models/lora.h), for a model that has some. Throws Error
  // (usage) if it has none that take them.
  virtual void adapt(const LoraOptions& options, LayerKeys& keys);

 protected:
  void add_stage(std::string name, std::function<Tensor(const Tensor&)> forward);  // runs after those added before

 private:
  Tensor run(size_t begin, size_t end, const Tensor& x) const;  // REQUIRES: begin < end

  std::vector<Stage> stages_;
  std::vector<Segment> segments_;
};

}  // namespace hs
