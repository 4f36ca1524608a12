// Layers: ops together with their parameters. Weights and biases start uniform in +-1/sqrt(fan_in), from the model's
// seed and the layer's number, so that a layer's start does not depend on the layers around it.
#pragma once

#include "engine/module.h"
#include "kernels/conv2d.h"

namespace hs {

// (N, ...) -> (N, all the rest), differentiable. Throws if x is a scalar.
Tensor flatten(const Tensor& x);

class Conv2d : public Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options, uint64_t seed, uint32_t layer);
  Tensor forward(const Tensor& x) override;  // (N, H, W, in_channels) -> (N, OH, OW, out_channels)

 private:
  Conv2dOptions options_;
  Tensor weight_;  // (KH*KW*in_channels, out_channels)
  Tensor bias_;    // (out_channels)
};

class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, uint64_t seed, uint32_t layer);
  Tensor forward(const Tensor& x) override;  // (N, in) -> (N, out)
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  Tensor weight_;  // (in, out)
  Tensor bias_;    // (out)
};

// Drops only while ambient().training; the mask follows from the ambient seed, step and micro-step and the layer
// number.
class Dropout : public Module {
 public:
  Dropout(double rate, uint32_t layer) : rate_(rate), layer_(layer) {}
  Tensor forward(const Tensor& x) override;

 private:
  double rate_;
  uint32_t layer_;
};

}  // namespace hs
