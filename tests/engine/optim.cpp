// The parameter arena, and the optimizers against their formulas in double: what PyTorch lacks, and settings of the
// others that the files of tests/models/golden.cpp lack.
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/autograd.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"
#include "models/layers.h"
#include "models/models.h"
#include "tests/support/checks.h"
#include "tests/support/thrown.h"

namespace hs {
namespace {

// Uniform in +-[low, high): away from zero, so that relative errors mean something.
float number(uint32_t which, int64_t index, float low, float high) {
  const RandomStream stream{99, RandomPurpose::synthetic, which, 0, 0};
  const uint32_t bits = random_bits(stream, static_cast<uint64_t>(index));
  return (bits & 1 ? 1.0f : -1.0f) * (low + (high - low) * to_unit_float(bits));
}

// Three parameters, the third a matrix, whose sizes leave gaps in the arena: 63, 57 and 32 floats.
class Three : public Module {
 public:
  Three() {
    uint32_t which = 0;
    for (Tensor* parameter : {&one_, &seven_, &many_}) {
      const int64_t size = std::vector<int64_t>{1, 7, 20000}[which];
      std::vector<float> values;
      for (int64_t i = 0; i < size; ++i) values.push_back(number(which, i, 0.5f, 1.5f));
      *parameter = Tensor::from(values, size == 20000 ? Shape{10, 2000} : Shape{size});
      const ParameterRole role = size == 20000 ? ParameterRole::matrix : ParameterRole::bias;
      add_parameter(std::vector<std::string>{"one", "seven", "many"}[which++], *parameter, role);
    }
  }
  Tensor forward(const Tensor& x) override { return add(sum(mul(seven_, x)), one_.reshape({})); }

 private:
  Tensor one_, seven_, many_;
};

struct Reference {
  std::vector<double> weight, first, second;  // velocity, or the two moments, or z and the second
  std::vector<double> average = {};           // x of schedule-free
  double squares = 0;                         // of the warm-up's factors, their sum
};

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double each : x) sum += each * each;
  return std::sqrt(sum);
}

// One step of the formulas at the top of kernels/optimizer/optimizer.h, as Kingma and Ba, Loshchilov and Hutter, and
// You et al. write them. adapts: the rate of LARS and of LAMB depends on the whole tensor.
void reference_step(const OptimizerConfig& c, int t, const std::vector<float>& gradient, bool adapts, Reference& r) {
  const bool decays_gradient = c.name == "adam", is_layerwise = c.name == "lars" || c.name == "lamb";
  const double lr = c.learning_rate, decay = is_layerwise && !adapts ? 0 : c.weight_decay, b1 = c.beta1, b2 = c.beta2;
  const double gradient_norm = norm({gradient.begin(), gradient.end()}), weight_norm = norm(r.weight);
  std::vector<double> step(gradient.size());
  for (size_t i = 0; i < step.size(); ++i) {
    const double decayed = decay * r.weight[i], g = gradient[i] + (decays_gradient ? decayed : 0);
    if (c.name == "lars") {
      const double ratio = adapts ? c.trust * weight_norm / (gradient_norm + decay * weight_norm) : 1;
      step[i] = r.first[i] = c.momentum * r.first[i] + lr * ratio * (g + decayed);
    } else {
      r.first[i] = b1 * r.first[i] + (1 - b1) * g;
      r.second[i] = b2 * r.second[i] + (1 - b2) * g * g;
      const double mean = r.first[i] / (1 - std::pow(b1, t)), square = r.second[i] / (1 - std::pow(b2, t));
      step[i] = lr * (mean / (std::sqrt(square) + c.epsilon) + (decays_gradient ? 0 : decayed));
    }
  }
  const double ratio = c.name == "lamb" && adapts ? lr * weight_norm / norm(step) : 1;
  for (size_t i = 0; i < step.size(); ++i) r.weight[i] -= ratio * step[i];
}

// The same for schedule-free AdamW, as Defazio et al. write it.
void schedule_free_reference_step(const OptimizerConfig& c, int t, const std::vector<float>& gradient, Reference& r) {
  const double warmup = c.schedule.warmup_steps, factor = t <= warmup ? t / (warmup + 1) : 1;
  const double lr = c.learning_rate * factor, b1 = c.beta1, b2 = c.beta2;
  r.squares += factor * factor;
  for (size_t i = 0; i < gradient.size(); ++i) {
    double &z = r.first[i], &v = r.second[i], &x = r.average[i];
    v = b2 * v + (1 - b2) * gradient[i] * gradient[i];
    const double u = gradient[i] / (std::sqrt(v / (1 - std::pow(b2, t))) + c.epsilon);
    z -= lr * (u + c.weight_decay * r.weight[i]);
    x += factor * factor / r.squares * (z - x);
    r.weight[i] = (1 - b1) * z + b1 * x;
  }
}

// y (M, N) = a (M, K) b (K, N)
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, size_t M, size_t K, size_t N) {
  std::vector<double> y(M * N);
  for (size_t m = 0; m < M; ++m) {
    for (size_t k = 0; k < K; ++k) {
      for (size_t n = 0; n < N; ++n) y[m * N + n] += a[m * K + k] * b[k * N + n];
    }
  }
  return y;
}

// Muon's step of a matrix of M rows that is no taller than wide, as Keller Jordan writes it.
void muon_reference_step(const OptimizerConfig& c, const std::vector<float>& gradient, size_t M, Reference& r) {
  const size_t N = gradient.size() / M;
  std::vector<double> x(M * N), xt(M * N);
  for (size_t i = 0; i < x.size(); ++i) {
    r.first[i] = c.momentum * r.first[i] + (1 - double{c.momentum}) * gradient[i];
    x[i] = (1 - double{c.momentum}) * gradient[i] + c.momentum * r.first[i];
  }
  const double length = norm(x);
  for (double& each : x) each /= length;
  for (int iteration = 0; iteration < 5; ++iteration) {
    for (size_t i = 0; i < x.size(); ++i) xt[i % N * M + i / N] = x[i];
    const std::vector<double> gram = product(x, xt, M, N, M), square = product(gram, gram, M, M, M);
    std::vector<double> factor(M * M);
    for (size_t i = 0; i < factor.size(); ++i) {
      factor[i] = -4.7750 * gram[i] + 2.0315 * square[i] + (i / M == i % M ? 3.4445 : 0);
    }
    x = product(factor, x, M, M, N);
  }
  const double lr = c.learning_rate, rate = lr * std::sqrt(static_cast<double>(N) / static_cast<double>(M));
  for (size_t i = 0; i < x.size(); ++i) r.weight[i] = r.weight[i] * (1 - lr * c.weight_decay) - rate * x[i];
}

// Ten steps stay well below the size of the weights: near zero a relative error means nothing.
const std::vector<OptimizerConfig> configs = {
    {.name = "lars", .learning_rate = 0.005f, .momentum = 0.9f, .trust = 0.5f, .weight_decay = 0.1f},
    {.name = "lamb", .learning_rate = 0.01f, .weight_decay = 0.1f},
    {.name = "muon", .learning_rate = 0.05f, .momentum = 0.95f, .weight_decay = 0.1f, .decay_vectors = false},
    {.name = "schedule-free", .learning_rate = 0.01f, .weight_decay = 0.1f, .schedule = {.warmup_steps = 3}},
    {.name = "adam", .learning_rate = 0.01f, .beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 0.01f, .weight_decay = 0.1f},
    {.name = "adamw", .learning_rate = 0.01f, .beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 0.01f, .weight_decay = 0.5f},
};

void check_values(const ParameterArena& arena, const std::vector<Reference>& references,
                  std::vector<double> Reference::*which, double tolerance) {
  for (size_t p = 0; p < references.size(); ++p) {
    const NamedParameter& parameter = arena.parameters()[p];
    const auto result = test::compare(test::to_numbers(*parameter.value), references[p].*which, {tolerance, 0, 0});
    CHECK_MESSAGE(result.passed, parameter.name, ": ", result.summary);
  }
}

// The formulas' step of one parameter; a vector may be treated in another way.
void reference_step_of(const OptimizerConfig& config, int t, const std::vector<float>& gradient, bool is_vector,
                       Reference& r) {
  OptimizerConfig c = config;
  if (is_vector && !c.decay_vectors) c.weight_decay = 0;
  if (c.name == "muon" && is_vector) c.name = "adamw", c.learning_rate *= c.vector_rate;
  if (c.name == "schedule-free") {
    schedule_free_reference_step(c, t, gradient, r);
  } else if (c.name == "muon") {
    muon_reference_step(c, gradient, 10, r);
  } else {
    reference_step(c, t, gradient, !is_vector, r);
  }
}

// Largest magnitude in the gaps between the slices of a tensor laid out like the arena.
float max_in_gaps(const ParameterArena& arena, const Tensor& tensor) {
  std::vector<bool> covered(static_cast<size_t>(tensor.size()));
  for (const NamedParameter& parameter : arena.parameters()) {
    const auto begin = parameter.value->data<float>() - arena.values.data<float>();
    for (int64_t i = 0; i < parameter.value->size(); ++i) covered[static_cast<size_t>(begin + i)] = true;
  }
  const auto all = tensor.to_vector<float>();
  float largest = 0;
  int gaps = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (covered[i]) continue;
    ++gaps;
    if (!(std::fabs(all[i]) <= largest)) largest = std::isnan(all[i]) ? HUGE_VALF : std::fabs(all[i]);
  }
  REQUIRE(gaps == 63 + 57 + 32);
  return largest;
}

TEST_CASE("optimizers follow their formulas in double, and leave gradients and the gaps of zero alone") {
  set_poison(true);  // so that a gap that nobody clears is not zero by chance
  for (const OptimizerConfig& config : configs) {
    CAPTURE(config.name);
    CAPTURE(config.weight_decay);
    Three model;
    ParameterArena arena(model);
    const auto optimizer = make_optimizer(arena, config);
    OptimizerConfig now = config;
    std::vector<Reference> references;
    for (const NamedParameter& parameter : arena.parameters()) {
      const auto start = parameter.value->to_vector<float>();
      references.push_back(
          {{start.begin(), start.end()}, std::vector<double>(start.size()), std::vector<double>(start.size())});
      if (config.name == "schedule-free")
        references.back().first = references.back().average = references.back().weight;
    }
    for (int t = 1; t <= 10; ++t) {
      CAPTURE(t);
      if (t == 6) {  // the learning rate may change between steps
        now.learning_rate *= 0.5f;
        optimizer->set_learning_rate(now.learning_rate);
      }
      optimizer->zero_gradients();
      for (size_t p = 0; p < references.size(); ++p) {
        Tensor& gradient = arena.parameters()[p].value->grad();
        std::vector<float> values;
        for (int64_t i = 0; i < gradient.size(); ++i) {
          values.push_back(number(static_cast<uint32_t>(10 * t + static_cast<int>(p)), i, 0.1f, 1.0f));
        }
        gradient.copy_from(Tensor::from(values, gradient.shape()));
        reference_step_of(now, t, values, gradient.shape().rank() == 1, references[p]);
      }
      const Tensor gradients = arena.gradients().clone();
      optimizer->step();
      CHECK(optimizer->steps() == t);
      CHECK(test::same_bytes(arena.gradients(), gradients));
      if (t != 1 && t != 10) continue;
      const double tolerance = t == 1 ? 1e-6 : 1e-5;
      check_values(arena, references, &Reference::weight, tolerance);
      CHECK(max_in_gaps(arena, arena.values) == 0);
      CHECK(max_in_gaps(arena, arena.gradients()) == 0);
      if (now.name != "schedule-free") continue;
      const WithAverage averaged(arena, *optimizer);
      check_values(arena, references, &Reference::average, tolerance);
    }
  }
  set_poison(false);
}

TEST_CASE("an unknown optimizer is a usage error that names the known ones") {
  Three model;
  ParameterArena arena(model);
  const std::string message = test::error_of([&] { make_optimizer(arena, {.name = "lion"}); });
  CHECK(message == "optimizer lion: expected sgd, nesterov, adam, adamw, lars, lamb, muon or schedule-free");
}

TEST_CASE("Muon without a matrix, and schedule-free with another schedule or average, are usage errors") {
  Three model;
  ParameterArena arena(model);
  const auto error = [&](const OptimizerConfig& config) {
    return test::error_of([&] { make_optimizer(arena, config); });
  };
  CHECK(error({.name = "schedule-free", .schedule = {.kind = ScheduleKind::cosine}}) ==
        "optimizer schedule-free: the learning rate has a schedule, expected constant, or a warm-up alone");
  CHECK(error({.name = "schedule-free", .average_decay = 0.9f}) ==
        "optimizer schedule-free: keeps an average itself, expected no other (--ema)");
  LayerKeys keys(1);
  Head last(3, 2, keys);
  ParameterArena of_last(last);
  CHECK(test::error_of([&] { make_optimizer(of_last, {.name = "muon"}); }) ==
        "optimizer muon: no hidden layer has a matrix that is trained; use adamw");
}

TEST_CASE("a setting with which every step would be wrong is a usage error") {
  Three model;
  ParameterArena arena(model);
  const std::pair<std::string, OptimizerConfig> wrong[] = {
      {"optimizer: learning_rate is -1, trust ", {.learning_rate = -1}},
      {"optimizer: clip is nan, outlier 0 ", {.clip = std::numeric_limits<float>::quiet_NaN()}},
      {"optimizer: momentum is 1, beta1 ", {.momentum = 1}},
      {"optimizer: momentum is 0.9, beta1 0.9, beta2 1.5, ", {.beta2 = 1.5f}},
      {"optimizer: momentum is 0.9, beta1 0.9, beta2 0.999, average_decay 0 and statistics_momentum 5, ",
       {.statistics_momentum = 5}},
      {"schedule: every is 0 steps, expected 1 or more", {.schedule = {.every = 0}}},
      {"schedule: warmup_steps is -5 and factor 0.1, expected 0 or more", {.schedule = {.warmup_steps = -5}}},
  };
  for (const auto& [line, config] : wrong) {
    CHECK(test::error_of([&, &config = config] { make_optimizer(arena, config); }).starts_with(line));
  }
  const std::pair<std::string, GradScalerConfig> scales[] = {
      {"loss scale: initial is 0, expected 1 to 4294967300, and those to be more than 0", {.initial = 0}},
      {"loss scale: growth is 2, backoff 2 and growth_interval 2000, expected 1 or more, up to 1, and 1 or more",
       {.backoff = 2}},
  };
  for (const auto& [line, config] : scales) {
    CHECK(test::error_of([&, &config = config] { GradScaler(config, Device::cpu); }) == line);
  }
}

TEST_CASE("the arena keeps values, shapes and order, on slices aligned to 256 bytes that do not overlap") {
  const auto model = make_model("mnist_cnn", 5), same = make_model("mnist_cnn", 5);
  ParameterArena arena(*model);
  const auto originals = same->parameters();
  REQUIRE(arena.parameters().size() == originals.size());
  const float* end = arena.values.data<float>();
  for (size_t p = 0; p < originals.size(); ++p) {
    const Tensor& value = *arena.parameters()[p].value;
    CAPTURE(originals[p].name);
    CHECK(arena.parameters()[p].name == originals[p].name);
    CHECK(value.shape() == originals[p].value->shape());
    CHECK(value.grad().shape() == value.shape());
    CHECK(value.to_vector<float>() == originals[p].value->to_vector<float>());
    const float* begin = value.data<float>();
    CHECK(reinterpret_cast<uintptr_t>(begin) % 256 == 0);
    CHECK(reinterpret_cast<uintptr_t>(value.grad().data<float>()) % 256 == 0);
    CHECK(begin >= end);
    CHECK(begin - end < 64);
    CHECK(begin - arena.values.data<float>() == value.grad().data<float>() - arena.gradients().data<float>());
    end = begin + value.size();
  }
  CHECK(end <= arena.values.data<float>() + arena.values.size());
  CHECK(arena.gradients().size() == arena.values.size());
}

// relu(x W) W: the weight has two gradients, through products that write to the arena.
class Twice : public Module {
 public:
  Twice() {
    weight_ = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
    unused_ = Tensor::from(std::vector<float>{5, 6}, {2});
    add_parameter("weight", weight_, ParameterRole::matrix);
    add_parameter("unused", unused_, ParameterRole::bias);
  }
  Tensor forward(const Tensor& x) override { return sum(linear(linear(x, weight_, {}), weight_, {})); }

 private:
  Tensor weight_, unused_;
};

TEST_CASE("after zero_gradients the first gradient replaces what the arena holds, and the second is added") {
  Twice model;
  ParameterArena arena(model);
  const Tensor x = Tensor::from(std::vector<float>{1, 10}, {1, 2});
  for (int round = 0; round < 2; ++round) {
    arena.gradients().copy_from(Tensor::from(std::vector<float>(128, 7.0f), {128}));
    arena.zero_gradients();
    backward(model.forward(x));
    // x' (1 1) W' + (x W)' (1 1), by hand: x W = (31, 42), (1 1) W' = (3, 7)
    CHECK(arena.gradients().slice(0, {4}).to_vector<float>() == std::vector<float>{34, 38, 72, 112});
    CHECK(arena.parameters()[0].value->grad().data<float>() == arena.gradients().data<float>());
    CHECK(arena.gradients().slice(64, {2}).to_vector<float>() == std::vector<float>{0, 0});  // unused
  }
  backward(model.forward(x));  // without zero_gradients: added
  CHECK(arena.gradients().slice(0, {4}).to_vector<float>() == std::vector<float>{68, 76, 144, 224});
  arena.zero_gradients();
  CHECK(arena.parameters()[0].value->grad().to_vector<float>() == std::vector<float>(4));
}

TEST_CASE("an optimizer's step updates the 16-bit casts of the parameters, and only casts that match them") {
  const auto casts_match = [](const ParameterArena& arena, DType type) {
    bool match = true;
    for (const NamedParameter& parameter : arena.parameters()) {
      const GradInfo& info = *parameter.value->grad_info();
      match = match && info.cast_version == parameter.value->version() && info.cast.dtype() == type &&
              test::same_bytes(info.cast, cast(parameter.value->detach(), type));
    }
    return match;
  };
  for (const char* name : {"sgd", "nesterov", "adam", "adamw", "lars", "lamb", "muon", "schedule-free"}) {
    for (const DType type : {DType::f16, DType::bf16}) {
      Three model;
      ParameterArena arena(model);
      const auto optimizer = make_optimizer(arena, {.name = name, .learning_rate = 0.01f});
      const auto step = [&] {
        optimizer->zero_gradients();
        backward(model.forward(Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7}, {7})));
        optimizer->step();
      };
      step();
      CHECK(!arena.parameters()[0].value->grad_info()->cast.defined());  // nobody asked for casts
      arena.cast_parameters(type);
      CHECK(casts_match(arena, type));
      step();
      CHECK(casts_match(arena, type));
      arena.values.mutable_data<float>()[64] += 1;
      CHECK(!casts_match(arena, type));
      step();  // casts of values that somebody else changed do not become valid by an update
      CHECK(!casts_match(arena, type));
      arena.cast_parameters(type);
      CHECK(casts_match(arena, type));
    }
  }
}

class DoubleModule : public Module {
 public:
  DoubleModule() { add_parameter("weight", weight_, ParameterRole::matrix); }
  Tensor forward(const Tensor& x) override { return x; }

 private:
  Tensor weight_ = Tensor::zeros({3}, DType::f64);
};

TEST_CASE("the arena refuses a parameter that is not f32, by name") {
  DoubleModule model;
  CHECK_THROWS_WITH_AS(ParameterArena{model}, "parameter weight is f64, expected f32", Error);
}

TEST_CASE("a second arena on a module is refused while the first one lives, and changes nothing") {
  Three model;
  auto arena = std::make_unique<ParameterArena>(model);
  const auto optimizer = make_optimizer(*arena, {.name = "sgd", .learning_rate = 1, .momentum = 0});
  const std::string message = test::error_of([&] { ParameterArena second(model); });
  CHECK(message == std::string("parameter one is in another ParameterArena already, whose optimizer would lose "
                               "it; use that one, or end it first"));
  const float before = model.parameters()[0].value->data<float>()[0];
  arena->gradients().mutable_data<float>()[0] = 0.25f;
  optimizer->step();
  CHECK(model.parameters()[0].value->data<float>()[0] == before - 0.25f);
  arena.reset();
  const ParameterArena next(model);  // with the values that the first one left
  CHECK(next.values.data<float>()[0] == before - 0.25f);
}

class Tied : public Module {
 public:
  Tied() {
    add_parameter("here", weight_, ParameterRole::matrix);
    add_parameter("there", weight_, ParameterRole::matrix);
  }
  Tensor forward(const Tensor& x) override { return x; }
  Tensor weight_ = Tensor::zeros({3}, DType::f32);
};

TEST_CASE("the arena refuses a parameter that is registered twice, or has no value") {
  Tied model;
  CHECK_THROWS_WITH_AS(ParameterArena{model}, "parameter here is registered twice; register it, or its layer, once",
                       Error);
  CHECK(model.weight_.grad_info()->lacks_arena);
  model.weight_ = {};
  CHECK_THROWS_WITH_AS(ParameterArena{model},
                       "parameter here is undefined; give it a value before the ParameterArena is made", Error);
}

// Two layers; only some are registered.
class Forgetful : public Module {
 public:
  enum Forgets { nothing, first, second, first_is_frozen };
  explicit Forgetful(Forgets forgets) {
    if (forgets != first) add_child("first", first_);
    if (forgets == first_is_frozen) freeze();
    if (forgets != second) add_child("second", second_);
  }
  Tensor forward(const Tensor& x) override { return sum(second_.forward(first_.forward(x))); }

 private:
  LayerKeys keys_{1};
  Linear first_{3, 2, keys_}, second_{2, 5, keys_};
};

TEST_CASE(
    "a layer that is used and not registered is an error of backward, wherever it is; one that is frozen is none") {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {1, 3});
  for (const auto forgets : {Forgetful::nothing, Forgetful::first, Forgetful::second, Forgetful::first_is_frozen}) {
    Forgetful model(forgets);
    const ParameterArena arena(model);
    const Tensor loss = model.forward(x);
    if (forgets == Forgetful::nothing || forgets == Forgetful::first_is_frozen) {
      CHECK_NOTHROW(backward(loss));
    } else {
      const char* shape = forgets == Forgetful::first ? "a parameter (3, 2)" : "a parameter (2, 5)";
      CHECK_THROWS_WITH_AS(backward(loss), doctest::Contains(shape), Error);
    }
  }
}

TEST_CASE("what is in an arena is not made constant any more, and a handle of a parameter never") {
  Forgetful model(Forgetful::nothing);
  Tensor weight = *model.parameters()[0].value;
  const std::string by_handle =
      "set_requires_grad: the tensor (3, 2) is a module's parameter; freeze() of the module "
      "makes it constant";
  CHECK_THROWS_WITH_AS(weight.set_requires_grad(false), by_handle.c_str(), Error);
  {
    const ParameterArena arena(model);
    weight = *model.parameters()[0].value;
    CHECK_THROWS_WITH_AS(weight.set_requires_grad(false), by_handle.c_str(), Error);
    CHECK_THROWS_WITH_AS(model.freeze(),
                         "freeze: parameter weight is in a ParameterArena already; freeze before it is made", Error);
  }
  CHECK_NOTHROW(model.freeze());
}

TEST_CASE("a layer without a bias is its product alone") {
  LayerKeys keys(1), again(1);
  Linear linear(3, 2, keys, Bias::off), with(3, 2, again);
  Conv2d conv(1, 4, {}, keys, Bias::off);
  CHECK(linear.parameters().size() == 1);
  CHECK(conv.parameters().size() == 1);
  CHECK_FALSE(linear.bias().defined());
  CHECK(linear.weight().to_vector<float>() == with.weight().to_vector<float>());
  const Tensor zeros = Tensor::zeros({2, 3}, DType::f32), image = Tensor::zeros({1, 5, 5, 1}, DType::f32);
  CHECK(linear.forward(zeros).to_vector<float>() == std::vector<float>(4, 0));
  CHECK(conv.forward(image).to_vector<float>() == std::vector<float>(36, 0));
}

TEST_CASE("flatten keeps the first dimension") {
  CHECK(flatten(Tensor::zeros({2, 3, 4, 5}, DType::f32)).shape() == Shape{2, 60});
  CHECK(flatten(Tensor::zeros({2}, DType::f32)).shape() == Shape{2, 1});
  CHECK(flatten(Tensor::zeros({0, 3}, DType::f32)).shape() == Shape{0, 3});
  CHECK_THROWS_WITH_AS(flatten(Tensor::zeros({}, DType::f32)), "flatten: x is (), expected (N, ...)", Error);
}

}  // namespace
}  // namespace hs
