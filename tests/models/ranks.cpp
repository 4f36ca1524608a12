// Training over several ranks, which are threads here: the weights, losses and samples of one process.
#include <chrono>
#include <set>
#include <thread>

#include "data/io/memory_source.h"
#include "data/loader/loader.h"
#include "data/synthetic.h"
#include "engine/autograd.h"
#include "engine/observe.h"
#include "engine/ranks/exchange.h"
#include "kernels/linear/linear.h"
#include "models/models.h"
#include "models/training/train.h"
#include "tests/support/loopback.h"
#include "tests/support/rule_text.h"
#include "tests/support/tiny_run.h"

namespace hs::test {
namespace {

struct Setting {
  Precision precision = Precision::f32;
  int64_t samples = 50, batch = 4, accumulate = 5;
  bool checkpointing = false, tree = true, text = false;
  int64_t bucket_bytes = 1;  // each parameter for itself
};

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;  // of training and test, epoch by epoch
  std::vector<int32_t> samples;
  int64_t steps = 0, skipped = 0;
  bool operator==(const Outcome& other) const {
    return std::ranges::equal(weights, other.weights) && losses == other.losses && steps == other.steps &&
           skipped == other.skipped;
  }
};

// The rank is a thread, which has its own ambient state. `change`: of the model's weights before training.
Outcome train_rank(const Setting& setting, Exchange* exchange, const TrainHooks& hooks = {},
                   const std::function<void(ParameterArena&)>& change = {}) {
  const MemorySource set = setting.text ? rule_text(setting.samples, 8) : synthetic_digits(3, setting.samples),
                     test_set = setting.text ? rule_text(5, 8, 1) : synthetic_digits(4, 13);
  const ModelSizes of_text{1, 9, 1, rule_symbols, 1, InputKind::tokens, 16, 2};
  std::unique_ptr<StagedModel> model = std::make_unique<TinyModel>(7, 0.3);
  if (setting.text) model = make_model("char_gpt", 3, of_text);
  ParameterArena arena(*model);
  if (change) change(arena);
  if (setting.checkpointing) model->set_segments({{0, 2}});
  LoaderOptions loading = {.batch = setting.batch, .shuffle = true, .seed = 5, .prefetch = 1};
  if (exchange) {
    loading.ranks = exchange->size();
    loading.rank = exchange->rank();
  }
  LoaderOptions evaluating = loading;
  evaluating.shuffle = false;
  loading.group = setting.accumulate;
  NotingLoader training(set, loading);
  Loader test(test_set, evaluating);
  TrainConfig config;
  config.epochs = 2;
  config.optimizer = {.name = "adam", .learning_rate = 1e-2f, .clip = 1};
  config.seed = 9;
  config.precision = setting.precision;
  config.accumulate = setting.accumulate;
  config.augment.shift = setting.text ? 0 : 1;
  config.sum = {.tree = setting.tree, .exchange = exchange, .bucket_bytes = setting.bucket_bytes};
  const TrainResult result = train(*model, arena, training, test, config, hooks);
  Outcome outcome;
  outcome.weights = arena.values.to_vector<float>();
  for (const EpochResult& epoch : result.epochs) {
    outcome.losses.insert(outcome.losses.end(), {epoch.training_loss, epoch.test.loss, epoch.test.accuracy});
  }
  outcome.samples = training.seen;
  outcome.steps = result.steps;
  outcome.skipped = result.skipped_steps;
  CHECK(result.samples == 2 * setting.samples);
  return outcome;
}

void on_ranks(int ranks, int max_delay_us, const std::function<void(Exchange& exchange)>& body) {
  Loopback hub(ranks, max_delay_us);
  test::on_ranks(ranks, [&](int rank) {
    Exchange exchange([&] { return hub.open(rank); }, {.timeout = 20});
    body(exchange);
  });
}

std::vector<Outcome> train_ranks(const Setting& setting, int ranks, int max_delay_us = 0) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  on_ranks(ranks, max_delay_us, [&](Exchange& exchange) {
    outcomes[static_cast<size_t>(exchange.rank())] = train_rank(setting, &exchange);
  });
  return outcomes;
}

}  // namespace

TEST_CASE("any number of ranks gives the weights and losses of one process, bit for bit") {
  const Setting settings[] = {
      {},
      {.accumulate = 6, .bucket_bytes = 1 << 20},  // 13 batches: the last step of an epoch has one
      {.accumulate = 8, .bucket_bytes = 20750},    // the linear layer's and one of conv's
      {.precision = Precision::bf16, .accumulate = 8, .checkpointing = true},
      {.precision = Precision::f16, .samples = 41, .batch = 3, .accumulate = 6},
      {.samples = 9, .batch = 4, .accumulate = 4},  // an epoch of 3 batches
      // Its embedding is written twice in each backward, by the head and by the embedding.
      {.samples = 22, .batch = 2, .accumulate = 4, .text = true}};
  for (const Setting& setting : settings) {
    const Outcome alone = train_rank(setting, nullptr);
    for (const int ranks : {1, 2, 3, 4}) {
      CAPTURE(setting.accumulate);
      CAPTURE(ranks);
      for (const Outcome& outcome : train_ranks(setting, ranks, ranks == 3 ? 200 : 0)) CHECK(outcome == alone);
    }
  }
}

TEST_CASE("the order of sums shows in these weights: without the tree they are others") {
  const Setting fast = {.accumulate = 8, .tree = false};
  const Outcome tree = train_rank({.accumulate = 8}, nullptr);
  CHECK_FALSE(train_rank(fast, nullptr) == tree);
  const std::vector<Outcome> ranks = train_ranks(fast, 3);
  CHECK_FALSE(ranks[0] == tree);
  for (const Outcome& outcome : ranks) CHECK(outcome == ranks[0]);
}

TEST_CASE("a rank that has no batch of an epoch says so") {
  const MemorySource one = synthetic_digits(3, 1);
  Loader none(one, {.batch = 1, .ranks = 2, .rank = 1});
  CHECK_THROWS_WITH_AS(none.next(), "Loader: rank 1 of 2 has none of an epoch's 1 batches", Error);
}

namespace {

// The last weight of the arena, whose bucket is sent first, is used in two places.
class Twice : public Module {
 public:
  Twice() : shared_(uniform_init({4, 4}, 4, 1, 1, 0)), other_(uniform_init({4, 4}, 4, 1, 2, 0)) {
    add_parameter("other", other_, ParameterRole::matrix);
    add_parameter("shared", shared_, ParameterRole::matrix);
  }
  Tensor forward(const Tensor& x) override {
    return linear(slow(linear(linear(x, other_, {}), shared_, {})), shared_, {});
  }

 private:
  // Its backward takes so long that what is sent before it arrives before the next gradient is written.
  static Tensor slow(const Tensor& x) {
    return record("slow", x.clone(), {x}, [](const Tensor& dy) -> Gradients {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return {dy};
    });
  }

  Tensor shared_, other_;
};

}  // namespace

TEST_CASE("a parameter that is used twice is sent when both gradients are in") {
  std::vector<std::vector<float>> results;
  for (const int ranks : {1, 2}) {
    std::vector<float> gradients;
    on_ranks(ranks, 0, [&](Exchange& exchange) {
      Twice model;
      ParameterArena arena(model);
      GradientSum sum(arena, {.tree = true, .exchange = &exchange, .bucket_bytes = 1});
      const LeafRange own = leaves_of(4, exchange.size(), exchange.rank());
      // The second step is the first that sends while backward runs. More of them, should the other thread be slow.
      for (int step = 0; step < 10; ++step) {
        arena.zero_gradients();
        sum.begin(4);
        for (int64_t leaf = own.begin; leaf < own.end; ++leaf) {
          sum.begin_micro_batch();
          const Tensor y = model.forward(uniform_init({2, 4}, 1, 8, static_cast<uint32_t>(leaf + 1), 0));
          sum.backward(leaf + 1 == own.end, [&] { backward(y, y.detach().clone()); });
        }
        CHECK(sum.finish({}));
        if (exchange.rank() != 0) continue;
        const std::vector<float> summed = arena.gradients().to_vector<float>();
        gradients.insert(gradients.end(), summed.begin(), summed.end());
      }
    });
    results.push_back(gradients);
  }
  CHECK(std::ranges::any_of(results[0], [](float value) { return value != 0; }));
  CHECK(results[0] == results[1]);
}

TEST_CASE("weights that differ between ranks are an error that names the rank") {
  std::vector<std::string> messages(3);
  on_ranks(3, 0, [&](Exchange& exchange) {
    try {
      train_rank({}, &exchange, {}, [&](ParameterArena& arena) {
        if (exchange.rank() == 2) arena.values.mutable_data<float>()[3] += 1e-6f;
      });
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::rank);
      messages[static_cast<size_t>(exchange.rank())] = error.what();
    }
  });
  for (const std::string& message : messages) {
    CHECK(message.starts_with("rank 2: its weights after step 0 of epoch 1 are not those of rank 0"));
  }
}

namespace {

// Notes after each rule of backward which trained parameters it has written, by their place in the arena.
struct Order : Observer {
  explicit Order(const ParameterArena& of) : Observer(Event::gradient, Watch::this_thread), arena(of) {}
  void gradient(const char*, const Tensor&) override { note(); }
  void note() {
    std::vector<size_t> now;
    for (size_t i = statistics; i < arena.parameters().size(); ++i) {
      if (arena.parameters()[i].value->grad_info()->writes > 0 && seen.insert(i).second) now.push_back(i);
    }
    if (!now.empty()) written.push_back(now);
  }
  const ParameterArena& arena;
  const size_t statistics =
      static_cast<size_t>(std::ranges::count_if(arena.parameters(), &NamedParameter::is_statistic));
  std::set<size_t> seen;
  std::vector<std::vector<size_t>> written;
  const Attached attached{*this};
};

}  // namespace

// Otherwise buckets would still be right, but wait for the end of backward.
TEST_CASE("backward finishes the models' parameters from the arena's end to its begin") {
  for (const std::string& name : model_names(InputKind::images)) {
    CAPTURE(name);
    const auto model = make_model(name, 1, {28, 28, 1, 10, 2});
    ParameterArena arena(*model);
    const Tensor y = model->forward(Tensor::zeros({1, 28, 28, 1}, DType::f32));
    Order order(arena);
    backward(y, y.detach().clone());
    order.note();
    size_t last = arena.parameters().size();
    for (const std::vector<size_t>& rule : order.written) {
      CHECK(rule.back() + 1 == last);
      CHECK(rule.size() == last - rule.front());
      last = rule.front();
    }
    CHECK(last == order.statistics);
  }
}

TEST_CASE("a training that is interrupted on one rank ends on that rank") {
  on_ranks(2, 0, [&](Exchange& exchange) {
    TrainHooks hooks;
    int asked = 0;
    hooks.is_interrupted = [&] { return ++asked > 20; };
    const MemorySource set = synthetic_digits(3, 40);
    TinyModel model(7, 0.3);
    ParameterArena arena(model);
    const LoaderOptions loading = {.batch = 4, .seed = 5, .ranks = 2, .rank = exchange.rank(), .group = 2};
    Loader training(set, loading), test(set, loading);
    TrainConfig config;
    config.epochs = 100;
    config.accumulate = 2;
    config.sum = {.tree = true, .exchange = &exchange};
    CHECK(train(model, arena, training, test, config, hooks).interrupted);
  });
}

}  // namespace hs::test
