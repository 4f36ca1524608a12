// Reverse-mode differentiation: every way in which a tape has been known to give a wrong gradient, keep memory too
// long or overflow the stack, by name. The gradients of single ops are checked elsewhere.
#include <pthread.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/autograd.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/layers.h"
#include "tests/support/checks.h"
#include "tests/support/thrown.h"

namespace hs {
namespace {

using doctest::Contains;
using Floats = std::vector<float>;

size_t live() { return memory_stats(Device::cpu).live; }

// 1, 2, 3, ... in the given shape; a leaf that wants a gradient.
Tensor leaf(const Shape& shape, float first = 1) {
  Floats values(static_cast<size_t>(shape.size()));
  for (float& value : values) value = first++;
  Tensor x = Tensor::from(values, shape);
  x.set_requires_grad(true);
  return x;
}
Tensor constant(const Shape& shape, float first = 1) { return leaf(shape, first).detach(); }

Floats grad(const Tensor& x) { return x.grad().to_vector<float>(); }

// An op of the tests: y = x, and `at_backward` runs when its turn comes.
Tensor tap(const Tensor& x, std::function<void()> at_backward) {
  return record("tap", x.clone(), {x}, [at_backward](const Tensor& dy) -> Gradients {
    at_backward();
    return {dy};
  });
}

// What backward() says when it refuses.
std::string refusal(const Tensor& y, const Tensor& dy = {}, ExitCode code = ExitCode::usage) {
  return test::error_of([&] { backward(y, dy); }, code);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// --- graphs ---

TEST_CASE("a value used one to five times gets the sum of its gradients, leaf or not") {
  for (int uses = 1; uses <= 5; ++uses) {
    for (const bool interior : {false, true}) {
      CAPTURE(uses);
      CAPTURE(interior);
      const Tensor a = leaf({2});
      const Tensor x = interior ? scale(a, 1) : a;
      Tensor total = scale(x, 1);
      for (int i = 1; i < uses; ++i) total = add(total, scale(x, 10 * i));
      backward(sum(total));
      const float expected = static_cast<float>(1 + 10 * (uses * (uses - 1) / 2));
      CHECK(grad(a) == Floats{expected, expected});
    }
  }
}

TEST_CASE("in a diamond with a long and a short side a gradient waits for both, in either order") {
  for (const bool long_first : {false, true}) {
    const Tensor a = leaf({});
    const Tensor x = scale(a, 2);
    const Tensor longer = scale(scale(scale(x, 3), 5), 7);
    backward(long_first ? add(longer, x) : add(x, longer));
    CHECK(a.grad().item() == 2 * (1 + 3 * 5 * 7));
  }
}

TEST_CASE("two losses accumulate on the leaves that they depend on, and on nothing else") {
  const Tensor a = leaf({2}), unused = leaf({2});
  const Tensor first = scale(a, 2), second = scale(a, 3), elsewhere = scale(unused, 2);
  backward(sum(first));
  CHECK(grad(a) == Floats{2, 2});
  backward(sum(second));
  CHECK(grad(a) == Floats{5, 5});
  for (const Tensor& other : {first, second, unused}) CHECK_FALSE(other.grad().defined());
}

TEST_CASE("an op that returns no gradient ends its branch") {
  const Tensor a = leaf({2});
  const Tensor x = scale(a, 3);
  const Tensor stopped = record("stop", x.clone(), {x}, [](const Tensor&) -> Gradients { return {Tensor()}; });
  backward(sum(add(stopped, x)));
  CHECK(grad(a) == Floats{3, 3});
}

TEST_CASE("a gradient tensor that several inputs share is not corrupted when one of them accumulates") {
  const Tensor a = leaf({3}), b = leaf({3});
  const Tensor p = scale(a, 1), q = scale(b, 1);
  const Tensor dy = constant({3}, 5);
  // add() hands the same dy to both of its inputs; p then receives a second one and must not add into the first.
  backward(add(add(p, q), p), dy);
  CHECK(grad(a) == Floats{10, 12, 14});
  CHECK(grad(b) == Floats{5, 6, 7});
  CHECK(dy.to_vector<float>() == Floats{5, 6, 7});
}

TEST_CASE("the gradient of a leaf is its own, not the caller's tensor") {
  const Tensor a = leaf({3});
  const Tensor dy = constant({3}, 5);
  backward(add(a, a), dy);
  backward(add(a, a), dy);
  CHECK(grad(a) == Floats{20, 24, 28});
  CHECK(dy.to_vector<float>() == Floats{5, 6, 7});
  CHECK(a.grad().data<float>() != dy.data<float>());
}

TEST_CASE("a leaf's own gradient as dL/dy is added to it") {
  const Tensor a = leaf({3}), b = leaf({3});
  backward(add(a, b), constant({3}, 5));
  backward(add(a, b), a.grad());
  CHECK(grad(a) == Floats{10, 12, 14});
}

TEST_CASE("a weight that an op reads as its input too gets both gradients, in an arena and outside of one") {
  class Gram : public Module {  // w w^T
   public:
    Gram() { add_parameter("weight", weight = constant({2, 2}), ParameterRole::matrix); }
    Tensor forward(const Tensor& w) override { return linear(w, w, {}, WeightOrder::out_in); }
    Tensor weight;
  } gram;
  ParameterArena arena(gram);
  const Tensor alone = leaf({2, 2});
  const Floats both = {17, 24, 29, 42};  // (dy + dy^T) w, with dy = 1 2 3 4
  backward(gram.forward(alone), constant({2, 2}));
  CHECK(grad(alone) == both);
  for (int step = 0; step < 2; ++step) {
    arena.zero_gradients();
    backward(gram.forward(gram.weight), constant({2, 2}));
    CHECK(grad(gram.weight) == both);
  }
}

TEST_CASE("a parameter that an op takes twice gets both gradients, in an arena and outside of one") {
  class Twice : public Module {  // layer_norm(x) * g + g
   public:
    Twice() { add_parameter("weight", g = constant({2}), ParameterRole::norm); }
    Tensor forward(const Tensor& x) override { return layer_norm(x, g, g); }
    Tensor g;
  } twice;
  const Tensor x = constant({1, 2}), alone = leaf({2});
  backward(layer_norm(x, alone, alone), constant({1, 2}));
  ParameterArena arena(twice);
  for (int step = 0; step < 2; ++step) {
    arena.zero_gradients();
    backward(twice.forward(x), constant({1, 2}));
    CHECK(grad(twice.g) == grad(alone));
  }
}

// --- misuse ---

TEST_CASE("a second backward over a used tape names the op and changes no gradient") {
  const Tensor a = leaf({2});
  const Tensor hidden = relu(a);
  const Tensor loss = sum(hidden);
  backward(loss);
  CHECK(has(refusal(loss), "the tape was already used at op sum; run the forward pass again"));
  CHECK(grad(a) == Floats{1, 1});
  CHECK(has(refusal(sum(hidden)), "op relu"));  // half of the tape is fresh
}

TEST_CASE("backward needs history, and dL/dy unless y is a scalar") {
  CHECK_THROWS_WITH_AS(backward(constant({})), Contains("has no history"), Error);
  const Tensor a = leaf({2});
  CHECK(has(refusal(scale(a, 1)), "(2) is not a scalar; pass dL/dy of that shape, or call it on a scalar loss"));
  CHECK_THROWS_WITH_AS(backward(scale(a, 1), constant({3})), Contains("f32 (3) but y is f32 (2)"), Error);
  CHECK_THROWS_AS(backward(scale(a, 1), Tensor::zeros({2}, DType::f64)), Error);
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("a backward rule that returns the wrong number or shape of gradients is named") {
  const Tensor a = leaf({2});
  const Tensor few = record("few", a.clone(), {a}, [](const Tensor&) -> Gradients { return {}; });
  CHECK(has(refusal(few, constant({2})), "backward of few: 0 gradients for 1 inputs"));
  const Tensor wrong = record("wrong", a.clone(), {a}, [](const Tensor&) -> Gradients { return {constant({3})}; });
  CHECK(has(refusal(wrong, constant({2})), "backward of wrong: gradient 0 is f32 (3)"));
}

// --- recording ---

TEST_CASE("NoGrad and Inference record nothing, Inference trains nothing, and the scope before it is restored") {
  const Tensor a = leaf({1000});
  {
    const NoGrad scope;
    const size_t before = live();
    const Tensor y = relu(relu(a));
    CHECK_FALSE(y.requires_grad());
    CHECK(live() == before + y.bytes());                          // the inner result is gone
    std::thread([&] { CHECK(relu(a).requires_grad()); }).join();  // the scope is this thread's alone
  }
  CHECK(relu(a).requires_grad());
  {
    const Inference scope;
    CHECK_FALSE(ambient().training);
    CHECK_FALSE(relu(a).requires_grad());
  }
  CHECK(ambient().training);
  CHECK(relu(a).requires_grad());
}

TEST_CASE("backward records nothing itself, and puts recording back after success and after an exception") {
  const Tensor a = leaf({2});
  bool recording = true;
  const Tensor seen = tap(a, [&] { recording = ambient().recording; });
  ambient().micro_step = 7;
  backward(sum(seen));
  CHECK_FALSE(recording);
  CHECK(ambient().recording);

  CHECK_THROWS_AS(backward(sum(tap(a, [] { throw std::runtime_error("boom"); }))), std::runtime_error);
  CHECK(ambient().recording);
  CHECK(ambient().micro_step == 7);
  ambient().micro_step = 0;
  CHECK(refusal(sum(tap(a, [] { throw Error(ExitCode::io, "boom"); })), {}, ExitCode::io) == "backward of tap: boom");
  CHECK(ambient().recording);
}

std::string computed;  // which gradients conv2d_backward was asked for
bool spying = false;

void spy(const Conv2dBackward& call) {
  computed = std::string(call.dx.defined() ? "x" : "") + (call.dweight.defined() ? "w" : "") +
             (call.dbias.defined() ? "b" : "");
  for (Tensor* gradient : {&call.dx, &call.dweight, &call.dbias}) gradient->fill_zero();
}
REGISTER_KERNEL(conv2d_backward, cpu, "spy",
                {.run = spy, .supported = [](const Conv2dBackward&) { return spying; }, .rank = 1000});

TEST_CASE("the gradient of an input that needs none is not computed") {
  const Tensor image = constant({1, 4, 4, 1}), weight = constant({9, 2}), bias = constant({2});
  const Tensor image_leaf = leaf({1, 4, 4, 1}), weight_leaf = leaf({9, 2});
  spying = true;
  backward(sum(conv2d(image, weight_leaf, bias)));
  CHECK_FALSE(has(computed, "x"));
  CHECK(has(computed, "w"));
  backward(sum(conv2d(image_leaf, weight, {})));
  CHECK(computed == "x");
  spying = false;

  const auto products_of_backward = [&](const Tensor& x, const Tensor& w) {
    const Tensor y = sum(linear(x, w, {}));
    const uint64_t before = test::calls_of(gemm);
    backward(y);
    return test::calls_of(gemm) - before;
  };
  CHECK(products_of_backward(constant({3, 4}), leaf({4, 2})) == 1);
  CHECK(products_of_backward(leaf({3, 4}), constant({4, 2})) == 1);
  CHECK(products_of_backward(leaf({3, 4}), leaf({4, 2})) == 2);
}

// --- memory (what each op keeps alive: tests/engine/storage.cpp) ---

TEST_CASE("activation memory falls during backward, op by op") {
  const Tensor a = leaf({1000});
  const size_t before = live();
  std::vector<size_t> live_at;  // in the order of backward
  Tensor x = scale(a, 1);
  for (int i = 0; i < 5; ++i) x = tap(relu(x), [&] { live_at.push_back(live()); });
  const size_t bytes = a.bytes();
  CHECK(live() == before + 6 * bytes);  // five saved outputs and x itself
  const Tensor loss = sum(x);
  x = {};
  backward(loss);
  REQUIRE(live_at.size() == 5);
  for (size_t i = 1; i < live_at.size(); ++i) CHECK(live_at[i] + bytes == live_at[i - 1]);
  CHECK(live() == before + loss.bytes() + a.grad().bytes());
}

TEST_CASE("a tape is freed with its last handle, whether it ran or not") {
  const Tensor a = leaf({100});
  const size_t before = live();
  sum(relu(mul(relu(a), a)));
  CHECK(live() == before);
  backward(sum(relu(mul(relu(a), a))));
  CHECK(live() == before + a.grad().bytes());
}

// --- saved tensors that change ---

TEST_CASE("a saved tensor that was modified is refused, with the name of the op") {
  const auto expect_refused = [](const char* op, const Tensor& y) {
    const std::string message = refusal(sum(y));
    CAPTURE(message);
    CHECK(message.starts_with(std::string("backward of ") + op + ": a tensor ("));
    CHECK(has(message, "was modified before backward"));
  };
  const auto touch = [](Tensor tensor) { tensor.mutable_raw_data(); };
  Tensor x = leaf({6, 16}), y = leaf({6, 16}), labels = Tensor::zeros({6}, DType::i32), z;
  z = softmax_cross_entropy(x, labels), touch(labels), expect_refused("softmax_cross_entropy", z);
  // Every way to write. What each op saves: tests/kernels/op_gradients.cpp.
  z = mul(x, y), x.reshape({96}).mutable_data<float>()[0] = 1, expect_refused("mul", z);
  z = mul(x, y), touch(x.detach()), expect_refused("mul", z);
  z = mul(x, y), touch(x.slice(95, {1})), expect_refused("mul", z);
  z = mul(x, y), x.fill_zero(), expect_refused("mul", z);
  z = mul(x, y), x.copy_from(y), expect_refused("mul", z);
  z = mul(x, y), add_forward({y, y, x}), expect_refused("mul", z);

  LayerKeys keys(1);
  Linear layer(16, 3, keys);
  ParameterArena arena(layer);
  const auto optimizer = make_optimizer(arena, {.name = "sgd"});
  z = layer.forward(x), arena.values.mutable_data<float>()[0] = 1, expect_refused("linear", z);
  z = layer.forward(x), optimizer->step(), expect_refused("linear", z);
}

TEST_CASE("a tensor that nobody saved may be modified") {
  Tensor x = leaf({4}), kept = constant({4}), y = add(x, kept);
  x.fill_zero();
  y.mutable_raw_data();
  backward(y, constant({4}));
  CHECK(grad(x) == Floats{1, 2, 3, 4});
  // relu saves its output, so its input may change; mul saved a clone.
  x = leaf({4});
  const Tensor positive = relu(x), product = mul(x.reshape({4}), kept.clone());
  kept.fill_zero();
  x.fill_zero();
  backward(positive, constant({4}));
  CHECK(grad(x) == Floats{1, 2, 3, 4});
  CHECK(has(refusal(product, constant({4})), "modified"));  // by way of x
}

// --- observation ---

using Seen = std::vector<std::pair<std::string, Floats>>;

struct SeeGradients : Observer {
  explicit SeeGradients(Seen& seen_) : Observer(Event::gradient, Watch::this_thread), seen(seen_) {}
  void gradient(const char* op, const Tensor& dy) override { seen.emplace_back(op, dy.to_vector<float>()); }
  Seen& seen;
  const Attached attached{*this};
};

struct ThrowAtGradient : Observer {
  ThrowAtGradient() : Observer(Event::gradient, Watch::this_thread) {}
  void gradient(const char*, const Tensor&) override { throw std::runtime_error("enough"); }
  const Attached attached{*this};
};

TEST_CASE("an observer sees the complete gradient of each op's output, the last op first, and changes nothing") {
  const auto run = [](const Tensor& a) {
    const Tensor x = scale(a, 2);
    backward(sum(add(scale(x, 3), relu(x))));  // two gradients meet in x
    return grad(a);
  };
  Seen seen, outer;
  {
    const SeeGradients around(outer);
    const Tensor a = leaf({2});
    {
      const SeeGradients observer(seen);
      CHECK(run(a) == Floats{8, 8});
      std::thread([&] { run(leaf({2})); }).join();  // another thread is not observed
    }
    CHECK(outer == seen);
    backward(scale(leaf({}), 1));
    REQUIRE(outer.size() == seen.size() + 1);
    CHECK(outer.back() == Seen::value_type{"scale", {1}});
  }
  REQUIRE(seen.size() == 5);
  CHECK(seen[0] == Seen::value_type{"sum", {1}});
  CHECK(seen[1] == Seen::value_type{"add", {1, 1}});
  CHECK(seen[4] == Seen::value_type{"scale", {4, 4}});
  run(leaf({2}));
  CHECK(seen.size() == 5);
}

TEST_CASE("what an observer throws ends backward, and an op without a gradient is not shown") {
  const Tensor a = leaf({2});
  Seen seen;
  {
    const SeeGradients observer(seen);
    const Tensor x = scale(a, 3);
    backward(sum(record("stop", x.clone(), {x}, [](const Tensor&) -> Gradients { return {Tensor()}; })));
  }
  CHECK(seen.size() == 2);
  CHECK(seen.back().first == "stop");
  const ThrowAtGradient thrower;
  CHECK_THROWS_AS(backward(sum(a)), std::runtime_error);
  CHECK(ambient().recording);
}

// --- long chains ---

// On a stack of 256 KiB a recursion over 100,000 nodes cannot survive.
void on_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  const auto call = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, call, &body) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_CASE("a chain of 100,000 ops needs no stack: forward, backward, and freed used or unused") {
  // One value for both inputs of an op: a destructor that follows edges with a single owner does not see this one.
  const auto link = [](const Tensor& x) { return scale(add(x, x), 0.5); };
  constexpr int length = 100000;
  const size_t before = live();
  on_small_stack([&] {
    const Tensor a = leaf({});
    Tensor y = a;
    for (int i = 0; i < length; ++i) y = link(y);
    backward(y);
    CHECK(a.grad().item() == 1);
    y = {};
    for (int i = 0; i < length; ++i) y = link(i ? y : a);
    y = {};  // never run
  });
  CHECK(live() == before);
}

}  // namespace
}  // namespace hs
