#include <algorithm>
#include <array>
#include <cmath>

#include "engine/check.h"
#include "models/training_run.h"

namespace hs {
namespace {

constexpr const char* best_name = "progress.best";  // in a state

// The seconds, in the order of the row "progress.seconds".
auto seconds_of(TrainResult& result) {
  StepSeconds& parts = result.parts;
  return std::array<double*, 8>{&result.seconds, &parts.wait,   &parts.upload, &parts.forward,
                                &parts.backward, &parts.update, &parts.replay, &parts.save};
}

}  // namespace

void TrainingRun::save() {
  const double start = steady_seconds();
  {
    const StepPart part("save", result_.parts.save);
    hooks_.on_state(state());
  }
  result_.seconds += steady_seconds() - start;
}

TrainingState TrainingRun::state() {
  read_losses({});
  read_scales();
  TrainingState state = copy_state(arena_, *optimizer_, scaler_);
  if (const std::string bad = first_not_finite(state, arena_); !bad.empty()) {
    fail(ExitCode::numeric, "after step {} of epoch {}, {} is not finite; try a smaller learning rate than {}", step_,
         epoch_, with_layer(bad), config_.optimizer.learning_rate);
  }
  state.values = {{"epoch", std::to_string(epoch_)},
                  {"step", std::to_string(step_)},
                  {"position", std::to_string(position_)},
                  {"samples", std::to_string(result_.samples)}};
  Rows seconds(1), epochs, validations, scales;
  for (const double* part : seconds_of(result_)) seconds[0].push_back(*part);
  for (const EpochResult& e : result_.epochs) {
    const Evaluation test = e.evaluation_seconds > 0 ? e.test : Evaluation();  // a state has no NaN
    epochs.push_back({e.training_loss, e.seconds, test.accuracy, test.loss, e.evaluation_seconds});
  }
  for (const Validation& v : result_.validations) {
    validations.push_back({static_cast<double>(v.epoch), static_cast<double>(v.step), v.result.accuracy, v.result.loss,
                           v.seconds, v.training_seconds});
  }
  for (const float scale : result_.loss_scales) scales.push_back({scale});
  state.put_rows("progress.seconds", seconds, seconds[0].size());
  state.put_rows("progress.losses", {{losses_.sum(), static_cast<double>(losses_.samples())}}, 2);
  state.put_rows("progress.epochs", epochs, 5);
  state.put_rows("progress.validations", validations, 6);
  state.put_rows("progress.loss_scales", scales, 1);
  if (best_.defined()) state.tensors[best_name] = best_.clone().to(Device::cpu);
  return state;
}

void TrainingRun::restore(const TrainingState& state) {
  restore_state(state, arena_, *optimizer_, scaler_);
  epoch_ = state.number("epoch");
  step_ = state.number("step");
  position_ = state.number("position");
  result_.samples = state.number("samples");
  if (epoch_ < 1 || epoch_ > INT32_MAX || step_ > steps_ || position_ > training_.samples()) {
    fail(ExitCode::checkpoint, "checkpoint: step {} of epoch {}, sample {}, expected at most {} steps and {} samples",
         step_, epoch_, position_, steps_, training_.samples());
  }
  const auto one_row = [&](const char* name, size_t columns) {
    const Rows rows = state.rows(name, columns);
    if (rows.size() != 1) fail(ExitCode::checkpoint, "checkpoint: {} has {} rows, expected 1", name, rows.size());
    return rows[0];
  };
  const auto seconds = seconds_of(result_);
  const std::vector<double> saved_seconds = one_row("progress.seconds", seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) *seconds[i] = saved_seconds[i];
  const std::vector<double> losses = one_row("progress.losses", 2);
  losses_.restart(std::min(step_ * config_.accumulate, batches_), losses[0],
                  TrainingState::count("progress.losses", losses[1]));
  for (const auto& e : state.rows("progress.epochs", 5)) {
    const Evaluation test = e[4] > 0 ? Evaluation{e[2], e[3]} : Evaluation{NAN, NAN};
    result_.epochs.push_back({e[0], e[1], test, e[4]});
  }
  const char* validations = "progress.validations";
  for (const auto& v : state.rows(validations, 6)) {
    const int64_t epoch = TrainingState::count(validations, v[0]), step = TrainingState::count(validations, v[1]);
    result_.validations.push_back({epoch, step, {v[2], v[3]}, v[4], v[5]});
  }
  for (const auto& scale : state.rows("progress.loss_scales", 1)) {
    result_.loss_scales.push_back(static_cast<float>(scale[0]));
  }
  skips_.skipped = scaler_.skipped();
  if (const auto best = state.tensors.find(best_name); best != state.tensors.end() && config_.patience > 0) {
    if (best->second.shape() != arena_.values.shape() || best->second.dtype() != DType::f32) {
      fail(ExitCode::checkpoint, "checkpoint: {} is {} {}, expected f32 {}", best_name, name(best->second.dtype()),
           best->second.shape(), arena_.values.shape());
    }
    best_ = best->second.to(config_.device);
  }
}

}  // namespace hs
