// What a program shares with an installed halfstep, whatever it is compiled with: kernel slots, the state of a thread,
// memory, exceptions. The program has folders called engine and data of its own.
#include <halfstep/halfstep.h>

#include <algorithm>
#include <cstdio>
#include <typeinfo>

#include "data/loader.h"
#include "engine/tensor.h"

using namespace hs;

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("does not hold: %s\n", what);
  ++failures;
}

// The user's own op, slot and kernel.
struct TwiceForward {
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit Kernel<TwiceForward> twice_forward{"twice_forward"};

void run_twice(const TwiceForward& call) {
  for (int64_t i = 0; i < call.x.size(); ++i) call.y.mutable_data<float>()[i] = 2 * call.x.data<float>()[i];
}

REGISTER_KERNEL(twice_forward, cpu, "simple", {.run = run_twice});

Tensor twice(const Tensor& x) {
  const Op op("twice");
  Tensor y = x.empty_like();
  twice_forward({x, y});
  return record("twice", y, {x}, [](const Tensor& dy) -> Gradients { return {twice(dy)}; });
}

// The user's own observer.
struct Seen : Observer {
  Seen() : Observer(Event::work | Event::gradient, Watch::this_thread) {}
  void work_begins(const DeviceWork& work) override { kernels.push_back(work.name + std::string(" ") + work.variant); }
  void gradient(const char*, const Tensor&) override { ++gradients; }
  std::vector<std::string> kernels;
  int gradients = 0;
  const Attached attached{*this};
};

void check_slots() {
  // Those that engine/, kernels/ and the user declare.
  const std::vector<KernelSlot*> slots = kernel_slots();
  const auto is_known = [&](const KernelSlot& slot) { return std::ranges::count(slots, &slot) == 1; };
  expect(is_known(cast_forward) && is_known(add_forward) && is_known(gather_samples),
         "slots of engine/ are the library's");
  expect(is_known(gemm) && is_known(conv2d_forward) && is_known(relu_forward), "slots of kernels/ are the library's");
  expect(is_known(twice_forward), "a slot of the user's is known to the library");
  try {
    gemm.force("eigen");
    const Seen seen;
    matmul(Tensor::zeros({2, 3}, DType::f32), Tensor::zeros({3, 4}, DType::f32));
    expect(seen.kernels == std::vector<std::string>{"gemm eigen"}, "gemm.force() is heeded, and observed");
    gemm.force(nullptr);
  } catch (const Error& error) {
    expect(false, error.what());
  }
}

void check_scopes() {
  Tensor x = Tensor::from<float>({-1, 0, 2}, {1, 3});
  x.set_requires_grad(true);
  backward(relu(twice(x)), Tensor::from<float>({5, 6, 7}, {1, 3}));
  expect(x.grad().to_vector<float>() == std::vector<float>{0, 0, 14}, "the gradient of relu(2 x)");
  backward(checkpoint([](const Tensor& x) { return relu(twice(x)); }, x), Tensor::from<float>({5, 6, 7}, {1, 3}));
  expect(x.grad().to_vector<float>() == std::vector<float>{0, 0, 28}, "the same once more, checkpointed");
  {
    const NoGrad scope;
    expect(!relu(x).requires_grad() && !twice(x).requires_grad(), "NoGrad ends history");
  }
  {
    const Inference scope;
    LayerKeys keys(1);
    expect(!relu(x).requires_grad(), "Inference ends history");
    expect(Dropout(0.9, keys).forward(x).to_vector<float>() == x.to_vector<float>(), "Inference drops nothing");
  }
  expect(relu(x).requires_grad(), "NoGrad and Inference end");

  LayerKeys keys(1);
  Linear layer(3, 2, keys);
  {
    const Autocast scope(Precision::bf16);
    expect(layer.forward(x).dtype() == DType::bf16, "Autocast begins");
  }
  expect(layer.forward(x).dtype() == DType::f32, "Autocast ends");

  const Seen seen;
  backward(relu(twice(x)), Tensor::zeros({1, 3}, DType::f32));
  expect(seen.gradients == 2, "an observer sees the gradients of the ops");
}

void check_memory() {
  const auto activations = [] {
    return memory_stats(Device::cpu).live_by_purpose[static_cast<size_t>(MemoryPurpose::activations)];
  };
  const size_t before = activations();
  const Op op("the user's");
  const Tensor tensor = Tensor::zeros({1000}, DType::f32);
  expect(activations() - before == tensor.bytes(), "what is made inside a user's op is an activation");
}

void check_errors() {
  try {
    relu(Tensor());
    expect(false, "an undefined tensor is refused");
  } catch (const Error& error) {
    expect(error.code() == ExitCode::usage && typeid(error) == typeid(Error), "an error has its type and code");
  } catch (...) {
    expect(false, "an error is an hs::Error");
  }
}

}  // namespace

int main() {
  [[maybe_unused]] const EngineOfAnotherKind engine;
  [[maybe_unused]] const DataOfAnotherKind data;
  check_slots();
  check_scopes();
  check_memory();
  check_errors();
  return failures == 0 ? 0 : 1;
}
