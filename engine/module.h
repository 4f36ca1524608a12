// Module: something with parameters. ParameterArena: all of them in one f32 buffer, their gradients in a second one.
// With the arena the optimizer is one kernel over one array, and "accumulate gradients" means "do not zero them".
#pragma once

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

// Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)), for weight and bias alike, from (seed, layer): parameter tensors of one
// layer differ by `which`. The numbers do not depend on other layers.
Tensor uniform_init(const Shape& shape, int64_t fan_in, uint64_t seed, uint32_t layer, uint32_t which);

class ParameterArena {
 public:
  // Moves the module's parameters to `device` and into the arena: afterwards each is a leaf whose value and gradient
  // are slices, 256-byte aligned. The module must outlive the arena's use. REQUIRES: parameters are f32.
  explicit ParameterArena(Module& module, Device device = Device::cpu);

  Tensor values;     // (size); the gaps between slices hold zeros
  Tensor gradients;  // (size)
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  void zero_gradients() { gradients.fill_zero(); }

  // Gives every parameter a copy in f16 or bf16, as it is now, in one kernel (GradInfo::cast).
  void cast_parameters(DType type);

 private:
  std::vector<NamedParameter> parameters_;
  Tensor casts_;  // (size), in the type last asked for
};

}  // namespace hs
