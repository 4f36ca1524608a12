// The training loop: get a step's batches, run it (models/train_step.cpp), check the losses, evaluate after each epoch.
// Follow the calls from train() (docs/one_training_step.md walks through them).
#include "models/train.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/observe.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/captured_step.h"
#include "models/loss_log.h"
#include "models/nan_guard.h"
#include "models/rank_step.h"
#include "models/step_phases.h"
#include "models/train_step.h"

namespace hs {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Evaluation evaluate(Module& model, BatchSource& source, Device device, const std::function<bool()>& is_interrupted,
                    Exchange* exchange) {
  const Inference scope;
  const int64_t batches = source.batches_per_epoch();
  const LeafRange own = exchange ? leaves_of(batches, exchange->size(), exchange->rank()) : LeafRange{0, batches};
  std::vector<float> results(static_cast<size_t>(3 * batches));  // of each batch: loss, predictions, correct ones
  for (int64_t i = own.begin; i < own.end; ++i) {
    if (is_interrupted && is_interrupted()) throw Interrupted();
    const Batch batch = on_device(source.next(), device);
    const auto [input, labels] = prepare(model.input_kind(), batch, source.pixel_scale());
    const Tensor logits = model.forward(input);  // (predictions, classes)
    float* const result = &results[static_cast<size_t>(3 * i)];
    result[0] = static_cast<float>(softmax_cross_entropy(logits, labels).item());
    result[1] = static_cast<float>(labels.size());
    result[2] = static_cast<float>(count_correct(logits, labels));
  }
  if (exchange && !exchange->gather(results, is_interrupted)) throw Interrupted();
  double loss_sum = 0, correct = 0, predictions = 0;
  for (size_t i = 0; i < results.size(); i += 3) {
    loss_sum += double{results[i]} * double{results[i + 1]};
    predictions += double{results[i + 1]};
    correct += double{results[i + 2]};
  }
  return {correct / predictions, loss_sum / predictions};
}

namespace {

constexpr int64_t most_steps = std::numeric_limits<int32_t>::max();  // that the device's counter holds
constexpr const char* best_name = "progress.best";                   // in a state
constexpr int64_t most_skipped = 20;                                 // in a row, once the scale is at its smallest

OptimizerConfig with_total_steps(OptimizerConfig config, int64_t steps, int64_t epochs) {
  if (epochs > most_steps / std::max<int64_t>(steps, 1)) {
    fail(ExitCode::usage,
         "{} epochs of {} steps are more than {} steps; train for fewer epochs, or with a larger batch", epochs, steps,
         most_steps);
  }
  config.schedule.total_steps = static_cast<int32_t>(steps * epochs);
  return config;
}

GradScalerConfig scaling_of(const TrainConfig& config) {
  GradScalerConfig scaling = config.scaler;
  scaling.enabled = config.precision == Precision::f16;
  return scaling;
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

// A run: its place (epoch and step), what it needs for a step, and its results so far.
class Run {
 public:
  Run(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test, const TrainConfig& config,
      const TrainHooks& hooks);
  TrainResult train();

 private:
  void train_to_the_end();
  void abandon_sums() {
    if (RankSums* sums = config_.sum.sums()) sums->abandon();
  }
  void compare_weights();
  void begin_epoch();
  bool steps();
  bool fits_group() const;
  void run_group();
  Batch run_step();
  void look_once(const Batch& batch);
  std::vector<Batch> next_batches();
  void read_losses(const Batch& last);
  void check_skipped(const Batch& last);
  std::string first_bad_tensor(const Batch& last);
  void read_scales();
  void end_epoch();
  EpochResult evaluated_epoch();
  void check_finite(const Evaluation& evaluation, const char* what, BatchSource& source);
  bool must_validate() const;
  void validate();
  const Validation* best() const;
  void keep_best();
  std::string reason_to_end() const;
  void save();
  TrainingState state();
  void restore(const TrainingState& state);

  Module& model_;
  ParameterArena& arena_;
  BatchSource &training_, &test_;
  const TrainConfig& config_;
  const TrainHooks& hooks_;
  const int64_t batches_, steps_;  // of an epoch
  const std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  const ResidentSet* const set_;
  // Where they are does not change from epoch to epoch: recorded steps write there.
  DeviceLog loss_log_, scales_;
  StepLogs logs_;
  std::unique_ptr<TrainStep> one_step_;
  RankStep* ranks_ = nullptr;  // one_step_, if gradients meet in a tree or among ranks
  std::optional<CapturedStep> captured_;
  std::optional<StepPhases> phases_;  // if a hook looks into a step
  TrainResult result_;
  int64_t epoch_ = 1;     // from 1
  int64_t step_ = 0;      // steps of it that are done
  int64_t position_ = 0;  // samples of it that are done
  std::optional<Losses> losses_;
  bool has_looked_ = false;  // with before_first_step
  bool stopped_ = false;     // by should_stop
  StepShare share_;          // of the step that runs
  bool time_is_up_ = false;
  Tensor best_;  // the weights of the best validation so far, as the arena's values; undefined: none is to be kept
  struct {
    int64_t steps = 0;     // taken since the last look at the scaler
    int64_t skipped = 0;   // until then
    int64_t in_a_row = 0;  // skipped, up to then
  } skips_;
};

Run::Run(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test, const TrainConfig& config,
         const TrainHooks& hooks)
    : model_(model),
      arena_(arena),
      training_(training),
      test_(test),
      config_(config),
      hooks_(hooks),
      batches_(training.batches_per_epoch()),
      steps_((batches_ + config.accumulate - 1) / config.accumulate),
      optimizer_(make_optimizer(arena, with_total_steps(config.optimizer, steps_, config.epochs))),
      scaler_(scaling_of(config), config.device),
      set_(resident_set(training, config)),
      loss_log_(batches_, config.device),
      scales_(scaler_.config().enabled ? steps_ : 0, config.device),
      logs_{loss_log_.tensor(), scaler_.config().enabled ? scales_.tensor() : Tensor()} {
  ambient().training = true;
  ambient().fuse = config.fuse;
  ambient().seed = config.seed;
  ambient().step = optimizer_->step_counter();
  ambient().micro_step = 0;
  const PixelScale scale = training.pixel_scale();
  if (config.sum.tree || config.sum.exchange) {
    auto step = std::make_unique<RankStep>(model, arena, *optimizer_, scaler_, scale, config, hooks.is_interrupted);
    ranks_ = step.get();
    one_step_ = std::move(step);
  } else {
    one_step_ = std::make_unique<TrainStep>(model, arena, *optimizer_, scaler_, scale, config, hooks.is_interrupted);
  }
  if (hooks.on_loss || hooks.on_gradients) {
    phases_.emplace([this](std::string_view phase, const char*) {
      if (phase == "backward" && hooks_.on_loss) hooks_.on_loss(one_step_->losses().back());
      if (phase == "update" && hooks_.on_gradients) hooks_.on_gradients(scaler_);
    });
  }
  if (config.graph) captured_.emplace(*one_step_, arena, *optimizer_, config);
  begin_epoch();
  if (hooks.resume_from) restore(*hooks.resume_from);
}

TrainResult Run::train() {
  try {
    train_to_the_end();
  } catch (const Interrupted&) {
    abandon_sums();
    result_.interrupted = true;
    if (hooks_.on_state) save();
  } catch (...) {
    abandon_sums();
    throw;
  }
  result_.steps = optimizer_->steps();
  result_.skipped_steps = scaler_.skipped();
  result_.loss_scale = scaler_.scale();
  // What was evaluated is what the caller gets.
  if (optimizer_->average().defined()) arena_.values.copy_from(optimizer_->average());
  if (!result_.interrupted && !stopped_) keep_best();
  return std::move(result_);
}

// Replicas that have drifted apart would go on, and nothing else would show it.
void Run::compare_weights() {
  Exchange* const ranks = config_.sum.exchange;
  if (!ranks) return;
  const Tensor values = arena_.values.to(Device::cpu);
  const uint32_t sum = crc32c(values.raw_data(), static_cast<size_t>(values.bytes()));
  std::vector<float> sums(2 * static_cast<size_t>(ranks->size()));  // of each rank: both halves, as integers
  const size_t own = 2 * static_cast<size_t>(ranks->rank());
  sums[own] = static_cast<float>(sum >> 16);
  sums[own + 1] = static_cast<float>(sum & 0xffff);
  if (!ranks->gather(sums, hooks_.is_interrupted)) throw Interrupted();
  for (size_t i = 2; i < sums.size(); i += 2) {
    if (sums[i] == sums[0] && sums[i + 1] == sums[1]) continue;
    fail(ExitCode::rank,
         "rank {}: its weights after step {} of epoch {} are not those of rank 0; use the same program and kind of CPU "
         "for all ranks",
         i / 2, step_, epoch_);
  }
}

// One turn is what follows a step, then the next step. So a run that was interrupted in a validation, or in the
// evaluation at the end of an epoch, resumes with it.
void Run::train_to_the_end() {
  compare_weights();
  for (bool wants_state = false; !stopped_; wants_state = steps()) {
    if (must_validate()) validate();
    if (step_ == steps_) end_epoch();
    if (epoch_ > config_.epochs) break;
    result_.ended_early = reason_to_end();
    if (!result_.ended_early.empty()) break;
    if (wants_state) save();
  }
  read_scales();
  if (stopped_) return;
  if (hooks_.on_state) save();
  // After the save: a run that is resumed with more patience goes on as if it had not stopped here.
  if (step_ > 0) result_.epochs.push_back(evaluated_epoch());
}

void Run::begin_epoch() {
  step_ = position_ = 0;
  losses_.emplace(loss_log_);
  scales_.restart();
}

// This rank's batches of the step, and the samples of each one of all ranks.
std::vector<Batch> Run::next_batches() {
  const StepPart part("wait", result_.parts.wait);
  std::vector<Batch> batches;
  share_.sizes.clear();
  // The last step of an epoch gets the remaining batches.
  const int64_t done = step_ * config_.accumulate;
  const int64_t leaves = std::min(batches_ - done, config_.accumulate);
  LeafRange own = {0, leaves};
  if (const Exchange* ranks = config_.sum.exchange) {
    own = leaves_of(leaves, ranks->size(), ranks->rank());
    for (int64_t i = done; i < done + leaves; ++i) {
      share_.sizes.push_back(std::min(training_.batch(), training_.samples() - i * training_.batch()));
    }
  }
  share_.first = own.begin;
  for (int64_t i = own.begin; i < own.end; ++i) {
    if (hooks_.is_interrupted && hooks_.is_interrupted()) throw Interrupted();
    batches.push_back(training_.next());
    if (!config_.sum.exchange) share_.sizes.push_back(batches.back().labels.size());
  }
  return batches;
}

// One step, or a group of them in one graph. Returns whether the state after it is wanted.
bool Run::steps() {
  const Clock::time_point start = Clock::now();
  const Range range("step", step_ + 1);
  const int64_t first = step_ + 1;
  Batch last;
  if (fits_group()) {
    run_group();
  } else {
    last = run_step();
  }
  skips_.steps += step_ - first + 1;
  if (config_.sum.exchange || losses_->is_due() || step_ == steps_) read_losses(last);  // all ranks in the same step
  bool wants_state = false;
  for (int64_t done = first; done <= step_; ++done) {
    const Progress progress{epoch_, done, steps_, losses_->mean(), result_.seconds + seconds_since(start)};
    if (hooks_.on_step) hooks_.on_step(progress);
    wants_state = (hooks_.wants_state && hooks_.wants_state(progress)) || wants_state;
  }
  stopped_ = hooks_.should_stop && hooks_.should_stop();
  result_.seconds += seconds_since(start);
  return wants_state;
}

// Whole batches only, and no validation may fall between two of the steps.
bool Run::fits_group() const {
  return set_ && (step_ + config_.graph_steps) * set_->batch <= training_.samples() &&
         (!config_.validation || config_.validate_every.steps == 0);
}

void Run::run_group() {
  if (hooks_.is_interrupted && hooks_.is_interrupted()) throw Interrupted();
  const int64_t count = config_.graph_steps, samples = count * set_->batch;
  captured_->begin_group(*set_, training_.skip(count), loss_log_.size(), result_.parts);
  if (!has_looked_ && hooks_.before_first_step) {
    const Autocast amp(config_.precision, arena_);
    look_once(captured_->gather(*set_, 0));
  }
  captured_->run_group(*set_, count, logs_, result_.parts);
  losses_->added(count, set_->batch);
  if (scaler_.config().enabled) scales_.added(count);
  step_ += count;
  position_ += samples;
  result_.samples += samples;
}

// Returns the last of its batches.
Batch Run::run_step() {
  std::vector<Batch> micro_batches = next_batches();
  {
    const StepPart part("upload", result_.parts.upload);
    for (Batch& batch : micro_batches) batch = on_device(batch, config_.device);
  }
  if (!micro_batches.empty()) look_once(micro_batches[0]);
  share_.last = config_.max_seconds > 0 && result_.seconds >= config_.max_seconds;
  if (ranks_) ranks_->announce(share_);
  const auto wait_for_ranks = [this] {
    if (ranks_) ranks_->wait_for_all();
  };
  const std::vector<Tensor>& losses = captured_
                                          ? captured_->run(micro_batches, share_.sizes, wait_for_ranks, result_.parts)
                                          : one_step_->run(micro_batches, result_.parts);
  time_is_up_ = ranks_ ? ranks_->settle(result_.parts) : share_.last;
  ++step_;
  for (size_t i = 0; i < share_.sizes.size(); ++i) {
    losses_->add(losses[i], share_.sizes[i]);
    position_ += share_.sizes[i];
    result_.samples += share_.sizes[i];
  }
  if (scaler_.config().enabled) scales_.add(scaler_.state().slice(0, {}));
  return micro_batches.empty() ? Batch{} : micro_batches.back();
}

void Run::look_once(const Batch& batch) {
  if (!hooks_.before_first_step || has_looked_) return;
  has_looked_ = true;
  const Autocast amp(config_.precision, arena_);
  const auto [input, labels] =
      prepare(model_.input_kind(), batch, training_.pixel_scale(), config_.augment, config_.seed);
  hooks_.before_first_step(input, labels);
}

void Run::read_losses(const Batch& last) {
  const int64_t bad_batch = losses_->read();
  if (bad_batch == 0) return check_skipped(last);
  fail(ExitCode::numeric,
       "the loss became {} at step {} of epoch {}; first tensor that is not finite: {}; try a smaller learning rate "
       "than {}",
       std::isnan(losses_->sum()) ? "nan" : "inf", (bad_batch + config_.accumulate - 1) / config_.accumulate, epoch_,
       first_bad_tensor(last), config_.optimizer.learning_rate);
}

// Skipping is how a loss scale that is too large gets smaller. Once it cannot, nothing is learnt any more.
void Run::check_skipped(const Batch& last) {
  const OptimizerConfig& rule = config_.optimizer;
  const bool skips_outliers = rule.outlier > 0 || rule.loss_outlier > 0;
  if (!scaler_.config().enabled && rule.clip <= 0 && !skips_outliers) return;
  const bool can_fall = scaler_.config().enabled && scaler_.scale() > scaler_.config().smallest;
  const int64_t skipped = scaler_.skipped(), steps = std::exchange(skips_.steps, 0);
  const bool all = skipped - std::exchange(skips_.skipped, skipped) == steps;
  skips_.in_a_row = all && !can_fall ? skips_.in_a_row + steps : 0;
  if (skips_.in_a_row < most_skipped) return;
  fail(ExitCode::numeric,
       "{} steps in a row, up to step {} of epoch {}, were skipped because a gradient was not finite{}; first tensor "
       "that is not finite: {}; try a smaller learning rate than {}",
       skips_.in_a_row, step_, epoch_, skips_outliers ? ", or the step an outlier" : "", first_bad_tensor(last),
       rule.learning_rate);
}

std::string Run::first_bad_tensor(const Batch& last) {
  const Autocast amp(config_.precision, arena_);
  if (!last.images.defined()) return first_not_finite(arena_, model_, {});
  const Batch batch = on_device(last, config_.device);
  return first_not_finite(
      arena_, model_,
      prepare(model_.input_kind(), batch, training_.pixel_scale(), config_.augment, config_.seed).input);
}

void Run::read_scales() {
  for (const float scale : scales_.read()) result_.loss_scales.push_back(scale);
}

void Run::end_epoch() {
  compare_weights();
  result_.epochs.push_back(evaluated_epoch());
  read_scales();
  if (hooks_.on_epoch) hooks_.on_epoch(epoch_, result_.epochs.back());
  ++epoch_;
  begin_epoch();
}

EpochResult Run::evaluated_epoch() {
  const Range range("evaluate");
  const WithAverage averaged(arena_, *optimizer_);
  const Autocast amp(config_.precision, arena_);
  EpochResult result{losses_->mean(), result_.seconds, {}};
  for (const EpochResult& before : result_.epochs) result.seconds -= before.seconds;
  const Clock::time_point start = Clock::now();
  result.test = evaluate(model_, test_, config_.device, hooks_.is_interrupted, config_.sum.exchange);
  result.evaluation_seconds = seconds_since(start);
  check_finite(result.test, "test", test_);
  return result;
}

// An epoch's last update affects the loss of an evaluation first.
void Run::check_finite(const Evaluation& evaluation, const char* what, BatchSource& source) {
  if (std::isfinite(evaluation.loss)) return;
  fail(ExitCode::numeric,
       "the {} loss became {} after step {} of epoch {}; first tensor that is not finite: {}; try a smaller learning "
       "rate "
       "than {}",
       what, std::isnan(evaluation.loss) ? "nan" : "inf", step_, epoch_,
       first_bad_tensor(config_.sum.exchange ? Batch{} : source.next()), config_.optimizer.learning_rate);
}

bool Run::must_validate() const {
  if (!config_.validation || !is_due(config_.validate_every, epoch_, step_, steps_)) return false;
  if (result_.validations.empty()) return true;
  const Validation& last = result_.validations.back();
  return last.epoch != epoch_ || last.step != step_;
}

void Run::validate() {
  const Range range("validate");
  const WithAverage averaged(arena_, *optimizer_);
  const Autocast amp(config_.precision, arena_);
  const Clock::time_point start = Clock::now();
  const Evaluation result =
      evaluate(model_, *config_.validation, config_.device, hooks_.is_interrupted, config_.sum.exchange);
  check_finite(result, "validation", *config_.validation);
  const Validation* const before = best();
  if (config_.patience > 0 && (!before || result.accuracy > before->result.accuracy)) {
    if (!best_.defined()) best_ = Tensor::empty(arena_.values.shape(), DType::f32, config_.device);
    best_.copy_from(arena_.values);
  }
  result_.validations.push_back({epoch_, step_, result, seconds_since(start)});
  if (hooks_.on_validation) hooks_.on_validation(result_.validations.back());
}

// The first of those of greatest accuracy; nullptr if there was none.
const Validation* Run::best() const {
  const auto& all = result_.validations;
  const auto best = std::ranges::max_element(all, {}, [](const Validation& v) { return v.result.accuracy; });
  return best == all.end() ? nullptr : &*best;
}

// Later weights than those of the best validation have only overfitted, or patience would not be asked for.
void Run::keep_best() {
  const Validation* const kept = best();
  if (!best_.defined() || kept == &result_.validations.back()) return;
  arena_.values.copy_from(best_);
  const Autocast amp(config_.precision, arena_);
  result_.epochs.back().test = evaluate(model_, test_, config_.device, {}, config_.sum.exchange);
  result_.kept = fmt::format("step {} of epoch {}, whose accuracy of {:.2f} % in validation is the best", kept->step,
                             kept->epoch, kept->result.accuracy * 100);
}

std::string Run::reason_to_end() const {
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

void Run::save() {
  const Clock::time_point start = Clock::now();
  {
    const StepPart part("save", result_.parts.save);
    hooks_.on_state(state());
  }
  result_.seconds += seconds_since(start);
}

// The seconds, in the order of the row "progress.seconds".
auto seconds_of(TrainResult& result) {
  StepSeconds& parts = result.parts;
  return std::array<double*, 8>{&result.seconds, &parts.wait,   &parts.upload, &parts.forward,
                                &parts.backward, &parts.update, &parts.replay, &parts.save};
}

TrainingState Run::state() {
  read_losses({});
  read_scales();
  TrainingState state = copy_state(arena_, *optimizer_, scaler_);
  if (const std::string bad = first_not_finite(state, arena_); !bad.empty()) {
    fail(ExitCode::numeric, "after step {} of epoch {}, {} is not finite; try a smaller learning rate than {}", step_,
         epoch_, with_layer(bad), config_.optimizer.learning_rate);
  }
  state.values = {{"epoch", std::to_string(epoch_)},
                  {"step", std::to_string(step_)},
                  {"position", std::to_string(position_)},
                  {"samples", std::to_string(result_.samples)}};
  Rows seconds(1), epochs, validations, scales;
  for (const double* part : seconds_of(result_)) seconds[0].push_back(*part);
  for (const EpochResult& e : result_.epochs) {
    epochs.push_back({e.training_loss, e.seconds, e.test.accuracy, e.test.loss, e.evaluation_seconds});
  }
  for (const Validation& v : result_.validations) {
    validations.push_back(
        {static_cast<double>(v.epoch), static_cast<double>(v.step), v.result.accuracy, v.result.loss, v.seconds});
  }
  for (const float scale : result_.loss_scales) scales.push_back({scale});
  state.put_rows("progress.seconds", seconds, seconds[0].size());
  state.put_rows("progress.losses", {{losses_->sum(), static_cast<double>(losses_->samples())}}, 2);
  state.put_rows("progress.epochs", epochs, 5);
  state.put_rows("progress.validations", validations, 5);
  state.put_rows("progress.loss_scales", scales, 1);
  if (best_.defined()) state.tensors[best_name] = best_.clone().to(Device::cpu);
  return state;
}

void Run::restore(const TrainingState& state) {
  restore_state(state, arena_, *optimizer_, scaler_);
  epoch_ = state.number("epoch");
  step_ = state.number("step");
  position_ = state.number("position");
  result_.samples = state.number("samples");
  if (epoch_ < 1 || epoch_ > INT32_MAX || step_ > steps_ || position_ > training_.samples()) {
    fail(ExitCode::checkpoint, "checkpoint: step {} of epoch {}, sample {}, expected at most {} steps and {} samples",
         step_, epoch_, position_, steps_, training_.samples());
  }
  const auto one_row = [&](const char* name, size_t columns) {
    const Rows rows = state.rows(name, columns);
    if (rows.size() != 1) fail(ExitCode::checkpoint, "checkpoint: {} has {} rows, expected 1", name, rows.size());
    return rows[0];
  };
  const auto seconds = seconds_of(result_);
  const std::vector<double> saved_seconds = one_row("progress.seconds", seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) *seconds[i] = saved_seconds[i];
  const std::vector<double> losses = one_row("progress.losses", 2);
  losses_->restore(std::min(step_ * config_.accumulate, batches_), losses[0],
                   TrainingState::count("progress.losses", losses[1]));
  for (const auto& e : state.rows("progress.epochs", 5)) result_.epochs.push_back({e[0], e[1], {e[2], e[3]}, e[4]});
  const char* validations = "progress.validations";
  for (const auto& v : state.rows(validations, 5)) {
    const int64_t epoch = TrainingState::count(validations, v[0]), step = TrainingState::count(validations, v[1]);
    result_.validations.push_back({epoch, step, {v[2], v[3]}, v[4]});
  }
  for (const auto& scale : state.rows("progress.loss_scales", 1)) {
    result_.loss_scales.push_back(static_cast<float>(scale[0]));
  }
  skips_.skipped = scaler_.skipped();
  if (const auto best = state.tensors.find(best_name); best != state.tensors.end() && config_.patience > 0) {
    if (best->second.shape() != arena_.values.shape() || best->second.dtype() != DType::f32) {
      fail(ExitCode::checkpoint, "checkpoint: {} is {} {}, expected f32 {}", best_name, name(best->second.dtype()),
           best->second.shape(), arena_.values.shape());
    }
    best_ = best->second.to(config_.device);
  }
}

}  // namespace

TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks) {
  check(!config.graph || (!hooks.on_gradients && !hooks.on_loss),
        "train: on_gradients and on_loss cannot be called within a graph; switch one off");
  check(!config.sum.exchange ||
            (config.graph_steps == 1 && !hooks.should_stop && config.accumulate >= config.sum.exchange->size()),
        "train: ranks need a micro-batch each, and neither a graph of several steps nor should_stop; use a larger "
        "accumulate");
  const AmbientScope scope;
  return Run(model, arena, training, test, config, hooks).train();
}

}  // namespace hs
