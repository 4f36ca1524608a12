// `halfstep-bench bench f16` as its users meet it, and its counts against a step done here by hand.
#include <cmath>
#include <cstdlib>

#include "data/loader/loader.h"
#include "data/synthetic.h"
#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/error.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"
#include "models/training/train.h"
#include "tests/support/bench_outputs.h"

namespace {

using namespace hs;
using namespace hs::test;

// On the CPU unless the flags say otherwise.
Ended scaler(const std::string& flags) {
  return run_bench_line("bench f16 " + flags + (contains(flags, "--device") ? "" : " --device cpu"));
}
json record_of(const std::string& flags) { return hs::test::record_of("bench f16 " + flags + " --quiet --device cpu"); }

// This learning rate moves no weight, so that both runs have the same gradients but for the scale.
const std::string still = "--lr 1e-12 --train 96 --test 20 --batch 32";

const std::vector<std::string> mnist_cnn_rows = {"conv2d 1", "max_pool2d 1", "relu 1",    "conv2d 2", "max_pool2d 2",
                                                 "relu 2",   "dropout 1",    "reshape 1", "linear 1"};

TEST_CASE("the record: members, rows in the model's order, and fewer gradients lost with scaling") {
  const json record = record_of(still);
  CHECK(record["environment"]["device"].is_string());
  CHECK(record["data"]["name"] == "synthetic digits");
  CHECK(record["config"]["batch"] == 32);
  CHECK(record["config"]["precision"] == "f16");
  REQUIRE(record["rows"].size() == 2);
  const json &scaled = record["rows"][0], &unscaled = record["rows"][1];
  CHECK(scaled["name"] == "scaling");
  CHECK(unscaled["name"] == "no scaling");
  CHECK(scaled["last_scale"] == 65536);
  CHECK(unscaled["last_scale"] == 1);
  for (const json& row : record["rows"]) {
    CHECK(row["steps"] == 3);
    CHECK(row["skipped_steps"] == 0);
    CHECK(row["test_accuracy"] >= 0);
    CHECK(row["final_loss"] > 0);
    REQUIRE(row["gradients"].size() == mnist_cnn_rows.size());
  }
  CHECK(scaled["gradients"][0]["values"] == 96 * 26 * 26 * 32);
  double lost = 0;
  for (size_t i = 0; i < mnist_cnn_rows.size(); ++i) {
    const json &with = scaled["gradients"][i], &without = unscaled["gradients"][i];
    CAPTURE(mnist_cnn_rows[i]);
    for (const json* row : {&with, &without}) {
      CHECK((*row)["name"] == mnist_cnn_rows[i]);
      CHECK((*row)["zero"] <= (*row)["below_smallest_normal"]);
    }
    CHECK(with["zero"] <= without["zero"]);
    CHECK(with["below_smallest_normal"] <= without["below_smallest_normal"]);
    lost += without["zero"].get<double>() - with["zero"].get<double>();
  }
  CHECK(lost > 0);
  // What comes before ReLU and pooling has hardly a zero of its own.
  CHECK(scaled["gradients"][7]["below_smallest_normal"] < 0.001);
  CHECK(unscaled["gradients"][7]["below_smallest_normal"] > 0.01);
}

struct Shares {
  double values = 0, zero = 0, below_normal = 0;
};

void count(const Tensor& gradient, Shares& shares) {
  for (const Half half : gradient.to_vector<Half>()) {
    const float value = to_float(half);
    ++shares.values;
    shares.zero += value == 0;
    shares.below_normal += std::abs(value) < std::ldexp(1.0, -14);
  }
}

struct CountHalfGradients : Observer {
  explicit CountHalfGradients(std::vector<Shares>& shares_)
      : Observer(Event::gradient, Watch::this_thread), shares(shares_) {}
  void gradient(const char*, const Tensor& dy) override {
    if (dy.dtype() == DType::f16) count(dy, *shares.insert(shares.begin(), Shares()));
  }
  std::vector<Shares>& shares;
  const Attached attached{*this};
};

TEST_CASE("the shares of one step are those of the same step done by hand, under either scale") {
  const json record = record_of("--train 24 --test 10 --batch 24 --seed 5");
  const MemorySource digits = synthetic_digits(synthetic_train_seed, 24);
  for (const size_t run : {size_t{0}, size_t{1}}) {
    const auto model = make_model("mnist_cnn", 5);
    ParameterArena arena(*model);
    Loader loader(digits, {.batch = 24, .shuffle = true, .seed = 5});
    const AmbientScope scope;
    ambient().training = true;
    ambient().fuse = false;  // as in the command
    ambient().seed = 5;
    const Autocast amp(Precision::f16, arena);
    const Batch batch = loader.next();
    const Tensor loss =
        softmax_cross_entropy(model->forward(normalize_image(batch.images, loader.pixel_scale())), batch.labels);
    std::vector<Shares> expected;
    {
      const CountHalfGradients observer(expected);
      backward(loss, Tensor::from(std::vector<float>{run == 0 ? 65536.0f : 1.0f}, {}));
    }
    const json& rows = record["rows"][run]["gradients"];
    REQUIRE(rows.size() == expected.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      INFO(run, ": ", rows[i]["name"]);
      const Shares& shares = expected[i];
      CHECK(rows[i]["values"] == shares.values);
      CHECK(rows[i]["zero"] == shares.zero / shares.values);
      CHECK(rows[i]["below_smallest_normal"] == shares.below_normal / shares.values);
    }
  }
}

TEST_CASE("the table: every line with a figure names the data, and each gradient has a line") {
  const Ended ended = scaler("--train 32 --test 10 --batch 8");
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  CHECK(contains(ended.err, "run 2/2, epoch 1/1"));
  for (const std::string& line : lines_of(ended.out)) {
    CAPTURE(line);
    CHECK((line.empty() || line.starts_with("synthetic digits  ") || line.starts_with("data  ") ||
           contains(line, " on synthetic digits: ")));
    CHECK_FALSE(line.ends_with(' '));
  }
  for (const std::string& name : mnist_cnn_rows) CHECK(contains(ended.out, "\nsynthetic digits  " + name + " "));
}

TEST_CASE("the other models, whatever they are made of") {
  const json rows = record_of("--model mlp --train 64 --test 10")["rows"];
  CHECK(rows[0]["gradients"][0]["name"] == "feed_forward 1");
}

TEST_CASE("a run that diverges is reported, recorded, and ends with exit code 6") {
  const Ended ended = scaler("--train 64 --test 10 --batch 8 --lr 1000 --json - --quiet");
  CHECK(ended.code == 6);
  CHECK(contains(ended.err, "halfstep-bench: scaling: the loss became"));
  const json row = json::parse(ended.out)["rows"][0];
  CHECK(contains(row["error"].get<std::string>(), "the loss became"));
  CHECK(row["test_accuracy"].is_null());
  CHECK(row["gradients"].size() == mnist_cnn_rows.size());
}

TEST_CASE("gradients cannot be looked at inside a graph") {
  const auto model = make_model("mlp", 1);
  ParameterArena arena(*model);
  const MemorySource digits = synthetic_digits(synthetic_train_seed, 8);
  Loader loader(digits, {.batch = 8}), test(digits, {.batch = 8});
  TrainConfig config;
  config.graph = true;
  TrainHooks hooks;
  hooks.on_gradients = [](const GradScaler&) {};
  CHECK_THROWS_WITH_AS(train(*model, arena, loader, test, config, hooks), doctest::Contains("on_gradients"), Error);
}

}  // namespace
