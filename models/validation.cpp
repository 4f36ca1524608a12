#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/ambient.h"
#include "engine/check.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/training_run.h"

namespace hs {

Cadence parse_cadence(std::string_view text) {
  constexpr int64_t most = 1'000'000'000;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (error == std::errc() && number >= 1 && number <= most) {
    if (unit == "st") return {.steps = number};
    if (unit == "ep") return {.epochs = number};
    if (unit == "m") return {.seconds = 60.0 * static_cast<double>(number)};
    if (unit == "s") return {.seconds = static_cast<double>(number)};
  }
  fail(ExitCode::usage, "{}: expected a number from 1 to {} with a unit: st (steps), ep (epochs), m or s; as in 500st",
       text, most);
}

bool is_due(const Cadence& cadence, int64_t epoch, int64_t step, int64_t steps_per_epoch) {
  if (step == 0) return false;
  if (cadence.steps > 0) return ((epoch - 1) * steps_per_epoch + step) % cadence.steps == 0;
  return cadence.epochs > 0 && step == steps_per_epoch && epoch % cadence.epochs == 0;
}

Evaluation evaluate(Module& model, BatchSource& source, Device device, const std::function<bool()>& is_interrupted,
                    Exchange* exchange) {
  const Inference scope;
  const int64_t batches = source.batches_per_epoch();
  const LeafRange own = exchange ? leaves_of(batches, exchange->size(), exchange->rank()) : LeafRange{0, batches};
  // Of each batch: loss, predictions, correct ones. Then how many ranks were interrupted.
  std::vector<float> results(static_cast<size_t>(3 * batches + 1));
  for (int64_t i = own.begin; i < own.end && results.back() == 0; ++i) {
    if (is_interrupted && is_interrupted()) {
      results.back() = 1;  // an array of all ranks says so to all
      continue;
    }
    const Batch batch = on_device(source.next(), device);
    const auto [input, labels] = prepare(model.input_kind(), batch, source.pixel_scale());
    const Tensor logits = model.forward(input);  // (predictions, classes)
    float* const result = &results[static_cast<size_t>(3 * i)];
    result[0] = static_cast<float>(softmax_cross_entropy(logits, labels).item());
    result[1] = static_cast<float>(labels.size());
    result[2] = static_cast<float>(count_correct(logits, labels));
  }
  if (exchange && !exchange->gather(results, is_interrupted)) throw Interrupted();
  if (results.back() != 0) throw Interrupted();
  double loss_sum = 0, correct = 0, predictions = 0;
  for (size_t i = 0; i + 1 < results.size(); i += 3) {
    loss_sum += double{results[i]} * double{results[i + 1]};
    predictions += double{results[i + 1]};
    correct += double{results[i + 2]};
  }
  return {correct / predictions, loss_sum / predictions};
}

EpochResult TrainingRun::evaluated_epoch(bool is_tested) {
  const Range range("evaluate");
  const WithAverage averaged(arena_, *optimizer_);
  const Autocast amp(config_.precision, arena_);
  EpochResult result{losses_.mean(), result_.seconds, {NAN, NAN}};
  for (const EpochResult& before : result_.epochs) result.seconds -= before.seconds;
  if (!is_tested) return result;
  const double start = steady_seconds();
  result.test = evaluate(model_, test_, config_.device, hooks_.is_interrupted, config_.sum.exchange);
  result.evaluation_seconds = steady_seconds() - start;
  check_finite(result.test, "test", test_);
  return result;
}

bool TrainingRun::must_validate() const {
  if (!config_.validation || !is_due(config_.validate_every, epoch_, step_, steps_)) return false;
  if (result_.validations.empty()) return true;
  const Validation& last = result_.validations.back();
  return last.epoch != epoch_ || last.step != step_;
}

void TrainingRun::validate() {
  const Range range("validate");
  const WithAverage averaged(arena_, *optimizer_);
  const Autocast amp(config_.precision, arena_);
  const double start = steady_seconds();
  const Evaluation result =
      evaluate(model_, *config_.validation, config_.device, hooks_.is_interrupted, config_.sum.exchange);
  check_finite(result, "validation", *config_.validation);
  const Validation* const before = best();
  if (config_.patience > 0 && (!before || result.accuracy > before->result.accuracy)) {
    if (!best_.defined()) best_ = Tensor::empty(arena_.values.shape(), DType::f32, config_.device);
    best_.copy_from(arena_.values);
  }
  result_.validations.push_back({epoch_, step_, result, steady_seconds() - start, result_.seconds});
  if (hooks_.on_validation) hooks_.on_validation(result_.validations.back());
}

// The first of those of greatest accuracy; nullptr if there was none.
const Validation* TrainingRun::best() const {
  const auto& all = result_.validations;
  const auto best = std::ranges::max_element(all, {}, [](const Validation& v) { return v.result.accuracy; });
  return best == all.end() ? nullptr : &*best;
}

// Later weights than those of the best validation have only overfitted, or patience would not be asked for.
void TrainingRun::keep_best() {
  const Validation* const kept = best();
  if (!best_.defined() || kept == &result_.validations.back() || result_.reached_target) return;
  arena_.values.copy_from(best_);
  const Autocast amp(config_.precision, arena_);
  result_.epochs.back().test = evaluate(model_, test_, config_.device, {}, config_.sum.exchange);
  result_.kept = fmt::format("step {} of epoch {}, whose accuracy of {:.2f} % in validation is the best", kept->step,
                             kept->epoch, kept->result.accuracy * 100);
}

// The newest validation where there are any, otherwise the newest test.
bool TrainingRun::has_reached_target() const {
  if (!config_.target) return false;
  if (!config_.validation) {
    return !result_.epochs.empty() && config_.target->is_reached_by(result_.epochs.back().test);
  }
  return !result_.validations.empty() && config_.target->is_reached_by(result_.validations.back().result);
}

std::string TrainingRun::reason_to_end() const {
  if (has_reached_target()) {
    return fmt::format("the target {} {:g} is reached", config_.target->is_loss ? "loss" : "accuracy",
                       config_.target->value);
  }
  const Validation* const kept = best();
  if (config_.patience > 0 && kept && &result_.validations.back() - kept >= config_.patience) {
    return fmt::format("{} validations without a better accuracy than {:.2f} %, that of step {} of epoch {}",
                       config_.patience, kept->result.accuracy * 100, kept->step, kept->epoch);
  }
  // Of ranks, rank 0's clock decides, a step later.
  const bool late = config_.sum.exchange ? time_is_up_ : result_.seconds >= config_.max_seconds;
  if (config_.max_seconds > 0 && late) {
    return fmt::format("{:.1f} of at most {:.1f} s of training", result_.seconds, config_.max_seconds);
  }
  return "";
}

}  // namespace hs
