// The kernels behind Optimizer::step on the CUDA device, which must give the CPU's bits: on whole numbers the norm is
// exact, and the rest is the same arithmetic on both. What a step means: tests/engine/optim.cpp, grad_scaler.cpp; every
// update at other sizes, and that a skipped one changes nothing: the rows of kernels/optimizer.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"
#include "tests/support/checks.h"
#include "tests/support/emulated.h"
#include "tests/support/random_tensor.h"

namespace hs::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

Tensor on_device(const Tensor& x) { return x.to(Device::cuda); }
bool same_on_device(const Tensor& host, const Tensor& device) { return same_bytes(host, device.to(Device::cpu)); }

// What begin_step() reads and writes on one device.
struct Training {
  Tensor step, rates, scaler, measured;

  Training(float scale, const std::function<Tensor(const Tensor&)>& place) {
    step = place(Tensor::zeros({}, DType::i32));
    rates = place(Tensor::from(std::vector<float>{0, 0, 0, 0, 0, 0.01f}, {step_rates}));
    scaler = place(Tensor::from(std::vector<float>{scale, 0, 0}, {3}));
    measured = place(Tensor::zeros({2}, DType::f32));
  }
  void measure(const Tensor& gradient) { measure_gradients({gradient, scaler, measured}); }
};

bool all_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bytes);
}

TEST_CASE("steps begin with the CPU's bits: scaled, clipped, scheduled, and some of them skipped") {
  struct Step {
    float bad, scale_after;
  };
  // Grows after two steps, has a floor of 2 and a cap of 8.
  const GradScalerConfig scaling{.enabled = true, .initial = 4, .smallest = 2, .largest = 8, .growth_interval = 2};
  const std::vector<Step> steps = {{0, 4},    {0, 8}, {0, 8},   {0, 8}, {inf, 4}, {nan, 2},
                                   {-inf, 2}, {0, 2}, {nan, 2}, {0, 2}, {0, 4}};
  for (const int64_t size : {5, 70001}) {  // with 70001 a thread measures more than one
    const ScheduleKind kind = size == 5 ? ScheduleKind::step : ScheduleKind::cosine;
    const StepRule rule{0.9f, 0.999f, 100, {kind, 2, 9, 1, 0.3f}, scaling};
    Training cpu(4, [](const Tensor& x) { return x; });
    Training cuda(4, on_device);
    int clipped = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      INFO(size, " elements, step ", i);
      Tensor gradient = whole_numbers({size}, static_cast<uint32_t>(40 + i));
      if (steps[i].bad != 0) gradient.mutable_data<float>()[static_cast<int64_t>(i) * 1000 % size] = steps[i].bad;
      begin_step({rule, cpu.measured, cpu.scaler, cpu.step, cpu.rates, gradient});
      begin_step({rule, cuda.measured, cuda.scaler, cuda.step, cuda.rates, on_device(gradient)});
      clipped += steps[i].bad == 0 && cuda.measured.to_vector<float>()[0] > 100 * 100;
      CHECK(same_on_device(cpu.rates, cuda.rates));
      CHECK(same_on_device(cpu.scaler, cuda.scaler));
      CHECK(same_on_device(cpu.step, cuda.step));
      CHECK((cuda.rates.to_vector<float>()[rate_skip] != 0) == (steps[i].bad != 0));
      CHECK(cuda.scaler.to_vector<float>()[0] == steps[i].scale_after);
    }
    CHECK(cuda.step.item() == 7);
    CHECK((clipped > 0) == (size > 10000));
  }
}

TEST_CASE("updates have the CPU's bits, whichever tensor begins one element into its memory") {
  constexpr int64_t size = 1003;
  const Tensor rates = Tensor::from(std::vector<float>{0.01f, 2, 3, 0.5f, 0, 0.01f}, {step_rates});
  for (int moved = 0; moved < 5; ++moved) {  // of the gradient, two moments, the value and its cast
    CAPTURE(moved);
    std::vector<std::vector<Tensor>> results;
    for (const Device device : {Device::cpu, Device::cuda}) {
      std::vector<Tensor> t;
      for (int i = 0; i < 5; ++i) {
        const DType dtype = i == 4 ? DType::bf16 : DType::f32;
        const int64_t shift = i == moved ? 1 : 0;
        t.push_back(Tensor::empty({size + shift}, dtype, device).slice(shift, {size}));
        const Tensor x = whole_numbers({size}, static_cast<uint32_t>(i));
        t[i].copy_from(cast(mul(x, x), dtype));
      }
      sgd_step({t[0], {0.9f, 0.01f}, rates.to(device), t[1], t[3], t[4]});
      adam_step({t[0], {0.9f, 0.999f, 1e-8f, 0.05f, true}, rates.to(device), t[1], t[2], t[3], t[4]});
      std::vector<Tensor>& result = results.emplace_back();
      for (const Tensor& tensor : t) result.push_back(tensor.to(Device::cpu).clone());
    }
    CHECK(all_same(results[0], results[1]));
  }
}

TEST_CASE("a step begun in the last block that measures has the bits of one begun after it") {
  const EveryOrder in_every_order;
  const GradScalerConfig scaling{.enabled = true, .initial = 4, .smallest = 2, .growth_interval = 2};
  const StepRule rule{0.9f, 0.999f, 0.5f, {ScheduleKind::cosine, 1, 4}, scaling};
  for (const int64_t size : {1, 5000, 70001}) {
    std::vector<std::vector<Tensor>> results;  // of each variant: after each step
    for (const char* variant : {"simple", "last_block"}) {
      begin_step.force(variant);
      Training training(4, on_device);
      std::vector<Tensor>& result = results.emplace_back();
      for (const float bad : {0.0f, 0.0f, inf, 0.0f}) {
        Tensor gradient = uniform_init({size}, 4, 5, 6, static_cast<uint32_t>(result.size()));
        if (bad != 0) gradient.mutable_data<float>()[size - 1] = bad;
        begin_step(
            {rule, training.measured, training.scaler, training.step, training.rates, gradient.to(Device::cuda)});
        for (const Tensor& tensor : {training.measured, training.rates, training.scaler, training.step}) {
          result.push_back(tensor.to(Device::cpu).clone());
        }
      }
      CHECK(training.step.item() == 3);
    }
    INFO(size, " elements");
    CHECK(all_same(results[0], results[1]));
  }
  begin_step.force(nullptr);
}

TEST_CASE("a step logs its loss and the scale after it, taken or not, however it is begun") {
  const StepRule rule{0.9f, 0.999f, 0, {}, {.enabled = true, .initial = 8, .growth_interval = 2}, 0, 2};
  for (const auto& [device, variant] :
       {std::pair{Device::cpu, "simple"}, {Device::cuda, "simple"}, {Device::cuda, "last_block"}}) {
    CAPTURE(hs::name(device));
    CAPTURE(std::string(variant));
    begin_step.force(variant);
    const auto place = [device = device](const Tensor& x) { return x.to(device); };
    const auto value = [&](float x, const Shape& shape) { return place(Tensor::from(std::vector<float>{x}, shape)); };
    Training training(8, place);
    Tensor usual = place(Tensor::zeros({usual_size}, DType::f32));
    Tensor losses = place(Tensor::zeros({8}, DType::f32)), scales = losses.clone();
    const Tensor entry = place(Tensor::from(std::vector<int32_t>{2}, {}));
    const auto take = [&](int64_t step, float gradient, float loss, Tensor& scales_or_none) {
      begin_step({rule,
                  training.measured,
                  training.scaler,
                  training.step,
                  training.rates,
                  value(gradient, {1}),
                  value(loss, {}),
                  usual,
                  {entry, step, losses, scales_or_none}});
    };
    take(0, 1, 5, scales);
    take(1, inf, 6, scales);  // halves the scale
    take(2, 1, 7, scales);
    take(3, 1, 8, scales);  // the second good one after it
    take(4, 1, 9, no_tensor());
    CHECK(losses.to_vector<float>() == std::vector<float>{0, 0, 5, 6, 7, 8, 9, 0});
    CHECK(scales.to_vector<float>() == std::vector<float>{0, 0, 8, 4, 4, 8, 0, 0});
    for (int i = 0; i < 20; ++i) take(0, 1, 1, scales);
    take(5, 1, 100, scales);  // an outlier: the step is not taken
    CHECK(training.rates.to_vector<float>()[rate_skip] != 0);
    CHECK(losses.to_vector<float>().back() == 100);
    CHECK(scales.to_vector<float>().back() == training.scaler.to_vector<float>()[0]);
    begin_step.force(nullptr);
  }
}

TEST_CASE("outliers of the norm and of the loss are those of the CPU, however the step is begun") {
  const StepRule rule{0.9f, 0.999f, 0, {}, {.enabled = true, .initial = 4}, 3, 2};
  const auto scalar = [](float value) { return Tensor::from(std::vector<float>{value}, {}); };
  for (const char* variant : {"simple", "last_block"}) {
    CAPTURE(std::string(variant));
    Training cpu(4, [](const Tensor& x) { return x; });
    Training cuda(4, on_device);
    Tensor usual = Tensor::zeros({usual_size}, DType::f32), on_cuda = usual.to(Device::cuda);
    for (int i = 0; i < 40; ++i) {
      CAPTURE(i);
      // Whole numbers, so that the norm is exact; one large norm, one large loss, one loss that is not finite.
      const auto size = static_cast<float>(i == 25 ? 40 : 4 + i % 3);
      const Tensor gradient = Tensor::from(std::vector<float>(5, size), {5});
      const Tensor loss = scalar(i == 30 ? 9.0f : i == 35 ? nan : 1 + 0.25f * static_cast<float>(i % 3));
      begin_step({rule, cpu.measured, cpu.scaler, cpu.step, cpu.rates, gradient, loss, usual});
      begin_step.force(variant);
      begin_step({rule, cuda.measured, cuda.scaler, cuda.step, cuda.rates, gradient.to(Device::cuda),
                  loss.to(Device::cuda), on_cuda});
      begin_step.force(nullptr);
      CHECK(same_on_device(usual, on_cuda));
      CHECK(same_on_device(cpu.scaler, cuda.scaler));
      CHECK(same_on_device(cpu.rates, cuda.rates));
      const bool skipped = i == 25 || i == 30 || i == 35;
      CHECK((cpu.rates.to_vector<float>()[rate_skip] != 0) == skipped);
    }
    CHECK(cuda.step.item() == 37);
    CHECK(cuda.scaler.to_vector<float>() == std::vector<float>{2, 4, 3});
  }
}

TEST_CASE("measure_gradients notices what is not finite anywhere, and nothing else") {
  for (const int64_t size : {1, 70001}) {
    Training training(1, on_device);
    const auto measured = [&](int64_t place, float value) {
      Tensor gradient = Tensor::zeros({size}, DType::f32);
      gradient.mutable_data<float>()[place] = value;
      training.measure(gradient.to(Device::cuda));
      return training.measured.to_vector<float>();
    };
    for (const int64_t place : std::set<int64_t>{0, size / 2, size - 1}) {
      INFO("element ", place, " of ", size);
      for (const float bad : {inf, -inf, nan}) CHECK(measured(place, bad)[1] > 0);
      CHECK(measured(place, -3) == std::vector<float>{9, 0});
      CHECK(measured(place, std::numeric_limits<float>::max()) == std::vector<float>{inf, 0});  // finite itself
    }
  }
}

}  // namespace
}  // namespace hs::test
