// Which stages of a model to checkpoint, from what they cost: a dynamic program over measured bytes and milliseconds.
//
// The bytes of a step follow from those of its stages. Forward leaves behind each kept stage what its backward needs;
// a segment leaves its input only. Backward takes it away in reverse order, and a segment first has all of its stages'
// memory back at once. So a plan's peak is the largest of: what is left behind so far, and what the stage or segment at
// that place needs on top. Only the amount left behind so far connects one choice with the next, which is what makes it
// a dynamic program: for each border between stages, the amounts that can have been left there, each with the least
// time that it takes. Segments do not nest here. Compare Feng and Huang, "Optimal gradient checkpoint search for
// arbitrary computation graphs", CVPR 2021. Where the numbers come from: models/measure_stages.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/staged_model.h"

namespace hs {

// What one stage costs in one step, in bytes of storages as requested.
struct StageCost {
  std::string name;
  int64_t input = 0, output = 0;                   // its argument and its result
  int64_t saved = 0;                               // what its tape keeps until backward, without input and output
  bool saves_input = false, saves_output = false;  // whether the tape keeps those as well
  // The most that is there while it runs, on top of what was there at its start (its input, and dL/d(output) in
  // backward, were).
  int64_t forward_peak = 0, unrecorded_peak = 0, backward_peak = 0;
  double forward_ms = 0, backward_ms = 0;
};

struct StepCosts {
  std::vector<StageCost> stages;  // of the model, then the loss, which is never checkpointed
  int64_t fixed = 0;              // live throughout: parameters, gradients, optimizer, batches, images
  int64_t measuring_peak = 0;     // of the measurement itself
  double milliseconds() const;    // of one forward and backward pass with everything kept
};

struct PlanFigures {
  int64_t peak = 0;     // bytes, `fixed` included
  double extra_ms = 0;  // of running stages again
};

// What a step with these segments takes.
PlanFigures predict(const StepCosts& costs, const std::vector<Segment>& segments);

// The segments that cost least time within the budget, in bytes. Throws Error (usage) that names the smallest possible.
std::vector<Segment> fastest_within(const StepCosts& costs, int64_t budget);
int64_t smallest_budget(const StepCosts& costs);

// budget=auto: the least bytes for at most this part of the step's time on top (found to 1/1000 of the bytes). The aim
// is 35 %; what is measured once is not measured exactly, and the rest is for that.
inline constexpr double auto_extra_time = 0.33;
std::vector<Segment> smallest_for_time(const StepCosts& costs, double extra_share = auto_extra_time);

// --checkpoint
struct CheckpointChoice {
  enum class Kind : uint8_t { off, every, budget, automatic };
  Kind kind = Kind::off;
  int64_t value = 0;  // stages of a segment, or bytes

  bool needs_costs() const { return kind == Kind::budget || kind == Kind::automatic; }
};
// off, all (every stage a segment of its own), every=N, budget=BYTES with k, M or G for powers of 1024, budget=auto.
// Throws Error (usage).
CheckpointChoice parse_checkpoint(std::string_view text);
// A number of bytes, with or without k, M or G. Throws Error (usage) that starts with `name`.
int64_t parse_bytes(const std::string& name, std::string_view text);

// For off, all and every=N. REQUIRES: !choice.needs_costs()
std::vector<Segment> segments_of(const CheckpointChoice& choice, size_t stages);
// For every choice. Throws Error (usage).
std::vector<Segment> segments_of(const CheckpointChoice& choice, const StepCosts& costs);

}  // namespace hs
