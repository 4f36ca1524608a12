#include "models/training/captured_step.h"

#include <algorithm>

#include "engine/ambient.h"
#include "engine/check.h"
#include "kernels/gather_batch/gather_batch.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/optimizer/steps.h"

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

// The set that a graph of several steps takes its batches from; nullptr if a graph is one step.
const ResidentSet* resident_set(BatchSource& training, const TrainConfig& config) {
  if (config.graph_steps == 1) return nullptr;
  const ResidentSet* set = config.graph && config.accumulate == 1 ? training.resident() : nullptr;
  if (!set) {
    fail(ExitCode::usage,
         "graph of {} steps: needs a graph, the training set on the device (cache device) and no accumulation",
         config.graph_steps);
  }
  return set;
}

}  // namespace

CapturedStep::CapturedStep(const RunParts& parts, TrainStep& step)
    : step_(step), arena_(parts.arena), optimizer_(parts.optimizer), config_(parts.config), captured_(config_.device) {
  if (config_.graph_steps == 1) return;
  captured_group_.emplace(config_.device);
  place_ = Tensor::zeros({group_place}, DType::i32, config_.device);
}

const std::vector<Tensor>& CapturedStep::run(const std::vector<Batch>& inputs, const std::vector<int64_t>& sizes,
                                             StepSeconds& seconds, const std::function<void()>& before_replay) {
  if (!fixed_sizes_.empty() && (sizes != fixed_sizes_ || !same_shapes(inputs, fixed_))) {
    return step_.run(inputs, seconds);
  }
  const Autocast precision(config_.precision, arena_);  // a recorded step does not cast: the optimizer does
  fixed_sizes_ = sizes;
  copy_to_fixed(inputs, seconds);
  if (before_replay) before_replay();
  const StepPart part("replay", seconds.replay);
  StepSeconds recorded;  // not reported: the time of recording belongs to `replay`
  step_.take_losses();   // a recording must not free what it has not allocated
  captured_.run([&] {
    losses_.clear();  // as in TrainStep::begin()
    step_.run(fixed_, recorded);
    losses_ = step_.take_losses();
  });
  return losses_;
}

void CapturedStep::copy_to_fixed(const std::vector<Batch>& inputs, StepSeconds& seconds) {
  const StepPart part("upload", seconds.upload);
  fixed_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    copy_images(inputs[i].images, fixed_[i].images);
    copy(inputs[i].labels, fixed_[i].labels);
    copy(inputs[i].samples, fixed_[i].samples);
    copy(inputs[i].epoch, fixed_[i].epoch);
  }
}

// Pixels that nothing else changes are normalised on the way.
DType CapturedStep::image_type() const {
  return step_.input_kind() == InputKind::images && !config_.augment.any() ? ambient().autocast : DType::u8;
}

void CapturedStep::copy_images(const Tensor& from, Tensor& to) {
  if (from.dtype() != DType::u8 || image_type() == DType::u8) return copy(from, to);
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  if (!to.defined()) to = Tensor::empty(from.shape(), image_type(), config_.device);
  normalize_image_forward({from, step_.pixel_scale(), to});
}

void CapturedStep::begin_group(const ResidentSet& set, const BatchPlace& place, int64_t entry, StepSeconds& seconds) {
  const StepPart part("upload", seconds.upload);
  const auto batches = static_cast<size_t>(set.images.shape()[0] / set.batch);  // whole ones
  const auto bytes = static_cast<size_t>(place_.bytes());
  if (!places_) {
    places_ = pin_host_memory(config_.device, batches * bytes, "the batches of a graph; use graphs of one step");
  }
  // Not one for all: the host runs ahead, and the device reads it when the groups before are done.
  auto* const values = static_cast<int32_t*>(places_.get()) + place.position / set.batch * group_place;
  values[place_epoch] = static_cast<int32_t>(place.epoch);
  values[place_position] = static_cast<int32_t>(place.position);
  values[place_entry] = static_cast<int32_t>(entry);
  runtime(config_.device).copy(place_.mutable_raw_data(), values, bytes, CopyDirection::to_device);
}

void CapturedStep::run_group(const ResidentSet& set, int64_t steps, StepLogs& logs, StepSeconds& seconds) {
  const Autocast precision(config_.precision, arena_);
  const StepPart part("replay", seconds.replay);
  StepSeconds recorded;  // see run()
  const Tensor logged_at = place_.slice(place_entry, {});
  step_.take_losses();
  captured_group_->run([&] {
    group_losses_.clear();
    for (int64_t i = 0; i < steps; ++i) {
      const StepLog log{logged_at, i, logs.losses, logs.scales};
      const Optimizer::Logging logging(optimizer_, log);
      step_.run({gather(set, i * set.batch)}, recorded);
    }
    group_losses_ = step_.take_losses();
  });
}

Batch CapturedStep::gather(const ResidentSet& set, int64_t offset) {
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  const Shape& all = set.images.shape();
  const auto integers = [this](const Shape& shape) { return Tensor::empty(shape, DType::i32, config_.device); };
  const DType type = set.images.dtype() == DType::u8 ? image_type() : set.images.dtype();
  Batch batch{Tensor::empty({set.batch, all[1], all[2], all[3]}, type, config_.device),
              Tensor::empty({set.batch}, set.labels.dtype(), config_.device), integers({set.batch}), integers({})};
  gather_batch({set.images, set.labels, place_, step_.pixel_scale(), set.shuffle, set.seed, offset, batch.images,
                batch.labels, batch.samples, batch.epoch});
  return batch;
}

GraphRunner::GraphRunner(const RunParts& parts)
    : StepRunner(parts), set_(resident_set(parts.training, parts.config)), captured_(parts, *step_) {}

NextStep GraphRunner::next(const Position& at, TrainResult& result) {
  if (!fits_group(at)) return StepRunner::next(at, result);
  const int64_t steps = parts_.config.graph_steps;
  return {{}, std::vector<int64_t>(static_cast<size_t>(steps), set_->batch), steps};
}

// Whole batches only, and no validation may fall between two of the steps.
bool GraphRunner::fits_group(const Position& at) const {
  const TrainConfig& config = parts_.config;
  return set_ && (at.step + config.graph_steps) * set_->batch <= parts_.training.samples() &&
         (!config.validation || config.validate_every.steps == 0);
}

void GraphRunner::run(const NextStep& next, Losses& losses, StepSeconds& seconds) {
  if (next.steps > 1) return run_group(next, losses, seconds);
  keep_losses(captured_.run(next.batches, next.sizes, seconds), next.sizes, losses);
}

void GraphRunner::run_group(const NextStep& next, Losses& losses, StepSeconds& seconds) {
  if (is_interrupted()) throw Interrupted();
  captured_.begin_group(*set_, parts_.training.skip(next.steps), losses.size(), seconds);
  if (wants_first_batch()) {
    const Autocast precision(parts_.config.precision, parts_.arena);
    show_first_batch(captured_.gather(*set_, 0));
  }
  StepLogs logs = losses.tensors();
  captured_.run_group(*set_, next.steps, logs, seconds);
  losses.count_recorded(next.steps, set_->batch);
}

}  // namespace hs
