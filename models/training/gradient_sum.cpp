#include "models/training/gradient_sum.h"

#include <algorithm>
#include <optional>

#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/slots.h"
#include "engine/storage.h"

namespace hs {

GradientSum::GradientSum(ParameterArena& arena, const SumConfig& config)
    : Observer(Event::gradient, Watch::this_thread), arena_(arena), config_(config) {
  if (!config.exchange) return;
  check((arena.values.device() == Device::cpu) == !config.device_sums,
        "GradientSum: ranks on another device than the cpu need its own sums (open_sums)");
  const auto& parameters = arena.parameters();
  int64_t end = arena.values.size();
  for (size_t i = parameters.size(), last = i - 1; i-- > 0;) {
    const int64_t begin = arena.offset(parameters[i]);
    if (i > 0 && (end - begin) * static_cast<int64_t>(sizeof(float)) < config.bucket_bytes) continue;
    const std::string name = parameters[i].name + (i == last ? "" : " to " + parameters[last].name);
    buckets_.push_back({i == 0 ? 0 : begin, end, i, last, name});
    end = begin;
    last = i - 1;
  }
}

const ReducePlan& GradientSum::plan() {
  const auto [found, is_new] = plans_.try_emplace(micro_batches_);
  if (is_new) found->second = reduce_plan(micro_batches_, config_.ranks(), config_.rank());
  return found->second;
}

void GradientSum::begin(int64_t micro_batches) {
  micro_batches_ = micro_batches;
  sent_ = kept_count_ = 0;
  has_begun_ = false;
  counter_ = LeafCounter(leaves_of(micro_batches, config_.ranks(), config_.rank()).begin);
}

void GradientSum::begin_micro_batch() {
  if (config_.tree && has_begun_) keep();
  has_begun_ = true;
}

// Adds the gradients in the arena to what is kept, and makes room for the next micro-batch's.
void GradientSum::keep() {
  Tensor& gradients = arena_.gradients();
  for (int left = counter_.add(); left > 0; --left) accumulate(kept_[--kept_count_], gradients);
  if (kept_count_ == kept_.size()) {
    const PoolScope shared(nullptr);  // it stays, so it must not take a block that a captured step will ask for
    const MemoryPurposeScope purpose(MemoryPurpose::gradients);
    kept_.push_back(gradients.empty_like());
  }
  kept_[kept_count_++].copy_from(gradients);
  arena_.zero_gradients();
}

void GradientSum::backward(bool last, const std::function<void()>& run) {
  if (!config_.exchange) return run();
  const auto& parameters = arena_.parameters();
  writes_before_.clear();
  for (const NamedParameter& parameter : parameters) writes_before_.push_back(parameter.value->grad_info()->writes);
  writes_sent_.resize(parameters.size());
  {
    std::optional<Attached> attached;
    if (last && !writes_expected_.empty()) attached.emplace(static_cast<Observer&>(*this));
    run();
  }
  check_not_late();
  writes_expected_.clear();
  for (size_t i = 0; i < parameters.size(); ++i) writes_expected_.push_back(writes(i));
}

// To a parameter's gradient, in this backward.
uint32_t GradientSum::writes(size_t parameter) const {
  return arena_.parameters()[parameter].value->grad_info()->writes - writes_before_[parameter];
}

// Called in backward, before a rule runs: all rules before it have written their gradients.
void GradientSum::gradient(const char*, const Tensor&) {
  for (; sent_ < buckets_.size() && is_complete(buckets_[sent_]); ++sent_) {
    const Bucket& bucket = buckets_[sent_];
    for (size_t i = bucket.first; i <= bucket.last; ++i) writes_sent_[i] = writes(i);
    send(bucket);
  }
}

// A parameter may be used more than once: its gradient is complete after as many writes as in the backward before.
bool GradientSum::is_complete(const Bucket& bucket) const {
  for (size_t i = bucket.first; i <= bucket.last; ++i) {
    if (writes(i) == 0 || writes(i) < writes_expected_[i]) return false;
  }
  return true;
}

void GradientSum::check_not_late() const {
  for (size_t b = 0; b < sent_; ++b) {
    for (size_t i = buckets_[b].first; i <= buckets_[b].last; ++i) {
      if (writes(i) == writes_sent_[i]) continue;
      fail(
          ExitCode::internal,
          "the gradient of {} was sent after {} of its {} writes in this backward ({} in the one before); models whose "
          "steps differ need a bucket that holds all parameters",
          arena_.parameters()[i].name, writes_sent_[i], writes(i), writes_expected_[i]);
    }
  }
}

void GradientSum::send(const Bucket& bucket) {
  for (size_t i = bucket.first; i <= bucket.last; ++i) gradient_of(*arena_.parameters()[i].value->grad_info());
  const auto count = static_cast<size_t>(bucket.end - bucket.begin);
  std::vector<float*> arrays;
  const auto add = [&](Tensor array) { arrays.push_back(array.mutable_data<float>() + bucket.begin); };
  // Any parameter's gradient shares the storage; asking the arena for all would fill in zeros.
  const NamedParameter& first = arena_.parameters()[bucket.first];
  arrays.push_back(first.value->grad_info()->grad.mutable_data<float>() - arena_.offset(first) + bucket.begin);
  if (!config_.tree) return config_.sums()->start_library(arrays[0], count, bucket.name);
  for (size_t i = 0; i < kept_count_; ++i) add(kept_[i]);
  config_.sums()->start(plan(), std::move(arrays), count, bucket.name);
}

bool GradientSum::finish(const std::function<bool()>& stop) {
  if (config_.exchange) {
    while (sent_ < buckets_.size()) send(buckets_[sent_++]);
    // What the other ranks' rules wrote is in the sum: as much as this one's did when it last had a micro-batch.
    for (size_t i = 0; !has_begun_ && i < arena_.parameters().size(); ++i) {
      arena_.parameters()[i].value->grad_info()->writes = writes_expected_.empty() ? 1 : writes_expected_[i];
    }
    // The processes first: they wait for each other no longer than the timeout.
    return config_.exchange->wait(stop) && config_.sums()->wait(stop);
  }
  Tensor& gradients = arena_.gradients();
  const auto array = [&](int i) -> Tensor& { return i == 0 ? gradients : kept_[static_cast<size_t>(i - 1)]; };
  for (const ReducePlan::Round& round : plan().rounds) {
    for (const ReducePlan::Add& sum : round.adds) accumulate(array(sum.from), array(sum.to));
  }
  return true;
}

}  // namespace hs
