#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/clock.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/training/training_run.h"

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

namespace {

// The mean loss of a batch, the number of its predictions, and of correct ones; NaN with a loss of the model's own.
using BatchScore = std::array<float, 3>;

BatchScore score_of(Module& model, const Batch& batch, const PixelScale& scale) {
  const NetworkInput in = prepare(model.input_kind(), batch, scale);
  const Tensor output = model.forward(in.input);               // of a classifier (predictions, classes)
  const Tensor own = model.loss(output, in.input, in.labels);  // or undefined
  const Tensor loss = own.defined() ? own : softmax_cross_entropy(output, in.labels);
  return {static_cast<float>(loss.item()), static_cast<float>(in.labels.size()),
          own.defined() ? NAN : static_cast<float>(count_correct(output, in.labels))};
}

}  // namespace

Evaluation evaluate(Module& model, BatchSource& source, Device device, const std::function<bool()>& is_interrupted,
                    Exchange* exchange) {
  const Inference scope;
  const int64_t batches = source.batches_per_epoch();
  const LeafRange own = exchange ? leaves_of(batches, exchange->size(), exchange->rank()) : LeafRange{0, batches};
  // Of each batch its score. Then how many ranks were interrupted.
  std::vector<float> results(static_cast<size_t>(3 * batches + 1));
  for (int64_t i = own.begin; i < own.end; ++i) {
    if (is_interrupted && is_interrupted()) {
      results.back() = 1;  // so that all ranks hear of it
      break;
    }
    const BatchScore score = score_of(model, on_device(source.next(), device), source.pixel_scale());
    std::ranges::copy(score, results.begin() + 3 * i);
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

bool Evaluator::must_validate(const Position& at, int64_t steps_per_epoch) const {
  if (!config.validation || !is_due(config.validate_every, at.epoch, at.step, steps_per_epoch)) return false;
  if (result.validations.empty()) return true;
  const Validation& last = result.validations.back();
  return last.epoch != at.epoch || last.step != at.step;
}

void Evaluator::validate(const Position& at) {
  const Range range("validate");
  const WithAverage averaged(arena, optimizer);
  double seconds = 0;
  const Evaluation validation = evaluated(*config.validation, "validation", at, seconds);
  check(config.patience == 0 || !std::isnan(validation.accuracy),
        "train: patience compares accuracies, and a module with a loss of its own has none; give a target of the loss");
  const Validation* const before = best_validation();
  if (config.patience > 0 && (!before || validation.accuracy > before->result.accuracy)) {
    if (!best.defined()) best = Tensor::empty(arena.values.shape(), DType::f32, config.device);
    best.copy_from(arena.values);
  }
  result.validations.push_back({at.epoch, at.step, validation, seconds, result.seconds});
  if (hooks.on_validation) hooks.on_validation(result.validations.back());
}

void Evaluator::test_epoch(const Position& at, double training_loss, bool is_tested) {
  const Range range("evaluate");
  const WithAverage averaged(arena, optimizer);
  EpochResult epoch{training_loss, result.seconds, {NAN, NAN}};
  for (const EpochResult& before : result.epochs) epoch.seconds -= before.seconds;
  if (is_tested) epoch.test = evaluated(test, "test", at, epoch.evaluation_seconds);
  result.epochs.push_back(epoch);
}

Evaluation Evaluator::evaluated(BatchSource& source, const char* what, const Position& at, double& seconds) const {
  const Autocast precision(config.precision, arena);
  const double start = steady_seconds();
  const Evaluation evaluation = evaluate(model, source, config.device, hooks.is_interrupted, config.sum.exchange);
  seconds = steady_seconds() - start;
  numbers.check_evaluation(evaluation, what, source, at);
  return evaluation;
}

// The first of those of greatest accuracy; nullptr if there was none.
const Validation* Evaluator::best_validation() const {
  const auto& all = result.validations;
  const auto found = std::ranges::max_element(all, {}, [](const Validation& v) { return v.result.accuracy; });
  return found == all.end() ? nullptr : &*found;
}

// Later weights than those of the best validation have only overfitted, or patience would not be asked for.
void Evaluator::keep_best() {
  const Validation* const kept = best_validation();
  if (!best.defined() || kept == &result.validations.back() || result.reached_target) return;
  arena.values.copy_from(best);
  const Autocast precision(config.precision, arena);
  result.epochs.back().test = evaluate(model, test, config.device, {}, config.sum.exchange);
  result.kept = fmt::format("step {} of epoch {}, whose accuracy of {:.2f} % in validation is the best", kept->step,
                            kept->epoch, kept->result.accuracy * 100);
}

bool Evaluator::has_reached_target() const {
  if (!config.target) return false;
  if (!config.validation) return !result.epochs.empty() && config.target->is_reached_by(result.epochs.back().test);
  return !result.validations.empty() && config.target->is_reached_by(result.validations.back().result);
}

std::string Evaluator::reason_to_end(bool time_is_up) const {
  if (has_reached_target()) {
    return fmt::format("the target {} {:g} is reached", config.target->is_loss ? "loss" : "accuracy",
                       config.target->value);
  }
  const Validation* const kept = best_validation();
  if (config.patience > 0 && kept && &result.validations.back() - kept >= config.patience) {
    return fmt::format("{} validations without a better accuracy than {:.2f} %, that of step {} of epoch {}",
                       config.patience, kept->result.accuracy * 100, kept->step, kept->epoch);
  }
  if (!time_is_up) return "";
  return fmt::format("{:.1f} of at most {:.1f} s of training", result.seconds, config.max_seconds);
}

}  // namespace hs
