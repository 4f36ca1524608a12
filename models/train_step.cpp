// One training step. Every technique of models/train.h is implemented here or is a setting of something called here.
#include "models/train_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/slots.h"
#include "kernels/augment/augment.h"
#include "kernels/gather_batch/gather_batch.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "kernels/split_windows/split_windows.h"

namespace hs {
namespace {

void copy(const Tensor& from, Tensor& to) {
  if (!from.defined()) return;
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  if (!to.defined()) to = from.empty_like();
  to.copy_from(from);
}

bool same_shapes(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  return std::ranges::equal(
      a, b, {}, [](const Batch& x) { return x.images.shape(); }, [](const Batch& x) { return x.images.shape(); });
}

// Over the samples of all micro-batches, on the device.
Tensor mean_loss(const std::vector<Tensor>& losses, const std::vector<int64_t>& sizes, float samples) {
  Tensor mean;
  for (size_t i = 0; i < losses.size(); ++i) {
    Tensor share = losses[i].empty_like();
    scale_loss({losses[i], static_cast<float>(sizes[i]) / samples, share});
    if (i == 0) {
      mean = share;
    } else {
      accumulate({share, mean});
    }
  }
  return mean;
}

NetworkInput tokens_of(const Batch& batch, const AugmentOptions& augment) {
  check(!augment.any(), "augment: changes images, but the model reads a text; leave it out");
  const TokenBatch text = split_windows(batch.images);
  return {text.tokens, text.labels};
}

}  // namespace

Batch on_device(const Batch& batch, Device device) {
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  const auto move = [device](const Tensor& tensor) { return tensor.defined() ? tensor.to(device) : tensor; };
  return {move(batch.images), move(batch.labels), move(batch.samples), move(batch.epoch)};
}

NetworkInput prepare(InputKind kind, const Batch& batch, const PixelScale& scale, const AugmentOptions& augment,
                     uint64_t seed) {
  if (kind == InputKind::tokens) return tokens_of(batch, augment);
  Tensor images = augment.any() ? augment_image(batch.images, batch.samples, batch.epoch, augment, seed) : batch.images;
  return {images.dtype() == DType::u8 ? normalize_image(images, scale, ambient().autocast) : images, batch.labels};
}

TrainStep::TrainStep(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler,
                     const PixelScale& pixel_scale, const TrainConfig& config, const TrainHooks& hooks)
    : model_(model),
      input_kind_(model.input_kind()),
      arena_(arena),
      optimizer_(optimizer),
      scaler_(scaler),
      pixel_scale_(pixel_scale),
      device_(config.device),
      precision_(config.precision),
      augment_(config.augment),
      label_smoothing_(config.label_smoothing),
      needs_loss_(config.optimizer.loss_outlier > 0),
      seed_(config.seed),
      sum_(config.sum.tree || config.sum.exchange ? std::make_unique<GradientSum>(arena, config.sum) : nullptr),
      exchange_(config.sum.exchange),
      sums_(config.sum.sums()),
      on_gradients_(hooks.on_gradients),
      on_phase_(hooks.on_phase),
      is_interrupted_(hooks.is_interrupted),
      before_first_(hooks.before_first_step) {
  if (config.graph) captured_ = std::make_unique<CapturedWork>(config.device);
  if (config.graph_steps > 1) {
    captured_group_ = std::make_unique<CapturedWork>(config.device);
    place_ = Tensor::zeros({group_place}, DType::i32, config.device);
  }
}

const std::vector<Tensor>& TrainStep::run(const std::vector<Batch>& micro_batches, StepShare& share,
                                          StepSeconds& seconds) {
  const Autocast amp(precision_, arena_);  // a recorded step does not cast: the optimizer does
  if (exchange_) announce(share);
  std::vector<Batch> inputs;
  inputs.reserve(micro_batches.size());
  {
    const StepPart part("upload", seconds.upload);
    for (const Batch& batch : micro_batches) inputs.push_back(on_device(batch, device_));
  }
  // Every rank must replay, or none: the sizes are those of all.
  const bool replays =
      captured_ && (fixed_sizes_.empty() || (share.sizes == fixed_sizes_ && same_shapes(inputs, fixed_)));
  if (replays) {
    replay(inputs, share, seconds);
  } else {
    if (!inputs.empty()) look_once(inputs[0]);
    step(inputs, share, losses_, seconds);
  }
  if (exchange_) settle(share, seconds);
  return replays ? captured_losses_ : losses_;
}

void TrainStep::replay(const std::vector<Batch>& inputs, StepShare& share, StepSeconds& seconds) {
  fixed_sizes_ = share.sizes;
  copy_to_fixed(inputs, seconds);
  if (!fixed_.empty()) look_once(fixed_[0]);
  if (exchange_ && (!exchange_->wait(is_interrupted_) || announced_[1] != 0)) throw Interrupted();
  const StepPart part("replay", seconds.replay);
  StepSeconds recorded;  // not reported: the time of recording belongs to `replay`
  captured_->run([&] { step(fixed_, share, captured_losses_, recorded); });
}

void TrainStep::settle(StepShare& share, StepSeconds& seconds) {
  const StepPart part("exchange", seconds.exchange);
  sums_->settle();
  share.last = announced_[0] != 0;
}

// What all ranks have to know of each other before a step is taken. Sent first, so that it is there when it is needed.
void TrainStep::announce(const StepShare& share) {
  const bool is_interrupted = is_interrupted_ && is_interrupted_();
  announced_ = {exchange_->rank() == 0 && share.last ? 1.0f : 0.0f, is_interrupted ? 1.0f : 0.0f};
  exchange_->start_gather(announced_.data(), announced_.size());
}

const std::vector<Tensor>& TrainStep::run(const std::vector<Batch>& micro_batches, StepSeconds& seconds) {
  own_.sizes.clear();
  for (const Batch& batch : micro_batches) own_.sizes.push_back(batch.labels.size());
  return run(micro_batches, own_, seconds);
}

void TrainStep::copy_to_fixed(const std::vector<Batch>& inputs, StepSeconds& seconds) {
  const StepPart part("upload", seconds.upload);
  fixed_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    copy(inputs[i].images, fixed_[i].images);
    copy(inputs[i].labels, fixed_[i].labels);
    copy(inputs[i].samples, fixed_[i].samples);
    copy(inputs[i].epoch, fixed_[i].epoch);
  }
}

void TrainStep::run_group(const ResidentSet& set, const BatchPlace& place, int64_t steps, int64_t entry, StepLogs& logs,
                          StepSeconds& seconds) {
  const Autocast amp(precision_, arena_);
  {
    const StepPart part("upload", seconds.upload);
    const auto batches = static_cast<size_t>(set.images.shape()[0] / set.batch);  // whole ones
    const auto bytes = static_cast<size_t>(place_.bytes());
    if (!places_) places_ = pin_host_memory(device_, batches * bytes, "the batches of a graph; use graphs of one step");
    // Not one for all: the host runs ahead, and the device reads it when the groups before are done.
    auto* const values = static_cast<int32_t*>(places_.get()) + place.position / set.batch * group_place;
    values[place_epoch] = static_cast<int32_t>(place.epoch);
    values[place_position] = static_cast<int32_t>(place.position);
    values[place_entry] = static_cast<int32_t>(entry);
    runtime(device_).copy(place_.mutable_raw_data(), values, bytes, CopyDirection::to_device);
  }
  if (before_first_) look_once(gather(set, 0));
  const StepPart part("replay", seconds.replay);
  StepSeconds recorded;  // see run()
  const Tensor logged_at = place_.slice(place_entry, {});
  captured_group_->run([&] {
    group_losses_.clear();  // as in step()
    for (int64_t i = 0; i < steps; ++i) {
      StepShare share{.sizes = {set.batch}};
      const StepLog log{logged_at, i, logs.losses, logs.scales};
      step({gather(set, i * set.batch)}, share, group_losses_, recorded, &log);
    }
  });
}

// The batch that begins so many positions behind place_.
Batch TrainStep::gather(const ResidentSet& set, int64_t offset) {
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  const Shape& all = set.images.shape();
  const auto integers = [this](const Shape& shape) { return Tensor::empty(shape, DType::i32, device_); };
  // Pixels that nothing else changes are normalised on the way.
  const DType type = input_kind_ == InputKind::images && !augment_.any() ? ambient().autocast : DType::u8;
  Batch batch{Tensor::empty({set.batch, all[1], all[2], all[3]}, type, device_), integers({set.batch}),
              integers({set.batch}), integers({})};
  gather_batch({set.images, set.labels, place_, pixel_scale_, set.shuffle, set.seed, offset, batch.images, batch.labels,
                batch.samples, batch.epoch});
  return batch;
}

void TrainStep::look_once(const Batch& batch) {
  if (!before_first_) return;
  const auto [input, labels] = prepare(input_kind_, batch, pixel_scale_, augment_, seed_);
  std::exchange(before_first_, nullptr)(input, labels);
}

void TrainStep::step(const std::vector<Batch>& inputs, StepShare& share, std::vector<Tensor>& losses,
                     StepSeconds& seconds, const StepLog* log) {
  // Before the first allocation, so that the recorded step uses the same blocks as the previous one.
  losses.clear();
  shared_ = Tensor();
  const AmbientScope micro_steps;
  {
    const StepPart part("zero gradients", seconds.update);
    optimizer_.zero_gradients();
    if (sum_) sum_->begin(std::ssize(share.sizes));
  }
  const auto samples = static_cast<float>(std::reduce(share.sizes.begin(), share.sizes.end()));
  ambient().micro_step = static_cast<uint32_t>(share.first);
  if (inputs.empty() && exchange_) exchange_losses(share, losses);
  for (const Batch& batch : inputs) {
    if (!exchange_ && is_interrupted_ && is_interrupted_()) throw Interrupted();
    if (sum_) sum_->begin_leaf();
    Tensor loss, dloss;
    {
      const StepPart part("forward", seconds.forward);
      // The mean over the samples of the whole step, however they are divided.
      dloss = scaler_.loss_gradient(static_cast<float>(batch.labels.size()) / samples);
      const auto [input, labels] = prepare(input_kind_, batch, pixel_scale_, augment_, seed_);
      loss = softmax_cross_entropy(model_.forward(input), labels, dloss, label_smoothing_);
    }
    losses.push_back(loss.detach());
    const bool is_last = losses.size() == inputs.size();
    if (is_last && exchange_) exchange_losses(share, losses);
    if (on_phase_) on_phase_("forward", loss);
    {
      const StepPart part("backward", seconds.backward);
      const auto run_backward = [&] { backward(loss, dloss); };
      sum_ ? sum_->backward(is_last, run_backward) : run_backward();
    }
    if (on_phase_) on_phase_("backward", loss);
    ++ambient().micro_step;  // another dropout mask for the next one; the scope restores it
  }
  if (sum_) {
    const StepPart part("exchange", seconds.exchange);
    if (!sum_->finish(is_interrupted_)) throw Interrupted();
  }
  if (exchange_) {
    if (announced_[1] != 0) throw Interrupted();  // on every rank in the same step
    losses.clear();
    for (int64_t i = 0; i < shared_.size(); ++i) losses.push_back(shared_.slice(i, {}));
  }
  if (on_gradients_) on_gradients_(scaler_);
  {
    const StepPart part("update", seconds.update);
    const Tensor loss = needs_loss_ ? mean_loss(losses, share.sizes, samples) : log ? losses[0] : Tensor();
    optimizer_.step(scaler_, loss, std::ssize(share.sizes), log);
  }
  if (on_phase_) on_phase_("update", {});
}

// Sent before the gradients, so that it is hidden behind backward.
void TrainStep::exchange_losses(const StepShare& share, const std::vector<Tensor>& losses) {
  shared_ = Tensor::zeros({std::ssize(share.sizes)}, DType::f32, device_);
  for (int64_t i = 0; i < std::ssize(losses); ++i) {
    shared_.slice(share.first + i, {}).copy_from(losses[static_cast<size_t>(i)]);
  }
  sums_->start_gather(shared_.mutable_data<float>(), static_cast<size_t>(shared_.size()));
}

}  // namespace hs
