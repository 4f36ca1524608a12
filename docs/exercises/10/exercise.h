// Exercise 10, of docs/chapters/06_mixed_precision.md: a training in f16, with all that makes it one: rounding, master
// weights, a scaled loss. Edit exercise.cpp beside this file, then run tests/exercise 10.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace exercise {

// The value that f16 stores for x: 11 significant bits, multiples of 2^-24 below 2^-14, inf from 65520 on.
inline float f16(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const float ulp = std::ldexp(1.0f, std::max(std::ilogb(x), -14) - 10);
  const float rounded = std::nearbyint(x / ulp) * ulp;
  return std::abs(rounded) < 65536 ? rounded : std::copysign(std::numeric_limits<float>::infinity(), x);
}

struct Sample {
  float x, target;
};

struct State {
  float weight = 0;     // the master weight of train(), f32
  float scale = 65536;  // of the loss; a power of two
  int finite = 0;       // steps since the scale last changed
  int skipped = 0;      // steps that were skipped
};

// A step: each weight -= rate * its gradient / scale, in f32. If one of the gradients is not finite, the step is
// skipped: all weights stay as they are, and the scale is halved, to not below 1. After growth_interval finite steps
// without a change of the scale it is doubled, to not above 2^24. state.weight is train()'s, and not used here.
void update(std::span<float> weights, std::span<const float> gradients, float rate, int growth_interval, State& state);

// Makes `steps` steps of gradient descent on L = 1/n sum (y - target)^2 / 2, with y = weight * x, as a GPU would in
// f16:
//
//   forward    w, y and y - target are each rounded to f16
//   backward   begins with dL/dL = scale; dy = scale / n * (y - target), then the product dy * x, are each rounded to
//   f16;
//              scale / n is f32, and so is the sum over the samples
//   step       update()
//
// REQUIRES: samples is not empty
void train(std::span<const Sample> samples, int steps, float rate, int growth_interval, State& state);

}  // namespace exercise
