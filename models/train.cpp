// One training step is: take a batch, forward, loss, backward, update. This file is that loop; follow the calls from
// here (docs/one_training_step.md walks through them).
#include "models/train.h"

#include <chrono>
#include <cmath>
#include <vector>

#include "engine/autograd.h"
#include "engine/captured_work.h"
#include "engine/check.h"
#include "kernels/normalize_image.h"
#include "kernels/softmax_cross_entropy.h"

namespace hs {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Evaluation evaluate(Module& model, BatchSource& source, Device device) {
  const AmbientScope scope;
  ambient().recording = false;
  ambient().training = false;
  double loss_sum = 0;
  int64_t correct = 0;
  for (int64_t i = 0; i < source.batches_per_epoch(); ++i) {
    const Batch batch = source.next();
    const Tensor images = normalize_image(batch.images.to(device), source.pixel_scale());
    const Tensor labels = batch.labels.to(device);
    const Tensor logits = model.forward(images);  // (N, classes)
    loss_sum += softmax_cross_entropy(logits, labels).item() * static_cast<double>(labels.size());
    correct += count_correct(logits, labels);
  }
  const double samples = static_cast<double>(source.samples());
  return {static_cast<double>(correct) / samples, loss_sum / samples};
}

namespace {

// One optimizer step: forward, loss, backward, update. With a graph, batches of the first one's shape are copied to a
// fixed place, from which the recorded step reads them; a shorter batch at the end of an epoch is done as it comes.
class Step {
 public:
  Step(Module& model, ParameterArena& arena, Optimizer& optimizer, const PixelScale& scale, const TrainConfig& config)
      : model_(model),
        arena_(arena),
        optimizer_(optimizer),
        scale_(scale),
        device_(config.device),
        precision_(config.precision) {
    if (config.graph) captured_ = std::make_unique<CapturedWork>(config.device);
  }

  // The loss, a scalar on the device, valid until the next call.
  const Tensor& run(const Batch& batch) {
    if (captured_ && !images_.defined()) {
      images_ = Tensor::empty(batch.images.shape(), DType::u8, device_);
      labels_ = Tensor::empty(batch.labels.shape(), DType::i32, device_);
    }
    if (captured_ && batch.images.shape() == images_.shape()) {
      images_.copy_from(batch.images);
      labels_.copy_from(batch.labels);
      captured_->run([this] { step(images_, labels_, captured_loss_); });
      return captured_loss_;
    }
    step(batch.images.to(device_), batch.labels.to(device_), loss_);
    return loss_;
  }

 private:
  void step(const Tensor& images, const Tensor& labels, Tensor& loss) {
    loss = {};  // before the first allocation: the recorded step then asks for the same blocks as the one before it
    const Autocast amp(precision_, arena_);
    optimizer_.zero_gradients();
    loss = softmax_cross_entropy(model_.forward(normalize_image(images, scale_)), labels);
    backward(loss, one_);
    loss = loss.detach();
    optimizer_.step();
  }

  Module& model_;
  ParameterArena& arena_;
  Optimizer& optimizer_;
  const PixelScale scale_;
  const Device device_;
  const Precision precision_;
  const Tensor one_ = Tensor::from(std::vector<float>{1}, {}).to(device_);  // dL/dL
  std::unique_ptr<CapturedWork> captured_;
  Tensor images_, labels_;
  Tensor loss_, captured_loss_;
};

// The losses of an epoch, kept on the device so that no step waits for one.
class Losses {
 public:
  Losses(int64_t steps, Device device) : on_device_(Tensor::empty({steps}, DType::f32, device)) {}

  void add(const Tensor& loss, int64_t samples) {
    on_device_.slice(static_cast<int64_t>(samples_.size()), {}).copy_from(loss);
    samples_.push_back(samples);
  }

  // Reads what was added since the last time. Returns the step, from 1, whose loss is the first that is not finite, or
  // 0.
  int64_t read() {
    const int64_t begin = static_cast<int64_t>(read_), end = static_cast<int64_t>(samples_.size());
    last_read_ = Clock::now();
    for (const float loss : on_device_.slice(begin, {end - begin}).to_vector<float>()) {
      sum_ += static_cast<double>(loss) * static_cast<double>(samples_[read_]);
      count_ += samples_[read_++];
      if (!std::isfinite(loss)) return static_cast<int64_t>(read_);
    }
    return 0;
  }
  bool is_due() const { return read_ == 0 || seconds_since(last_read_) > 0.1; }
  double mean() const { return sum_ / static_cast<double>(count_); }  // of those read
  double sum() const { return sum_; }

 private:
  Tensor on_device_;              // (steps)
  std::vector<int64_t> samples_;  // of each step so far
  size_t read_ = 0;               // steps
  double sum_ = 0;                // of loss * samples
  int64_t count_ = 0;             // samples
  Clock::time_point last_read_;
};

}  // namespace

TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks) {
  const AmbientScope scope;
  const auto optimizer = make_optimizer(arena, config.optimizer);
  ambient().training = true;
  ambient().seed = config.seed;
  ambient().step = optimizer->step_counter();
  Step one_step(model, arena, *optimizer, training.pixel_scale(), config);
  TrainResult result;

  for (int64_t epoch = 1; epoch <= config.epochs; ++epoch) {
    const Clock::time_point epoch_start = Clock::now();
    const int64_t steps = training.batches_per_epoch();
    Losses losses(steps, config.device);
    for (int64_t step = 1; step <= steps; ++step) {
      const Batch batch = training.next();
      losses.add(one_step.run(batch), batch.labels.size());
      result.samples += batch.labels.size();

      if (losses.is_due() || step == steps) {
        if (const int64_t bad_step = losses.read()) {
          fail(ExitCode::numeric, "the loss became {} at step {} of epoch {}; try a smaller learning rate than {}",
               losses.sum(), bad_step, epoch, config.optimizer.learning_rate);
        }
      }
      const double seconds = result.seconds + seconds_since(epoch_start);
      if (hooks.on_step) hooks.on_step({epoch, step, steps, losses.mean(), seconds});
      if (hooks.should_stop && hooks.should_stop()) {
        result.seconds = seconds;
        return result;
      }
    }
    EpochResult epoch_result{losses.mean(), seconds_since(epoch_start), {}};
    result.seconds += epoch_result.seconds;
    {
      const Autocast amp(config.precision, arena);
      epoch_result.test = evaluate(model, test, config.device);
    }
    result.epochs.push_back(epoch_result);
    if (hooks.on_epoch) hooks.on_epoch(epoch, epoch_result);
  }
  return result;
}

}  // namespace hs
