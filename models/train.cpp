// One training step is: take a batch, forward, loss, backward, update. This file is that loop; follow the calls from
// here (docs/one_training_step.md walks through them).
#include "models/train.h"

#include <chrono>
#include <cmath>

#include "engine/autograd.h"
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

TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks) {
  const AmbientScope scope;
  ambient().training = true;
  ambient().seed = config.seed;
  const auto optimizer = make_optimizer(arena, config.optimizer);
  TrainResult result;

  for (int64_t epoch = 1; epoch <= config.epochs; ++epoch) {
    const Clock::time_point epoch_start = Clock::now();
    double loss_sum = 0;
    int64_t samples = 0;
    for (int64_t step = 1; step <= training.batches_per_epoch(); ++step) {
      const Batch batch = training.next();
      const Tensor images = normalize_image(batch.images.to(config.device), training.pixel_scale());
      const Tensor labels = batch.labels.to(config.device);

      ambient().step = static_cast<uint32_t>(optimizer->steps());
      optimizer->zero_gradients();
      const Tensor loss = softmax_cross_entropy(model.forward(images), labels);
      backward(loss);
      optimizer->step();

      loss_sum += loss.item() * static_cast<double>(labels.size());
      samples += labels.size();
      if (!std::isfinite(loss_sum)) {
        fail(ExitCode::numeric, "the loss became {} at step {} of epoch {}; try a smaller learning rate than {}",
             loss.item(), step, epoch, config.optimizer.learning_rate);
      }
      const double seconds = result.seconds + seconds_since(epoch_start);
      if (hooks.on_step) {
        hooks.on_step({epoch, step, training.batches_per_epoch(), loss_sum / static_cast<double>(samples), seconds});
      }
      if (hooks.should_stop && hooks.should_stop()) {
        result.seconds = seconds;
        result.samples += samples;
        return result;
      }
    }
    EpochResult epoch_result{loss_sum / static_cast<double>(samples), seconds_since(epoch_start), {}};
    result.seconds += epoch_result.seconds;
    result.samples += samples;
    epoch_result.test = evaluate(model, test, config.device);
    result.epochs.push_back(epoch_result);
    if (hooks.on_epoch) hooks.on_epoch(epoch, epoch_result);
  }
  return result;
}

}  // namespace hs
