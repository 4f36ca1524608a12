// TrainingState: what a training run needs to continue with the same bits: weights, the optimizer's memory, the loss
// scale, and how far the run is. (A "checkpoint" in this code base is an activation checkpoint, engine/checkpoint.h.)
//
// There is no generator of random numbers in it: they are functions of the seed and of counters, and so is the order of
// samples. It is taken between two optimizer steps, so there are no gradients in it either. Names:
//
//   conv1.weight                   a parameter or statistic, as the model names it
//   optimizer.mean.conv1.weight    the optimizer's memory of it (Optimizer::memory())
//   optimizer.step, scaler         the count of steps; GradScaler::state()
//   progress.*                     of models/training/resume.cpp: results so far
//
// Read next: models/files/run_folder.h (states in files).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/module.h"
#include "kernels/optimizer/optimizer.h"

namespace hs {

using Rows = std::vector<std::vector<double>>;  // a table of numbers

// See the head of this file.
struct TrainingState {
  std::map<std::string, Tensor> tensors;      // on the CPU
  std::map<std::string, std::string> values;  // counters, and what the caller adds: the settings of the run

  // These throw Error (checkpoint) with the name if there is no such value or tensor, or it is of another kind.
  const std::string& text(const std::string& name) const;
  int64_t number(const std::string& name) const;  // from 0 to 2^53
  // Rows of `columns` numbers, as put_rows() stored them: none is below 0.
  Rows rows(const std::string& name, size_t columns) const;
  static int64_t count(const std::string& name, double number);  // a number of such a row that counts something
  void put_rows(const std::string& name, const Rows& rows, size_t columns);  // stores a table under this name
};

// Copies weights, optimizer and scaler to the host. Waits for the device.
TrainingState copy_state(const ParameterArena& arena, const Optimizer& optimizer, GradScaler& scaler);

// Copies them back. Throws Error (checkpoint) that names what is missing, unknown or of another shape; nothing has then
// been changed. The optimizer must be of the same kind and have the same settings, which are not in the state.
void restore_state(const TrainingState& state, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler);

// A state as bytes, for a process of the same build.
std::string to_bytes(const TrainingState& state);
TrainingState state_from_bytes(const std::string& bytes);  // REQUIRES: bytes are of to_bytes()

// Where the training source continues: Loader::seek(epoch, position).
struct NextSample {
  int64_t epoch, position;  // both from 0
};
NextSample next_sample(const TrainingState& state, int64_t samples_per_epoch);  // throws Error (checkpoint)

}  // namespace hs
