#include "models/training/rank_step.h"

#include <numeric>
#include <utility>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"

namespace hs {

RankStep::RankStep(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler,
                   const PixelScale& pixel_scale, const TrainConfig& config, std::function<bool()> is_interrupted)
    : TrainStep(model, arena, optimizer, scaler, pixel_scale, config, std::move(is_interrupted)),
      sum_(arena, config.sum),
      exchange_(config.sum.exchange),
      sums_(config.sum.sums()) {}

void RankStep::announce(const StepShare& share) {
  share_ = share;
  if (!exchange_) return;
  const bool is_interrupted = is_interrupted_ && is_interrupted_();
  flags_from_ranks_ = {exchange_->rank() == 0 && share.time_is_up ? 1.0f : 0.0f, is_interrupted ? 1.0f : 0.0f};
  exchange_->start_gather(flags_from_ranks_.data(), flags_from_ranks_.size());
}

const std::vector<Tensor>& RankStep::run(const std::vector<Batch>& micro_batches, StepSeconds& seconds) {
  const Autocast precision(config_.precision, arena_);
  const AmbientScope restores_micro_step;
  ambient().micro_step = static_cast<uint32_t>(share_.first);
  shared_ = Tensor();  // see begin()
  begin(seconds);
  sum_.begin(std::ssize(share_.sizes));
  const int64_t samples = std::reduce(share_.sizes.begin(), share_.sizes.end());
  if (micro_batches.empty()) exchange_losses();
  for (const Batch& batch : micro_batches) {
    if (!exchange_ && is_interrupted_ && is_interrupted_()) throw Interrupted();
    sum_.begin_micro_batch();
    const Loss now = forward_part(batch, samples, seconds);
    const bool is_last = losses_.size() == micro_batches.size();
    if (is_last) exchange_losses();
    const StepPart part("backward", seconds.backward);
    sum_.backward(is_last, [&] { backward(now.loss, now.dloss); });
    ++ambient().micro_step;
  }
  {
    const StepPart part("exchange", seconds.exchange);
    if (!sum_.finish(is_interrupted_)) throw Interrupted();
  }
  if (exchange_) {
    throw_if_interrupted();
    losses_.clear();
    for (int64_t i = 0; i < shared_.size(); ++i) losses_.push_back(shared_.slice(i, {}));
  }
  update(share_.sizes, seconds);
  return losses_;
}

void RankStep::throw_if_interrupted() const {
  if (flags_from_ranks_[1] != 0) throw Interrupted();
}

void RankStep::wait_for_all() {
  if (!exchange_) return;
  if (!exchange_->wait(is_interrupted_)) throw Interrupted();
  throw_if_interrupted();
}

bool RankStep::finish(StepSeconds& seconds) {
  if (!exchange_) return share_.time_is_up;
  const StepPart part("exchange", seconds.exchange);
  sums_->finish_step();
  return flags_from_ranks_[0] != 0;
}

// Replicas that have drifted apart would continue, and nothing else would show it.
void RankStep::compare_weights(int64_t epoch, int64_t step) const {
  if (!exchange_) return;
  const Tensor values = arena_.values.to(Device::cpu);
  const uint32_t sum = crc32c(values.raw_data(), static_cast<size_t>(values.bytes()));
  std::vector<float> sums(2 * static_cast<size_t>(exchange_->size()));  // of each rank: both halves, as integers
  const size_t own = 2 * static_cast<size_t>(exchange_->rank());
  sums[own] = static_cast<float>(sum >> 16);
  sums[own + 1] = static_cast<float>(sum & 0xffff);
  if (!exchange_->gather(sums, is_interrupted_)) throw Interrupted();
  for (size_t i = 2; i < sums.size(); i += 2) {
    if (sums[i] == sums[0] && sums[i + 1] == sums[1]) continue;
    fail(ExitCode::rank,
         "rank {}: its weights after step {} of epoch {} are not those of rank 0; use the same program and kind of CPU "
         "for all ranks",
         i / 2, step, epoch);
  }
}

// Sent before the gradients, so that it is hidden behind backward.
void RankStep::exchange_losses() {
  if (!exchange_) return;
  shared_ = Tensor::zeros({std::ssize(share_.sizes)}, DType::f32, config_.device);
  for (int64_t i = 0; i < std::ssize(losses_); ++i) {
    shared_.slice(share_.first + i, {}).copy_from(losses_[static_cast<size_t>(i)]);
  }
  sums_->start_gather(shared_.mutable_data<float>(), static_cast<size_t>(shared_.size()));
}

}  // namespace hs
