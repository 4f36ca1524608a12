#include "models/training/captured_step.h"

#include <algorithm>

#include "engine/ambient.h"
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

}  // namespace

CapturedStep::CapturedStep(TrainStep& step, ParameterArena& arena, Optimizer& optimizer, const TrainConfig& config)
    : step_(step), arena_(arena), optimizer_(optimizer), config_(config), captured_(config.device) {
  if (config.graph_steps == 1) return;
  captured_group_.emplace(config.device);
  place_ = Tensor::zeros({group_place}, DType::i32, config.device);
}

const std::vector<Tensor>& CapturedStep::run(const std::vector<Batch>& inputs, const std::vector<int64_t>& sizes,
                                             StepSeconds& seconds) {
  if (!fixed_sizes_.empty() && (sizes != fixed_sizes_ || !same_shapes(inputs, fixed_))) {
    return step_.run(inputs, seconds);
  }
  const Autocast precision(config_.precision, arena_);  // a recorded step does not cast: the optimizer does
  fixed_sizes_ = sizes;
  copy_to_fixed(inputs, seconds);
  step_.wait_for_all();
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

}  // namespace hs
