// Resuming a training run with the same bits: from every step and every interruption, under every technique; and the
// proof that each saved field is needed.
#include <fmt/format.h>

#include <limits>

#include "engine/parallel.h"
#include "engine/slots.h"
#include "kernels/optimizer/steps.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace {

using namespace hs;
using namespace hs::test;

// A row of the matrix. Every pair of values of any two columns is in one of the rows.
struct Case {
  int threads;
  int64_t workers;
  bool checkpoint;
  int64_t accumulate;  // 22 samples in batches of 4: the last step of an epoch is short, and its last batch too
  Precision precision;
  double dropout;
  const char* optimizer;
};
constexpr Case cases[] = {
    {1, 0, false, 1, Precision::f32, 0, "sgd"},
    {2, 1, true, 4, Precision::f16, 0.3, "sgd"},
    {1, 3, true, 1, Precision::bf16, 0.3, "adam"},
    {2, 0, false, 4, Precision::bf16, 0, "adamw"},
    {1, 1, false, 4, Precision::f32, 0.3, "adamw"},
    {2, 3, false, 4, Precision::f16, 0, "adam"},
    {1, 0, true, 1, Precision::f16, 0.3, "adamw"},
    {2, 1, false, 1, Precision::bf16, 0.3, "sgd"},
    {2, 3, true, 1, Precision::f32, 0, "adamw"},
    {2, 0, true, 4, Precision::f32, 0.3, "adam"},
    {1, 1, false, 4, Precision::bf16, 0.3, "lamb"},
    {2, 0, true, 1, Precision::f16, 0, "lars"},
    {1, 3, false, 4, Precision::f32, 0, "nesterov"},
    {1, 0, true, 1, Precision::f16, 0.3, "muon"},
    {2, 1, false, 1, Precision::bf16, 0.3, "schedule-free"},
};

TinyRun run_of(const Case& c) {
  TinyRun run;
  run.workers = c.workers;
  run.checkpoint = c.checkpoint;
  run.dropout = c.dropout;
  run.config.accumulate = c.accumulate;
  run.config.precision = c.precision;
  run.config.optimizer.name = c.optimizer;
  if (run.config.optimizer.name == "schedule-free") run.config.optimizer.schedule.kind = ScheduleKind::constant;
  return run;
}

// Switches on whatever makes the optimizer remember more.
void remember_more(OptimizerConfig& config) {
  config.average_decay = 0.9f;
  config.outlier = config.loss_outlier = 1.05f;
}

struct WithThreads {
  explicit WithThreads(int wanted) { set_threads(wanted); }
  ~WithThreads() { set_threads(0); }
};

TEST_CASE("a run resumes from every step with the same bits, for any number of threads and workers") {
  for (const Case& c : cases) {
    const WithThreads threads(c.threads);
    INFO(name(c.precision), " ", c.optimizer, ", accumulate ", c.accumulate, ", threads ", c.threads);
    TinyRun run = run_of(c);
    if (c.optimizer == std::string("lamb")) remember_more(run.config.optimizer);
    const TinyRun::Outcome straight = run.train(nullptr, true);
    CHECK(straight.states.size() == (c.accumulate == 1 ? 18 : 6));
    CHECK((straight.result.skipped_steps > 0) == (c.precision == Precision::f16));
    CHECK(straight.result.steps > 0);
    CHECK(difference(run.train().states.back(), straight.states.back()) == "");
    // Continued elsewhere: other threads and workers.
    set_threads(3 - c.threads);
    run.workers = c.workers == 0 ? 2 : 0;
    for (const TrainingState& state : straight.states) check_resumes(run, state, straight);
  }
}

TEST_CASE("a run that is interrupted anywhere resumes with the same bits") {
  for (const Case& c : {cases[1], cases[4]}) {
    INFO(name(c.precision));
    const TinyRun run = run_of(c);
    const TinyRun::Outcome straight = run.train();
    // 3 epochs of 6 batches, asked before each is loaded and computed; 3 tests of 2 batches, and 3 validations of 2.
    CHECK(check_every_interruption(run, straight) == 3 * 6 * 2 + 3 * 2 + 3 * 2);
  }
}

TEST_CASE("a finished run resumes to its own end, and to a later one if the schedule allows it") {
  TinyRun run;
  run.config.optimizer.schedule = {};
  const TinyRun::Outcome straight = run.train();
  check_resumes(run, straight.states.back(), straight);
  run.config.epochs = 5;
  check_resumes(run, straight.states.back(), run.train());
}

// Whether the resumed run is refused, or ends with other bits or counts.
bool is_noticed(const TinyRun& run, const TrainingState& from, const TinyRun::Outcome& straight) {
  try {
    return difference(run.train(&from).states.back(), straight.states.back()) != "";
  } catch (const Error& error) {
    CHECK((error.code() == ExitCode::checkpoint || error.code() == ExitCode::numeric));
    return true;
  }
}

TEST_CASE("the usual loss begins with the mean over all micro-batches of the first step") {
  TinyRun run = run_of(cases[0]);
  run.config.accumulate = 3;
  run.config.optimizer.loss_outlier = 1e6f;
  const TrainingState first = run.train(nullptr, true).states.front();
  const std::vector<double> losses = first.rows("progress.losses", 2)[0];  // their sum, and the samples
  CHECK(first.tensors.at("optimizer.usual").to_vector<float>()[usual_loss] ==
        doctest::Approx(losses[0] / losses[1]).epsilon(1e-5));
}

TEST_CASE("no saved field is redundant: without it, or with zeros in it, the resumed run is refused or differs") {
  TinyRun run = run_of(cases[6]);
  run.config.optimizer.name = "adam";
  bool more = false;
  SUBCASE("") {}
  SUBCASE("with an average and outliers") { more = true; }
  if (more) remember_more(run.config.optimizer);
  const TinyRun::Outcome straight = run.train(nullptr, true);
  // In the second epoch, where steps have been counted since the loss scale last changed.
  const auto counts = [](const TrainingState& state) { return state.tensors.at("scaler").data<float>()[1] > 0; };
  const TrainingState& middle = *std::find_if(straight.states.begin() + 7, straight.states.begin() + 11, counts);
  REQUIRE(counts(middle));
  REQUIRE_FALSE(is_noticed(run, middle, straight));
  CHECK(middle.tensors.size() == (more ? 2 * 8 + 2 * 6 + 3 + 5 : 8 + 2 * 6 + 2 + 5));
  CHECK(middle.values.size() == 4);
  for (const auto& [name, tensor] : middle.tensors) {
    CAPTURE(name);
    TrainingState damaged = middle;
    damaged.tensors.erase(name);
    CHECK_THROWS_WITH_AS(run.train(&damaged), doctest::Contains(name.c_str()), Error);
    if (name.starts_with("progress.")) {
      const auto& [number, reason] =
          name == "progress.losses" ? std::pair{1e300, "not a count"} : std::pair{-1.0, "below 0"};
      damaged.tensors[name] = tensor.clone();
      damaged.tensors[name].mutable_data<double>()[tensor.shape()[1] - 1] = number;
      CHECK_THROWS_WITH_AS(run.train(&damaged), doctest::Contains(reason), Error);
    }
    if (name == "progress.seconds") continue;  // times are never the same twice; see below
    // The scaler's three numbers are three fields: the scale, the growth tracker, the steps skipped.
    const int64_t fields =
        name == "scaler" || name == "progress.losses" || name == "optimizer.usual" ? tensor.size() : 1;
    for (int64_t field = 0; field < fields; ++field) {
      CAPTURE(field);
      const int64_t size = tensor.size() / fields;
      const size_t bytes = tensor.bytes() / static_cast<size_t>(fields);
      damaged.tensors[name] = tensor.clone();
      REQUIRE(size > 0);
      std::memset(static_cast<char*>(damaged.tensors[name].mutable_raw_data()) + static_cast<size_t>(field) * bytes, 0,
                  bytes);
      CHECK(is_noticed(run, damaged, straight));
    }
  }
  TrainingState longer = middle;
  longer.put_rows("progress.seconds", {{1000, 1, 2, 3, 4, 5, 6, 7}}, 8);
  longer.put_rows("progress.exchange", {{8.5}}, 1);
  const TinyRun::Outcome late = run.train(&longer);
  CHECK(late.result.seconds > 1000);
  const StepSeconds& parts = late.result.parts;
  const double found[] = {parts.wait,   parts.upload, parts.forward, parts.backward,
                          parts.update, parts.replay, parts.save,    parts.exchange};
  for (int i = 0; i < 8; ++i) CHECK(std::floor(found[i]) == i + 1);
  CHECK(late.states.back().rows("progress.exchange", 1) == Rows{{8.5}});
  for (const auto& [name, value] : middle.values) {
    CAPTURE(name);
    TrainingState damaged = middle;
    damaged.values.erase(name);
    CHECK_THROWS_WITH_AS(run.train(&damaged), doctest::Contains(name.c_str()), Error);
    for (const int64_t change : {-1, 1}) {
      damaged.values[name] = std::to_string(middle.number(name) + change);
      CHECK(is_noticed(run, damaged, straight));
    }
    for (const char* word : {"", "-1", "1x", "9223372036854775807", "99999999999999999999"}) {
      damaged.values[name] = word;
      CHECK_THROWS_WITH_AS(run.train(&damaged), doctest::Contains("is not a count"), Error);
    }
  }
}

TEST_CASE("what must be as it was: with another seed, order, dropout or optimizer the end differs, or it is refused") {
  const TinyRun run;
  const TinyRun::Outcome straight = run.train(nullptr, true);
  const TrainingState& middle = straight.states[7];
  const auto differs = [&](const std::function<void(TinyRun&)>& change) {
    TinyRun other;
    change(other);
    return is_noticed(other, middle, straight);
  };
  CHECK_FALSE(differs([](TinyRun&) {}));
  CHECK(differs([](TinyRun& other) { other.seed = 2; }));
  CHECK(differs([](TinyRun& other) { other.shuffle = false; }));
  CHECK(differs([](TinyRun& other) { other.dropout = 0.2; }));
  CHECK(differs([](TinyRun& other) { other.config.optimizer.name = "sgd"; }));
  CHECK(differs(
      [](TinyRun& other) { other.config.optimizer.name = "adamw", other.config.optimizer.weight_decay = 0.1f; }));
  CHECK(differs([](TinyRun& other) { other.config.epochs = 4; }));  // the cosine is longer
  CHECK(differs([](TinyRun& other) { other.config.augment = {}; }));
}

TEST_CASE("a state of another model or optimizer is refused by name, and nothing of it is used") {
  const TinyRun run;
  const TrainingState good = run.train().states.back();
  const auto refusal = [&](const std::function<void(TrainingState&)>& change) {
    TrainingState state = good;
    change(state);
    TinyModel model(1, 0);
    ParameterArena arena(model);
    const auto optimizer = make_optimizer(arena, run.config.optimizer);
    GradScaler scaler({}, Device::cpu);
    const std::vector<float> before = arena.values.to_vector<float>();
    std::string message;
    try {
      restore_state(state, arena, *optimizer, scaler);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::checkpoint);
      message = error.what();
      CHECK(arena.values.to_vector<float>() == before);
    }
    return message;
  };
  CHECK(refusal([](TrainingState&) {}) == "");
  const std::string start = "checkpoint: made for another model or optimizer: ";
  CHECK(refusal([](TrainingState& s) { s.tensors.erase("linear.bias"); }) == start + "linear.bias is missing");
  CHECK(refusal([](TrainingState& s) { s.tensors["linear.bias"] = Tensor::zeros({11}, DType::f32); }) ==
        start + "linear.bias is f32 (11), expected f32 (10)");
  CHECK(refusal([](TrainingState& s) { s.tensors["linear.bias"] = Tensor::zeros({10}, DType::i32); }) ==
        start + "linear.bias is i32 (10), expected f32 (10)");
  CHECK(refusal([](TrainingState& s) { s.tensors["more"] = Tensor::zeros({}, DType::f32); }) ==
        start + "more is unknown here");
  CHECK(refusal([](TrainingState& s) { s.tensors.clear(); }) ==
        start + "conv.bias is missing, conv.weight is missing, linear.bias is missing, and 19 more differences");
}

TEST_CASE(
    "patience ends a run after so many validations without a better accuracy, and a resumed one at the same place") {
  TinyRun run;
  run.config.epochs = 40;
  run.config.patience = 4;
  const TinyRun::Outcome straight = run.train(nullptr, true);
  const auto& all = straight.result.validations;
  CAPTURE(straight.result.ended_early);
  REQUIRE(straight.result.ended_early.starts_with("4 validations without a better accuracy than "));
  size_t best = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].result.accuracy > all[best].result.accuracy) best = i;
    CHECK((i - best < 4 || i + 1 == all.size()));
    CHECK(((all[i].epoch - 1) * 6 + all[i].step) == 2 * static_cast<int64_t>(i + 1));
  }
  CHECK(all.size() - 1 - best == 4);
  // The weights that are kept are the best ones, whose test is the last; so it is after a resume, and without an early
  // end.
  const auto kept_best = [&](const TrainResult& result) {  // the test set is the one that is validated on
    CHECK(result.kept.starts_with(fmt::format("step {} of epoch {}, ", all[best].step, all[best].epoch)));
    CHECK(result.epochs.back().test.loss == all[best].result.loss);
  };
  kept_best(straight.result);
  for (const size_t i : {size_t{3}, straight.states.size() / 2, straight.states.size() - 1}) {
    const TinyRun::Outcome resumed = run.train(&straight.states[i]);
    CHECK(resumed.result.ended_early == straight.result.ended_early);
    kept_best(resumed.result);
    CHECK(difference(resumed.states.back(), straight.states.back()) == "");
  }
  // With more patience the run that had ended goes on as if it had not.
  run.config.patience = 8;
  CHECK(difference(run.train(&straight.states.back()).states.back(), run.train().states.back()) == "");
}

TEST_CASE("a limit of time ends a run with an evaluation of what it has learnt") {
  TinyRun run;
  run.config.max_seconds = 1e-9;
  const TinyRun::Outcome outcome = run.train();
  CHECK(outcome.result.ended_early.find(" s of training") != std::string::npos);
  CHECK(outcome.result.steps == 1);
  REQUIRE(outcome.result.epochs.size() == 1);
  TinyRun unsaved = run;
  unsaved.saves = false;
  CHECK(unsaved.train().result.epochs[0].training_loss == outcome.result.epochs[0].training_loss);
  run.config.max_seconds = 0;
  check_resumes(run, outcome.states.back(), run.train());
}

// What train() throws when it starts from this state.
std::string numeric_error(const TinyRun& run, const TrainingState& state) {
  return error_of([&] { run.train(&state, true); }, ExitCode::numeric);
}

TEST_CASE("the first tensor that is not finite is named with its layer, and no state with it is handed out") {
  TinyRun run;
  const TrainingState good = run.train(nullptr, true).states[2];
  const auto with = [&](const std::string& name, float value) {
    TrainingState state = good;
    Tensor& tensor = state.tensors[name] = good.tensors.at(name).clone();
    std::fill_n(tensor.mutable_data<float>(), tensor.size(), value);
    return state;
  };
  const auto error_contains = [&](const TrainingState& state, const std::string& part) {
    const std::string message = numeric_error(run, state);
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  error_contains(with("conv.weight", nan),
                 "the loss became nan at step 4 of epoch 1; first tensor that is not finite: "
                 "conv.weight, of layer conv; try a smaller learning rate than 0.01");
  // The step after this one has a finite loss: only the look at what would be saved finds it.
  run.config.optimizer.learning_rate = 0;
  run.config.validate_every = {.epochs = 1};
  error_contains(with("optimizer.square.linear.weight", nan), "after step 4 of epoch 1, ");
  // With a clip of the gradients, whose norm overflows, no weight changes: the loss is infinite from finite weights.
  run.config.optimizer.clip = 1;
  error_contains(with("linear.weight", 3e38f), "first tensor that is not finite: the output of layer linear;");
}

TEST_CASE("20 skipped steps in a row end a run, but only when the loss scale cannot fall any more") {
  TinyRun run;
  run.config.precision = Precision::f16;
  run.config.epochs = 5;
  run.config.scaler.initial = run.config.scaler.smallest = 4294967296.0f;
  CHECK(numeric_error(run, run.train(nullptr, true, [](int64_t asked) { return asked >= 2; }).states[0])
            .find(" steps in a row, up to step ") != std::string::npos);
  run.config.scaler.smallest = 1;
  CHECK(run.train().result.skipped_steps > 0);
}

}  // namespace
