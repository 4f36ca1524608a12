// Loss scaling: training whose gradients are stored in float16, which knows nothing between 0 and 6e-8.
//
// Every step of backward multiplies the gradient that arrives by a derivative, and adds such products up. So backward
// is linear in the dL/dL = 1 that it starts from: started with S it arrives at S dL/dw, and the update divides by S in
// f32. A power of two changes only the exponent, so neither rounds. The rule finds S: halve it and skip the step if a
// gradient is not finite, double it after `interval` finite steps in a row.
// The model is y = w x with L = 1/n sum (y - t)^2 / 2, so dL/dy_i = (y_i - t_i) / n and dL/dw = sum dL/dy_i x_i.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

namespace {

// The nearest float16, ties to even: 11 bits from 2^-14 up, multiples of 2^-24 below, inf from 65520 on.
float f16(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const float unit = std::ldexp(1.0f, std::max(std::ilogb(x), -14) - 10), rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) > 65504 ? std::copysign(std::numeric_limits<float>::infinity(), x) : rounded;
}

struct LossScale {
  float scale = 65536;
  int interval = 2000, finite_steps = 0, skipped = 0;

  void update(bool finite) {
    if (!finite) {
      scale = std::max(scale / 2, 1.0f), finite_steps = 0, ++skipped;
    } else if (++finite_steps == interval) {
      scale *= 2, finite_steps = 0;
    }
  }
};

constexpr int batch = 1 << 20, different = 64;  // a million samples, of which every 64th is the same
constexpr float slope = 0.5f;

struct Gradient {
  float dw = 0;      // scale * dL/dw
  int vanished = 0;  // gradients dL/dy that are not 0 and became 0
};

Gradient backward(float w, float scale) {
  Gradient gradient;
  for (int i = 0; i < different; ++i) {
    const float x = static_cast<float>(2 * i - different) / different;
    const float exact = scale * (1.0f / batch) * (w * x - slope * x), dy = f16(exact);
    gradient.vanished += dy == 0 && exact != 0;
    gradient.dw += dy * x * (static_cast<float>(batch) / different);  // products are added up in f32
  }
  return gradient;
}

// 400 steps; returns w. `adapt`: whether the rule changes the scale. `show`: prints when it does.
float train(LossScale& loss_scale, bool adapt, bool show = false) {
  float w = 0;
  for (int step = 0; step < 400; ++step) {
    const float scale = loss_scale.scale;
    const Gradient gradient = backward(w, scale);
    const bool finite = std::isfinite(gradient.dw);
    if (finite) w -= 0.1f * (gradient.dw / scale);
    if (adapt) loss_scale.update(finite);
    if (!show || loss_scale.scale == scale) continue;
    const int power = std::ilogb(scale);
    std::printf("step %3d  2^%d %s %s\n", step, power, std::string(static_cast<size_t>(power - 30), '#').c_str(),
                finite ? "doubled" : "inf: skipped, halved");
  }
  return w;
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) {  // --show
    LossScale shown{std::ldexp(1.0f, 40), 15};
    train(shown, true, true);
  }
  LossScale none{1}, fixed{65536}, too_large{std::ldexp(1.0f, 40), 100};
  const float without = train(none, false), with = train(fixed, false), found = train(too_large, true);
  std::printf("the slope is %g; without a scale: %.4f, and %d of %d gradients are 0 that should not be\n", slope,
              without, backward(without, 1).vanished, different);
  std::printf("scaled by 65536: %.4f; from 2^40 the rule skips %d steps and ends with 2^%d: %.4f\n", with,
              too_large.skipped, std::ilogb(too_large.scale), found);
  const bool linear = backward(0, 1 << 20).dw / (1 << 20) == backward(0, 1 << 24).dw / (1 << 24);
  std::printf("the gradient of two scales, divided by them: %s\n", linear ? "the same bits" : "different");
  const bool works = std::abs(with - slope) < 1e-3f && std::abs(found - slope) < 1e-3f;
  return linear && works && std::abs(without - slope) > 0.01f && too_large.skipped > 0 ? 0 : 1;
}
