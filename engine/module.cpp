#include "engine/module.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/random.h"
#include "engine/slots.h"

namespace hs {

void Module::add_parameter(std::string name, Tensor& value, ParameterRole role) {
  const bool is_head = role == ParameterRole::head || (!own_.empty() && own_.back().is_head);
  own_.push_back({.name = std::move(name), .value = &value, .role = role, .is_head = is_head});
  if (!value.defined() || value.dtype() != DType::f32) return;  // ParameterArena says what is wrong
  value.set_requires_grad(true);
  value.grad_info()->lacks_arena = true;
}

void Module::add_statistic(std::string name, Tensor& value) {
  own_.push_back({std::move(name), &value, ParameterRole::norm, true});
}

void Module::add_child(std::string name, Module& child) { children_.emplace_back(std::move(name), &child); }

std::vector<NamedParameter> Module::parameters() {
  std::vector<NamedParameter> all = own_;
  for (auto& [child_name, child] : children_) {
    for (NamedParameter& parameter : child->parameters()) {
      parameter.name = child_name + "." + parameter.name;
      all.push_back(std::move(parameter));
    }
  }
  return all;
}

void Module::visit(const std::function<void(Module&)>& use) {
  use(*this);
  for (auto& [name, child] : children_) child->visit(use);
}

void Module::freeze(Freeze what) {
  visit([what](Module& module) {
    for (NamedParameter& parameter : module.own_) {
      if (what == Freeze::body && parameter.is_head) continue;
      check(!parameter.value->requires_grad() || parameter.value->grad_info()->arena.expired(),
            "freeze: parameter {} is in a ParameterArena already; freeze before it is made", parameter.name);
      parameter.is_frozen = true;
      *parameter.value = parameter.value->detach();
    }
  });
}

int64_t Module::parameter_count(bool statistic, bool frozen) {
  int64_t count = 0;
  for (const NamedParameter& parameter : parameters()) {
    if (parameter.is_statistic == statistic && parameter.is_frozen == frozen) count += parameter.value->size();
  }
  return count;
}

double normal_number(double deviation, uint32_t bits0, uint32_t bits1) {
  const double radius = std::sqrt(-2 * std::log(1.0 - to_unit_float(bits0)));
  return deviation * radius * std::cos(2 * std::numbers::pi * to_unit_float(bits1));
}

Tensor uniform_init(const Shape& shape, int64_t fan_in, uint64_t seed, uint32_t layer, uint32_t which) {
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  RandomSequence numbers({seed, RandomPurpose::init, layer, which, 0});
  const float bound = 1.0f / std::sqrt(static_cast<float>(fan_in));
  Tensor values = Tensor::empty(shape, DType::f32);
  float* data = values.mutable_data<float>();
  for (int64_t i = 0; i < values.size(); ++i) data[i] = (2 * to_unit_float(numbers.next()) - 1) * bound;
  return values;
}

namespace {

// Elements of a parameter in the arena, with the gap behind it.
int64_t slot_size(int64_t size) {
  constexpr int64_t granule = ParameterArena::granule;
  return (size + granule - 1) / granule * granule;
}

}  // namespace

ParameterArena::ParameterArena(Module& module, Device device) : parameters_(module.parameters()) {
  std::stable_partition(parameters_.begin(), parameters_.end(), std::mem_fn(&NamedParameter::is_statistic));
  int64_t size = 0;  // of those that are not frozen
  for (const NamedParameter& parameter : parameters_) {
    const Tensor& value = *parameter.value;
    check(value.defined(), "parameter {} is undefined; give it a value before the ParameterArena is made",
          parameter.name);
    check(value.dtype() == DType::f32, "parameter {} is {}, expected f32", parameter.name, name(value.dtype()));
    check(!value.requires_grad() || value.grad_info()->arena.expired(),
          "parameter {} is in another ParameterArena already, whose optimizer would lose it; use that one, or end it "
          "first",
          parameter.name);
    check(std::ranges::count(parameters_, parameter.value, &NamedParameter::value) == 1,
          "parameter {} is registered twice; register it, or its layer, once", parameter.name);
    if (!parameter.is_frozen) size += slot_size(value.size());
    if (parameter.is_statistic) statistics_size_ = size;
  }
  {
    const MemoryPurposeScope purpose(MemoryPurpose::parameters);
    values = Tensor::zeros({size}, DType::f32, device);
  }
  {
    const MemoryPurposeScope purpose(MemoryPurpose::gradients);
    gradients_ = Tensor::zeros({size}, DType::f32, device);
  }
  for (const NamedParameter& parameter : parameters_) {
    const MemoryPurposeScope purpose(MemoryPurpose::parameters);
    if (parameter.is_frozen) *parameter.value = parameter.value->detach().to(device);
  }
  std::erase_if(parameters_, std::mem_fn(&NamedParameter::is_frozen));
  int64_t begin = 0;
  for (const NamedParameter& parameter : parameters_) {
    Tensor& tensor = *parameter.value;
    Tensor slice = values.slice(begin, tensor.shape());
    slice.copy_from(tensor.detach().to(device));
    slice.set_requires_grad(true);
    slice.grad() = gradients_.slice(begin, tensor.shape());
    slice.grad_info()->arena = lives_;
    begin += slot_size(tensor.size());
    tensor = slice;
  }
}

Tensor& ParameterArena::gradients() {
  for (const NamedParameter& parameter : parameters_) gradient_of(*parameter.value->grad_info());
  return gradients_;
}

void ParameterArena::zero_gradients() {
  for (const NamedParameter& one : parameters_) {
    GradInfo& info = *one.value->grad_info();
    info.grad_is_zero = true, info.writes = 0;
  }
}

void ParameterArena::cast_parameters(DType type) {
  if (casts_match() && casts_.dtype() == type) return;
  const Op op("cast_parameters");
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  if (!casts_.defined() || casts_.dtype() != type) {
    casts_ = Tensor::empty({values.size() - statistics_size_}, type, values.device());
    for (const NamedParameter& parameter : parameters_) {
      if (parameter.is_statistic) continue;
      const int64_t begin = offset(parameter) - statistics_size_;
      parameter.value->grad_info()->cast = casts_.slice(begin, parameter.value->shape());
    }
  }
  cast_forward({values.slice(statistics_size_, casts_.shape()), casts_});
  casts_match_now();
}

void ParameterArena::update(const std::function<void(Tensor& casts)>& change) {
  if (!casts_match()) return change(no_tensor());
  change(casts_);
  casts_match_now();
}

bool ParameterArena::casts_match() const { return casts_.defined() && casts_version_ == values.version(); }

void ParameterArena::casts_match_now() {
  casts_version_ = values.version();
  for (const NamedParameter& parameter : parameters_) parameter.value->grad_info()->cast_version = casts_version_;
}

}  // namespace hs
