#include <algorithm>
#include <array>
#include <cmath>

#include "engine/check.h"
#include "engine/clock.h"
#include "models/training/training_run.h"

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

void Saver::save() {
  const double start = steady_seconds();
  {
    const StepPart part("save", result.parts.save);
    hooks.on_state(state());
  }
  result.seconds += steady_seconds() - start;
}

TrainingState Saver::state() {
  numbers.read_losses(at);
  losses.read_scales(result.loss_scales);
  TrainingState state = copy_state(arena, optimizer, scaler);
  numbers.check_state(state, at);
  state.values = {{"epoch", std::to_string(at.epoch)},
                  {"step", std::to_string(at.step)},
                  {"position", std::to_string(at.samples)},
                  {"samples", std::to_string(result.samples)}};
  Rows seconds(1), epochs, validations, scales;
  for (const double* part : seconds_of(result)) seconds[0].push_back(*part);
  for (const EpochResult& e : result.epochs) {
    const Evaluation test = e.evaluation_seconds > 0 ? e.test : Evaluation();  // a state has no NaN
    epochs.push_back({e.training_loss, e.seconds, test.accuracy, test.loss, e.evaluation_seconds});
  }
  for (const Validation& v : result.validations) {
    validations.push_back({static_cast<double>(v.epoch), static_cast<double>(v.step), v.result.accuracy, v.result.loss,
                           v.seconds, v.training_seconds});
  }
  for (const float scale : result.loss_scales) scales.push_back({scale});
  state.put_rows("progress.seconds", seconds, seconds[0].size());
  if (result.parts.exchange > 0) state.put_rows("progress.exchange", {{result.parts.exchange}}, 1);  // 0.2.0: none
  state.put_rows("progress.losses", {{losses.sum(), static_cast<double>(losses.samples())}}, 2);
  state.put_rows("progress.epochs", epochs, 5);
  state.put_rows("progress.validations", validations, 6);
  state.put_rows("progress.loss_scales", scales, 1);
  if (evaluator.best.defined()) state.tensors[best_name] = evaluator.best.clone().to(Device::cpu);
  return state;
}

void Saver::restore(const TrainingState& state, const EpochSize& epoch) {
  restore_state(state, arena, optimizer, scaler);
  at.epoch = state.number("epoch");
  at.step = state.number("step");
  at.samples = state.number("position");
  result.samples = state.number("samples");
  if (at.epoch < 1 || at.epoch > INT32_MAX || at.step > epoch.steps || at.samples > epoch.samples) {
    fail(ExitCode::checkpoint, "checkpoint: step {} of epoch {}, sample {}, expected at most {} steps and {} samples",
         at.step, at.epoch, at.samples, epoch.steps, epoch.samples);
  }
  const auto one_row = [&](const char* name, size_t columns) {
    const Rows rows = state.rows(name, columns);
    if (rows.size() != 1) fail(ExitCode::checkpoint, "checkpoint: {} has {} rows, expected 1", name, rows.size());
    return rows[0];
  };
  const auto seconds = seconds_of(result);
  const std::vector<double> saved_seconds = one_row("progress.seconds", seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) *seconds[i] = saved_seconds[i];
  if (state.tensors.contains("progress.exchange")) result.parts.exchange = one_row("progress.exchange", 1)[0];
  const std::vector<double> sums = one_row("progress.losses", 2);
  losses.restart(std::min(at.step * config.accumulate, epoch.batches), sums[0],
                 TrainingState::count("progress.losses", sums[1]));
  for (const auto& e : state.rows("progress.epochs", 5)) {
    const Evaluation test = e[4] > 0 ? Evaluation{e[2], e[3]} : Evaluation{NAN, NAN};
    result.epochs.push_back({e[0], e[1], test, e[4]});
  }
  const char* validations = "progress.validations";
  for (const auto& v : state.rows(validations, 6)) {
    const int64_t in_epoch = TrainingState::count(validations, v[0]), step = TrainingState::count(validations, v[1]);
    result.validations.push_back({in_epoch, step, {v[2], v[3]}, v[4], v[5]});
  }
  for (const auto& scale : state.rows("progress.loss_scales", 1)) {
    result.loss_scales.push_back(static_cast<float>(scale[0]));
  }
  numbers.skips.resume(scaler);
  if (const auto best = state.tensors.find(best_name); best != state.tensors.end() && config.patience > 0) {
    if (best->second.shape() != arena.values.shape() || best->second.dtype() != DType::f32) {
      fail(ExitCode::checkpoint, "checkpoint: {} is {} {}, expected f32 {}", best_name, name(best->second.dtype()),
           best->second.shape(), arena.values.shape());
    }
    evaluator.best = best->second.to(config.device);
  }
}

}  // namespace hs
