#include "models/training/rank_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"

namespace hs {

RankStep::RankStep(const RunParts& parts)
    : TrainStep(parts.model, parts.arena, parts.optimizer, parts.scaler, parts.training.pixel_scale(), parts.config,
                parts.hooks.is_interrupted),
      sum_(arena_, config_.sum),
      exchange_(config_.sum.exchange),
      sums_(config_.sum.sums()) {}

void RankStep::announce(const StepShare& share) {
  share_ = share;
  if (!exchange_) return;
  const bool is_interrupted = is_interrupted_ && is_interrupted_();
  flags_from_ranks_ = {exchange_->rank() == 0 && share.time_is_up ? 1.0f : 0.0f, is_interrupted ? 1.0f : 0.0f};
  exchange_->start_gather(flags_from_ranks_.data(), flags_from_ranks_.size());
}

const std::vector<Tensor>& RankStep::run(const std::vector<Batch>& micro_batches, StepSeconds& seconds) {
  const Autocast precision(config_.precision, arena_);
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
void RankStep::compare_weights(const Position& at) const {
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
         i / 2, at.step, at.epoch);
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

RankRunner::RankRunner(const RunParts& parts)
    : StepRunner(parts, std::make_unique<RankStep>(parts)), ranks_(static_cast<RankStep&>(*step_)) {
  const TrainConfig& config = parts.config;
  if (config.graph) captured_.emplace(parts, ranks_);
  check(config.graph_steps == 1, "train: with ranks or a tree, use graph_steps 1");
  if (!config.sum.exchange) return;
  check(!parts.hooks.should_stop, "train: with ranks, use no should_stop");
  check(config.accumulate >= config.sum.exchange->size(), "train: fewer micro-batches than ranks; accumulate more");
}

NextStep RankRunner::next(const Position& at, TrainResult& result) {
  if (!std::exchange(has_begun_, true)) ranks_.compare_weights(at);
  const auto& sum = parts_.config.sum;
  BatchSource& training = parts_.training;
  NextStep next;
  {
    const StepPart part("wait", result.parts.wait);
    // A leaf is here a micro-batch (engine/ranks/leaf_tree.h).
    const int64_t done = at.step * parts_.config.accumulate, count = micro_batches(at);
    const LeafRange own = leaves_of(count, sum.ranks(), sum.rank());
    share_ = {{}, own.begin, StepRunner::time_is_up(result.seconds)};
    for (int64_t i = own.begin; i < own.end; ++i) {
      if (!sum.exchange && is_interrupted()) throw Interrupted();
      next.batches.push_back(training.next());
    }
    for (int64_t i = 0; i < count; ++i) {
      next.sizes.push_back(sum.exchange ? std::min(training.batch(), training.samples() - (done + i) * training.batch())
                                        : next.batches[static_cast<size_t>(i)].labels.size());
    }
    share_.sizes = next.sizes;
  }
  upload(next, result.parts);
  return next;
}

void RankRunner::run(const NextStep& next, Losses& losses, StepSeconds& seconds) try {
  ranks_.announce(share_);
  const std::vector<Tensor>& of_all =
      captured_ ? captured_->run(next.batches, next.sizes, seconds, [this] { ranks_.wait_for_all(); })
                : ranks_.run(next.batches, seconds);
  time_is_up_ = ranks_.finish(seconds);
  keep_losses(of_all, next.sizes, losses);
} catch (...) {
  if (RankSums* sums = parts_.config.sum.sums()) sums->abandon();
  throw;
}

bool RankRunner::time_is_up(double seconds) const {
  return parts_.config.sum.exchange ? time_is_up_ : StepRunner::time_is_up(seconds);
}

}  // namespace hs
