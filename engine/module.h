// Module: something with parameters. ParameterArena: all of them in one f32 buffer, their gradients in a second one.
// With the arena the optimizer is one kernel over one array, and "accumulate gradients" means "do not zero them".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace hs {

struct NamedParameter {
  std::string name;  // "conv1.weight"
  Tensor* value;     // the module's member
};

// Neither copyable nor movable: parameters() hands out pointers to members.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;

  // Depth first, in the order of registration.
  std::vector<NamedParameter> parameters();
  int64_t parameter_count();

 protected:
  void add_parameter(std::string name, Tensor& value);
  void add_child(std::string name, Module& child);

 private:
  std::vector<NamedParameter> own_;
  std::vector<std::pair<std::string, Module*>> children_;
};

// Numbers the layers of a model, 1, 2, 3, ... as they are made: a layer's first weights and its dropout masks follow
// from the seed and its number. One for each model, passed on to its parts, so that no two layers share their numbers.
class LayerKeys {
 public:
  explicit LayerKeys(uint64_t seed) : seed_(seed) {}
  LayerKeys(const LayerKeys&) = delete;
  LayerKeys& operator=(const LayerKeys&) = delete;

  uint64_t seed() const { return seed_; }
  uint32_t next() { return ++last_; }

 private:
  const uint64_t seed_;
  uint32_t last_ = 0;
};

// Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)), for weight and bias alike, from (seed, layer): parameter tensors of one
// layer differ by `which`. The numbers do not depend on other layers.
Tensor uniform_init(const Shape& shape, int64_t fan_in, uint64_t seed, uint32_t layer, uint32_t which);

class ParameterArena {
 public:
  // Moves the module's parameters to `device` and into the arena: afterwards each is a leaf whose value and gradient
  // are slices, 256-byte aligned. The module must outlive the arena's use. Throws Error (usage) if a parameter is not
  // f32, or is in another arena that lives: that one's optimizer would go on without it.
  explicit ParameterArena(Module& module, Device device = Device::cpu);
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  Tensor values;     // (size); the gaps between slices hold zeros
  Tensor gradients;  // (size)
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  void zero_gradients() { gradients.fill_zero(); }

  // Gives every parameter a copy in f16 or bf16, as it is now, in one kernel (GradInfo::cast).
  void cast_parameters(DType type);

 private:
  std::vector<NamedParameter> parameters_;
  Tensor casts_;                                                  // (size), in the type last asked for
  std::shared_ptr<const void> lives_ = std::make_shared<char>();  // GradInfo::arena refers to it
};

}  // namespace hs
