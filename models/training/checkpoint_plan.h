// Chooses which stages of a model to checkpoint: a dynamic program over measured bytes and milliseconds.
//
// In forward, each kept stage leaves behind what its backward needs; a segment leaves only its input. Backward frees
// this in reverse order, and for a segment it first restores the memory of all its stages at once. So a plan's peak is
// the maximum, over its stages and segments, of the bytes left behind so far plus what the stage or segment needs on
// top. Only the bytes left behind connect one choice with the next, which makes this a dynamic program: for each border
// between stages, the amounts that can have been left there, each with the least time to reach it. Segments do not nest
// here. Compare Feng and Huang, "Optimal gradient checkpoint search for arbitrary computation graphs", CVPR 2021.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/layers.h"

namespace hs {

// What one stage costs in one step, in bytes of storages as requested.
struct StageCost {
  std::string name;                                // the stage's
  int64_t input = 0, output = 0;                   // its argument and its result
  int64_t saved = 0;                               // what its tape keeps until backward, without input and output
  bool saves_input = false, saves_output = false;  // whether the tape keeps those as well
  // Peak bytes while it runs, over what was live at its start (its input and, in backward, dL/d(output)).
  int64_t forward_peak = 0, unrecorded_peak = 0, backward_peak = 0;
  double forward_ms = 0, backward_ms = 0;  // of one run
};

// What one step costs, stage by stage.
struct StepCosts {
  std::vector<StageCost> stages;  // of the model, then the loss, which is never checkpointed
  int64_t fixed = 0;              // live throughout: parameters, gradients, optimizer, batches, images
  int64_t measuring_peak = 0;     // of the measurement itself
  double milliseconds() const;    // of one forward and backward pass with everything kept
  // Takes each time that is shorter in `again`, measured of the same step.
  void take_shorter_times(const StepCosts& again);
};

// What StepCosts::fixed has besides what is live: a step's scalars, such as the micro-batches' losses and the gradient
// norm, in bytes.
inline constexpr int64_t step_scalars = 1024;

// Measures what every stage of a model costs, in one step run stage by stage (models/training/measure_stages.cpp):
// runs the model and its loss forward without history, then backward with one stage's tape at a time. Costs about two
// forward passes more than a step, and keeps at most about 2 sqrt(n) of the n stages' inputs at once. Uses the caller's
// ambient state: open the Autocast scope first. Everything that is live during a step must be live now; it is measured
// as `fixed`. Adds to the parameters' gradients: set them to zero afterwards. Reads and resets the device's peak.
// images: (N, H, W, C), as prepare() returns them; labels: (N) i32
StepCosts measure_stages(const StagedModel& model, const Tensor& images, const Tensor& labels);

// What a plan costs.
struct PlanFigures {
  int64_t peak = 0;     // bytes, `fixed` included
  double extra_ms = 0;  // of recomputing stages
};

// Predicts the peak and the extra time of a step with these segments.
PlanFigures predict(const StepCosts& costs, const std::vector<Segment>& segments);

// The segments that cost the least time within `budget` bytes. Throws Error (usage) that names the smallest budget.
std::vector<Segment> fastest_within(const StepCosts& costs, int64_t budget);
int64_t smallest_budget(const StepCosts& costs);  // in bytes, `fixed` included

// budget=auto: the smallest peak whose extra time is at most this fraction of the step's (found to 1/1000 of the
// bytes). The target is 35 %; the remaining 2 points allow for the error of measuring only once.
inline constexpr double auto_extra_time = 0.33;
// See auto_extra_time.
std::vector<Segment> smallest_for_time(const StepCosts& costs, double extra_share = auto_extra_time);

// --checkpoint
struct CheckpointChoice {
  // automatic: budget=auto; no words stand for the last two. smallest: the fewest bytes, whatever time that takes
  enum class Kind : uint8_t { off, every, budget, automatic, smallest, given };
  Kind kind = Kind::off;               // which choice it is
  int64_t value = 0;                   // stages per segment, or bytes; smallest: how often to measure
  std::vector<Segment> segments = {};  // that are given

  // Whether segments_of() needs StepCosts.
  bool needs_costs() const { return kind == Kind::budget || kind == Kind::automatic || kind == Kind::smallest; }
};
// off, all (every stage its own segment), every=N, budget=BYTES with k, M or G for powers of 1024, budget=auto. Throws
// Error (usage).
CheckpointChoice parse_checkpoint(std::string_view text);
// A number of bytes, with an optional suffix k, M or G, also as MiB or MB, all for powers of 1024. Throws Error (usage)
// whose message starts with `name`.
int64_t parse_bytes(const std::string& name, std::string_view text);

// For off, all, every=N and given ones. REQUIRES: !choice.needs_costs()
std::vector<Segment> segments_of(const CheckpointChoice& choice, size_t stages);
// For every choice. Throws Error (usage).
std::vector<Segment> segments_of(const CheckpointChoice& choice, const StepCosts& costs);

}  // namespace hs
