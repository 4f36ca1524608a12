// The training loop: get a step's batches, run it (models/train_step.cpp), check the losses, evaluate after each epoch.
// Follow the calls from here (docs/one_training_step.md walks through them).
#include "models/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/check.h"
#include "engine/observe.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/train_step.h"

namespace hs {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Evaluation evaluate(Module& model, BatchSource& source, Device device) {
  const Inference scope;
  double loss_sum = 0;
  int64_t correct = 0;
  for (int64_t i = 0; i < source.batches_per_epoch(); ++i) {
    const Batch batch = on_device(source.next(), device);
    const Tensor logits = model.forward(prepare(batch, source.pixel_scale()));  // (N, classes)
    loss_sum += softmax_cross_entropy(logits, batch.labels).item() * static_cast<double>(batch.labels.size());
    correct += count_correct(logits, batch.labels);
  }
  const double samples = static_cast<double>(source.samples());
  return {static_cast<double>(correct) / samples, loss_sum / samples};
}

namespace {

// Its name: a parameter if there is one, because a single one spoils all gradients. The losses are read later than they
// are computed, so more may have gone wrong since.
std::string first_not_finite(const ParameterArena& arena) {
  const auto is_finite = [](const Tensor& tensor) {
    return std::ranges::all_of(tensor.to_vector<float>(), [](float value) { return std::isfinite(value); });
  };
  for (const NamedParameter& parameter : arena.parameters()) {
    if (!is_finite(*parameter.value)) return parameter.name;
  }
  for (const NamedParameter& parameter : arena.parameters()) {
    const Tensor gradient = parameter.value->grad();
    if (gradient.defined() && !is_finite(gradient)) return "the gradient of " + parameter.name;
  }
  return "the loss";
}

// Scalars logged on the device, so that no step waits for one.
class DeviceLog {
 public:
  DeviceLog(int64_t most, Device device) : on_device_(Tensor::empty({most}, DType::f32, device)) {}

  void add(const Tensor& scalar) { on_device_.slice(added_++, {}).copy_from(scalar); }
  void added(int64_t count) { added_ += count; }  // by recorded steps, to tensor()
  const Tensor& tensor() const { return on_device_; }
  void restart() { added_ = read_ = 0; }

  // Returns the scalars added since the last call; waits for the device.
  std::vector<float> read() {
    const int64_t begin = std::exchange(read_, added_);
    return on_device_.slice(begin, {added_ - begin}).to_vector<float>();
  }

 private:
  Tensor on_device_;  // (most)
  int64_t added_ = 0, read_ = 0;
};

// The losses of an epoch.
class Losses {
 public:
  explicit Losses(DeviceLog& log) : log_(log) { log_.restart(); }

  void add(const Tensor& loss, int64_t samples) {
    log_.add(loss);
    samples_.push_back(samples);
  }
  void added(int64_t batches, int64_t samples) {  // by recorded steps; samples of each
    log_.added(batches);
    samples_.insert(samples_.end(), static_cast<size_t>(batches), samples);
  }

  // Reads what was added since the last call. Returns the number, from 1, of the epoch's first batch whose loss is not
  // finite, or 0.
  int64_t read() {
    const Range range("read losses");
    last_read_ = Clock::now();
    for (const float loss : log_.read()) {
      sum_ += static_cast<double>(loss) * static_cast<double>(samples_[read_]);
      count_ += samples_[read_++];
      if (!std::isfinite(loss)) return static_cast<int64_t>(read_);
    }
    return 0;
  }
  bool is_due() const { return read_ == 0 || seconds_since(last_read_) > 0.1; }
  double mean() const { return sum_ / static_cast<double>(count_); }  // of those read
  double sum() const { return sum_; }
  int64_t samples() const { return std::accumulate(samples_.begin(), samples_.end(), int64_t{0}); }

 private:
  DeviceLog& log_;
  std::vector<int64_t> samples_;  // of each batch so far
  size_t read_ = 0;               // batches
  double sum_ = 0;                // of loss * samples
  int64_t count_ = 0;             // samples
  Clock::time_point last_read_;
};

const ResidentSet* resident_set(BatchSource& training, const TrainConfig& config) {
  const ResidentSet* set = config.graph && config.accumulate == 1 ? training.resident() : nullptr;
  if (!set) {
    fail(ExitCode::usage,
         "graph of {} steps: needs a graph, the training set on the device (cache device) and no accumulation",
         config.graph_steps);
  }
  return set;
}

}  // namespace

TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks) {
  check(!config.graph || (!hooks.on_gradients && !hooks.on_phase),
        "train: on_gradients and on_phase cannot be called within a graph; switch one off");
  const AmbientScope scope;
  const int64_t batches = training.batches_per_epoch();
  const int64_t steps = (batches + config.accumulate - 1) / config.accumulate;  // of an epoch
  constexpr int64_t most_steps = std::numeric_limits<int32_t>::max();           // that the device's counter holds
  if (config.epochs > most_steps / std::max<int64_t>(steps, 1)) {
    fail(ExitCode::usage,
         "{} epochs of {} steps are more than {} steps; train for fewer epochs, or with a larger batch", config.epochs,
         steps, most_steps);
  }
  OptimizerConfig optimizer_config = config.optimizer;
  optimizer_config.schedule.total_steps = static_cast<int32_t>(steps * config.epochs);
  const auto optimizer = make_optimizer(arena, optimizer_config);
  GradScalerConfig scaling = config.scaler;
  scaling.enabled = config.precision == Precision::f16;
  GradScaler scaler(scaling, config.device);
  ambient().training = true;
  ambient().fuse = config.fuse;
  ambient().seed = config.seed;
  ambient().step = optimizer->step_counter();
  ambient().micro_step = 0;
  TrainStep one_step(model, arena, *optimizer, scaler, training.pixel_scale(), config, hooks);
  TrainResult result;
  // Where they are does not change from epoch to epoch: recorded steps write there.
  DeviceLog loss_log(batches, config.device), scales(scaling.enabled ? steps : 0, config.device);
  StepLogs logs{loss_log.tensor(), scaling.enabled ? scales.tensor() : Tensor()};
  const ResidentSet* set = config.graph_steps > 1 ? resident_set(training, config) : nullptr;

  for (int64_t epoch = 1; epoch <= config.epochs; ++epoch) {
    const Clock::time_point epoch_start = Clock::now();
    Losses losses(loss_log);
    scales.restart();
    const auto read_scales = [&] {
      for (const float scale : scales.read()) result.loss_scales.push_back(scale);
    };
    for (int64_t step = 1; step <= steps; ++step) {
      const Range range("step", step);
      const int64_t first = step;
      if (set && (step - 1 + config.graph_steps) * set->batch <= training.samples()) {
        const BatchPlace place = training.skip(config.graph_steps);
        one_step.run_group(*set, place, config.graph_steps, step - 1, logs, result.parts);
        losses.added(config.graph_steps, set->batch);
        if (scaling.enabled) scales.added(config.graph_steps);
        step += config.graph_steps - 1;
      } else {
        // The last step of an epoch gets the remaining batches.
        std::vector<Batch> micro_batches;
        const int64_t left = batches - (step - 1) * config.accumulate;
        {
          const StepPart part("wait", result.parts.wait);
          for (int64_t i = 0; i < std::min(left, config.accumulate); ++i) micro_batches.push_back(training.next());
        }
        const std::vector<Tensor>& step_losses = one_step.run(micro_batches, result.parts);
        for (size_t i = 0; i < micro_batches.size(); ++i) losses.add(step_losses[i], micro_batches[i].labels.size());
        if (scaling.enabled) scales.add(scaler.state().slice(0, {}));
      }

      if (losses.is_due() || step == steps) {
        if (const int64_t bad_batch = losses.read()) {
          fail(ExitCode::numeric,
               "the loss became {} at step {} of epoch {}; first tensor that is not finite: {}; try a smaller learning "
               "rate than {}",
               std::isnan(losses.sum()) ? "nan" : "inf", (bad_batch + config.accumulate - 1) / config.accumulate, epoch,
               first_not_finite(arena), config.optimizer.learning_rate);
        }
      }
      const double seconds = result.seconds + seconds_since(epoch_start);
      for (int64_t done = first; hooks.on_step && done <= step; ++done) {
        hooks.on_step({epoch, done, steps, losses.mean(), seconds});
      }
      if (hooks.should_stop && hooks.should_stop()) {
        result.seconds = seconds;
        result.samples += losses.samples();
        read_scales();
        return result;
      }
    }
    EpochResult epoch_result{losses.mean(), seconds_since(epoch_start), {}};
    result.seconds += epoch_result.seconds;
    result.samples += losses.samples();
    read_scales();
    {
      const Range range("evaluate");
      const Autocast amp(config.precision, arena);
      const Clock::time_point start = Clock::now();
      epoch_result.test = evaluate(model, test, config.device);
      epoch_result.evaluation_seconds = seconds_since(start);
    }
    result.epochs.push_back(epoch_result);
    if (hooks.on_epoch) hooks.on_epoch(epoch, epoch_result);
  }
  result.steps = optimizer->steps();
  result.skipped_steps = scaler.skipped();
  result.loss_scale = scaler.scale();
  return result;
}

}  // namespace hs
