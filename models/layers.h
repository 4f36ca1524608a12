// Layers: ops together with their parameters, and a model that is a list of stages. Weights and biases start uniform in
// +-1/sqrt(fan_in) unless a layer is told otherwise, from the model's seed and the layer's number; both come from the
// model's LayerKeys (engine/module.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/module.h"
#include "kernels/batch_norm2d/batch_norm2d.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/dropout/dropout.h"

namespace hs {

// (N, ...) -> (N, all the rest), differentiable. Throws if x is a scalar.
Tensor flatten(const Tensor& x);

enum class Bias : bool { off, on };  // whether a layer has one

// How weights start. he_normal: from a normal distribution that is truncated at two deviations and then has the
// variance 2 / fan_in, and biases from 0 (He, Zhang, Ren, Sun, "Delving deep into rectifiers", ICCV 2015; truncated as
// in Keras).
enum class Init : uint8_t { uniform, he_normal };

class Adapters;
struct LoraOptions;

// A layer with a matrix and perhaps a bias, beside which there may be adapters (models/lora.h).
class WeightLayer : public Module {
 public:
  // Adds lora_A.weight and lora_B.weight. Throws Error (usage) unless the rank fits the weight and it has none yet.
  // REQUIRES: it is frozen: the weight gets no gradient beside them
  void adapt(const LoraOptions& options, LayerKeys& keys);
  bool is_adapted() const { return adapters_ != nullptr; }  // whether it has adapters
  // (in, out): what x is multiplied by. With adapters a product, in each call.
  Tensor weight() const;
  const Tensor& bias() const { return bias_; }  // (out), or undefined

 protected:
  // A layer sets and registers the two that it has.
  Tensor weight_;                       // (in, out), where in is KH*KW*C of a convolution
  Tensor bias_;                         // (out), or undefined
  std::shared_ptr<Adapters> adapters_;  // null: none; shared, as its type is incomplete here
};

// Drops only while ambient().training; the ambient seed, step and micro-step and the layer number determine the mask. A
// custom training loop sets ambient().step = optimizer.step_counter() first: without it, every step drops the same
// elements.
class Dropout : public Module {
 public:
  Dropout(double rate, LayerKeys& keys) : rate_(rate), layer_(keys.next()) {}  // REQUIRES: 0 <= rate < 1
  Tensor forward(const Tensor& x) override;
  DropoutRule rule() const;  // for an op that drops: a rate of 0 unless this is training

 private:
  double rate_;
  uint32_t layer_;
};

class Conv2d : public WeightLayer {  // conv2d() with its parameters
 public:
  // keys: the model's, which number its layers
  Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options, LayerKeys& keys, Bias bias = Bias::on,
         Init init = Init::uniform);
  Tensor forward(const Tensor& x) override;  // (N, H, W, in_channels) -> (N, OH, OW, out_channels)
  Tensor forward_relu(const Tensor& x);      // then ReLU
  // Then max-pooling by 2 and ReLU: (N, OH / 2, OW / 2, out_channels); and dropout, if given. As one op if
  // ambient().fuse.
  Tensor forward_pool_relu(const Tensor& x, Dropout* dropout = nullptr);

 private:
  Conv2dOptions options_;
};

// Scale and shift start at 1 and 0. The running mean and variance are statistics (Module::add_statistic), which start
// at 0 and 1; all four have PyTorch's names. Frozen, it normalizes by the running ones in training too.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t channels, const BatchNormOptions& options = {});  // channels: the last dimension of x
  Tensor forward(const Tensor& x) override;                 // (N, H, W, channels) -> the same shape
  Tensor forward(const Tensor& x, const Tensor& residual);  // relu(forward(x) + residual); options.relu must be set

 private:
  BatchNormOptions options_;
  Tensor weight_, bias_, running_mean_, running_var_;  // (channels) each
};

class Linear : public WeightLayer {  // linear() with its parameters
 public:
  // keys: the model's, which number its layers; role: of the weight
  Linear(int64_t in, int64_t out, LayerKeys& keys, Bias bias = Bias::on, Init init = Init::uniform,
         ParameterRole role = ParameterRole::matrix);
  explicit Linear(const Tensor& weight);     // (in, out), without a bias
  Tensor forward(const Tensor& x) override;  // (..., in) -> (..., out)
};

class Head : public Linear {  // the last layer of a classifier
 public:
  // (N, in) -> (N, classes), a score for each; otherwise as Linear.
  Head(int64_t in, int64_t classes, LayerKeys& keys, Bias bias = Bias::on, Init init = Init::uniform)
      : Linear(in, classes, keys, bias, init, ParameterRole::head) {}
};

struct Stage {  // a name for messages, and forward()
  std::string name;
  std::function<Tensor(const Tensor&)> forward;
};

// Stages begin to end - 1, run as one checkpoint(): forward keeps only the first one's input, and backward runs them
// all again.
struct Segment {
  size_t begin, end;
  bool operator==(const Segment&) const = default;
};

// A model that is a list of stages, each applied to the output of the previous one: the units of checkpointing.
class StagedModel : public Module {
 public:
  Tensor forward(const Tensor& x) override;

  const std::vector<Stage>& stages() const { return stages_; }        // in the order in which they run
  const std::vector<Segment>& segments() const { return segments_; }  // see set_segments()
  // From the next forward on; none (the default) keeps everything. The results are the same bits for any segments.
  // Throws Error (usage) unless they are in order, not empty, disjoint and within the stages.
  void set_segments(std::vector<Segment> segments);

  // Freezes these parameters and adds adapters to all layers but the head (models/lora.h). Throws Error (usage) if none
  // takes them, or if there are some.
  void adapt(const LoraOptions& options, LayerKeys& keys, Freeze frozen = Freeze::all);

 protected:
  void add_stage(std::string name, std::function<Tensor(const Tensor&)> forward);  // runs after those added before

 private:
  Tensor run(size_t begin, size_t end, const Tensor& x) const;  // REQUIRES: begin <= end

  std::vector<Stage> stages_;
  std::vector<Segment> segments_;
};

}  // namespace hs
