#include "models/training/train_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/slots.h"
#include "kernels/augment/augment.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/optimizer/steps.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "kernels/split_windows/split_windows.h"

namespace hs {
namespace {

NetworkInput tokens_of(const Batch& batch, const AugmentOptions* augment) {
  check(!augment, "augment changes images, but the model reads a text; leave it out");
  const TokenBatch text = split_windows(batch.images);
  return {text.tokens, text.labels};
}

// Over the samples of all micro-batches, on the device.
Tensor mean_loss(const std::vector<Tensor>& losses, const std::vector<int64_t>& sizes) {
  if (losses.size() == 1) return losses[0];
  const auto samples = static_cast<float>(std::reduce(sizes.begin(), sizes.end()));
  Tensor mean = losses[0].empty_like(), share = losses[0].empty_like();
  for (size_t i = 0; i < losses.size(); ++i) {
    scale_loss({losses[i], static_cast<float>(sizes[i]) / samples, i == 0 ? mean : share});
    if (i > 0) accumulate(share, mean);
  }
  return mean;
}

}  // namespace

Batch on_device(const Batch& batch, Device device) {
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  const auto move = [device](const Tensor& tensor) { return tensor.defined() ? tensor.to(device) : tensor; };
  return {move(batch.images), move(batch.labels), move(batch.samples), move(batch.epoch)};
}

NetworkInput prepare(InputKind kind, const Batch& batch, const PixelScale& scale, const AugmentOptions* augment,
                     uint64_t seed) {
  if (kind == InputKind::tokens) return tokens_of(batch, augment);
  check(!augment || batch.images.dtype() == DType::u8,
        "augment changes pixels of 8 bits, but the samples are {}; leave it out", name(batch.images.dtype()));
  Tensor images = augment ? augment_image(batch.images, batch.samples, batch.epoch, *augment, seed) : batch.images;
  return {images.dtype() == DType::u8 ? normalize_image(images, scale, ambient().autocast) : images, batch.labels};
}

Tensor loss_of(const Module& model, const Tensor& output, const NetworkInput& in, const Tensor& dloss,
               float smoothing) {
  const Tensor own = model.loss(output, in.input, in.labels);
  return own.defined() ? own : softmax_cross_entropy(output, in.labels, dloss, smoothing);
}

TrainStep::TrainStep(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler,
                     const PixelScale& pixel_scale, const TrainConfig& config, std::function<bool()> is_interrupted)
    : model_(model),
      arena_(arena),
      optimizer_(optimizer),
      scaler_(scaler),
      pixel_scale_(pixel_scale),
      config_(config),
      is_interrupted_(std::move(is_interrupted)),
      augment_(config.augment.any() ? &config.augment : nullptr) {}

const std::vector<Tensor>& TrainStep::run(const std::vector<Batch>& micro_batches, StepSeconds& seconds) {
  const Autocast precision(config_.precision, arena_);  // its end restores ambient().micro_step, too
  std::vector<int64_t> sizes(micro_batches.size());
  std::ranges::transform(micro_batches, sizes.begin(), [](const Batch& batch) { return batch.labels.size(); });
  const int64_t samples = std::reduce(sizes.begin(), sizes.end());
  begin(seconds);
  for (const Batch& batch : micro_batches) {
    if (is_interrupted_ && is_interrupted_()) throw Interrupted();
    const auto [loss, dloss] = forward_part(batch, samples, seconds);
    const StepPart part("backward", seconds.backward);
    backward(loss, dloss);
    ++ambient().micro_step;  // another dropout mask for the next one
  }
  update(sizes, seconds);
  return losses_;
}

void TrainStep::begin(StepSeconds& seconds) {
  losses_.clear();  // before the first allocation, so that a recorded step uses the same blocks as the one before it
  const StepPart part("zero gradients", seconds.update);
  optimizer_.zero_gradients();
}

TrainStep::Loss TrainStep::forward_part(const Batch& batch, int64_t samples, StepSeconds& seconds) {
  const StepPart part("forward", seconds.forward);
  // The mean over the samples of the whole step, however they are divided.
  const Tensor dloss = scaler_.loss_gradient(static_cast<float>(batch.labels.size()) / static_cast<float>(samples));
  const Tensor loss = forward(batch, dloss);
  losses_.push_back(loss.detach());
  return {loss, dloss};
}

NetworkInput TrainStep::input_of(const Batch& batch) const {
  return prepare(model_.input_kind(), batch, pixel_scale_, augment_, config_.seed);
}

Tensor TrainStep::forward(const Batch& batch, const Tensor& dloss) {
  const NetworkInput in = input_of(batch);
  return loss_of(model_, model_.forward(in.input), in, dloss, config_.label_smoothing);
}

void TrainStep::update(const std::vector<int64_t>& sizes, StepSeconds& seconds) {
  const StepPart part("update", seconds.update);
  optimizer_.step(scaler_, optimizer_.reads_loss() ? mean_loss(losses_, sizes) : Tensor(), std::ssize(sizes));
}

}  // namespace hs
