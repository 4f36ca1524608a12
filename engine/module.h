// Module: a function with parameters. ParameterArena: its parameters in one f32 buffer, their gradients in a second
// one. With the arena the optimizer is one kernel over one array, and "accumulate gradients" means "do not zero them".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace hs {

// What a parameter does, which optimizers ask: biases and norms may have no weight decay, LARS and LAMB give them no
// rate of their own, and Muon trains matrices alone.
enum class ParameterRole : uint8_t {
  matrix,     // of a hidden layer; a convolution's is one of (in*k*k, out)
  bias,       // what is added to each channel
  norm,       // a scale or shift of normalised values, or a statistic of theirs
  embedding,  // a table of rows
  head,       // the matrix of the last layer; what its module registers after it, a bias, is the head's too
  adapter,    // a factor of a low-rank change of a matrix
};
// Whether such a parameter has one number for each channel.
inline bool is_vector(ParameterRole role) { return role == ParameterRole::bias || role == ParameterRole::norm; }

// A parameter or statistic, as Module::parameters() lists it.
struct NamedParameter {
  std::string name;           // "conv1.weight"
  Tensor* value;              // the module's member
  ParameterRole role;         // what it does
  bool is_statistic = false;  // see Module::add_statistic()
  bool is_frozen = false;     // see Module::freeze()
  bool is_head = false;       // see ParameterRole::head
};

enum class Freeze : bool { all, body };  // body: all but the head

// What a network reads: images, or windows of a text, whose last symbols it predicts (models/training/train_step.h).
enum class InputKind : bool { images, tokens };

// Neither copyable nor movable: parameters() returns pointers to members. Kept in a std::deque, not in a std::vector.
class Module : NonCopyable {
 public:
  virtual ~Module() = default;

  virtual Tensor forward(const Tensor& x) = 0;                        // differentiable; each module defines the shapes
  virtual InputKind input_kind() const { return InputKind::images; }  // only networks are asked
  // What training minimises: the mean over the batch as a scalar, differentiable. output: what forward() made of input;
  // labels: Batch::labels. Undefined, the default: the loss of a classifier, whose accuracy is measured as well.
  virtual Tensor loss(const Tensor& /*output*/, const Tensor& /*input*/, const Tensor& /*labels*/) const { return {}; }

  // Depth first, in the order of registration.
  std::vector<NamedParameter> parameters();
  int64_t parameter_count(bool statistic = false,
                          bool frozen = false);  // values that are trained, averaged, or constant

  // The parameters and statistics registered so far, those of children included, are constants from now on: they have
  // no gradient, and no place in a ParameterArena. What is added later is trained. Throws Error (usage) if one of them
  // is in a live arena.
  void freeze(Freeze what = Freeze::all);
  // Calls it with this module and all that are registered in it, depth first.
  void visit(const std::function<void(Module&)>& use);

 protected:
  // Registers a member that is trained. A backward that reaches it before it is in a ParameterArena throws: what is not
  // registered all the way up, by add_child(), would keep its first values.
  void add_parameter(std::string name, Tensor& value, ParameterRole role);
  // A value that is not trained, but averaged over the steps: batch norm's running mean. An op's backward rule returns
  // what it has measured in a micro-batch as the gradient of this leaf; Optimizer::step() folds the mean over the
  // micro-batches into the value, or leaves it alone if no rule has returned one since the gradients were set to zero.
  // REQUIRES: each micro-batch of a step gives it a gradient, or none does
  void add_statistic(std::string name, Tensor& value);
  void add_child(std::string name, Module& child);  // registers a member; its parameters become name.THEIRS

 private:
  std::vector<NamedParameter> own_;
  std::vector<std::pair<std::string, Module*>> children_;
};

// Numbers a model's layers 1, 2, 3, ... in order of construction: a layer's initial weights and its dropout masks
// follow from the seed and its number. Each model passes one to all its parts, so no two layers share random numbers.
class LayerKeys : NonCopyable {
 public:
  explicit LayerKeys(uint64_t seed) : seed_(seed) {}  // seed: the model's

  uint64_t seed() const { return seed_; }  // the model's
  uint32_t next() { return ++last_; }      // the next layer's number, from 1

 private:
  const uint64_t seed_;
  uint32_t last_ = 0;
};

// A number from the normal distribution with mean 0, from two independent numbers (Box and Muller, 1958).
double normal_number(double deviation, uint32_t bits0, uint32_t bits1);

// Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)), for weight and bias alike, from (seed, layer); `which` distinguishes
// the parameter tensors of one layer. The values do not depend on other layers.
Tensor uniform_init(const Shape& shape, int64_t fan_in, uint64_t seed, uint32_t layer, uint32_t which);

class ParameterArena : NonCopyable {  // values in one buffer, gradients in another; not thread safe
 public:
  // Floats: each parameter begins at a multiple, which is 256 bytes (128 in 16-bit copies). Gaps are zeros. Statistics
  // come first: what is trained is one slice behind them.
  static constexpr int64_t granule = 64;

  // Moves the module's parameters to `device` and into the arena: afterwards each is a leaf whose value and gradient
  // are slices, 256-byte aligned. Frozen ones are only moved. The module must outlive the arena's use. Throws Error
  // (usage) if a parameter is not f32, or is in another live arena, whose optimizer would lose it.
  explicit ParameterArena(Module& module, Device device = Device::cpu);

  Tensor values;        // (size); the gaps between slices hold zeros
  Tensor& gradients();  // (size), complete
  // In the order of their offsets, without frozen ones.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  int64_t statistics_size() const { return statistics_size_; }  // where the trained ones begin
  // Where one of them begins in `values`.
  int64_t offset(const NamedParameter& parameter) const {
    return parameter.value->data<float>() - values.data<float>();
  }
  // Nothing is written now: what is written to a gradient next replaces what it holds, and who reads it sees zeros.
  void zero_gradients();

  // Casts every trained parameter's current value to f16 or bf16, in one kernel (GradInfo::cast), unless it has been.
  void cast_parameters(DType type);
  // Calls change(casts), which changes the values. It must update `casts`, of the trained ones, with them unless that
  // is undefined, which it is if the casts do not match the values anyway.
  void update(const std::function<void(Tensor& casts)>& change);

 private:
  bool casts_match() const;
  void casts_match_now();

  Tensor gradients_;
  std::vector<NamedParameter> parameters_;
  int64_t statistics_size_ = 0;
  Tensor casts_;                                                  // of the trained ones, in the type last requested
  uint64_t casts_version_ = 0;                                    // of the values that they match
  std::shared_ptr<const void> lives_ = std::make_shared<char>();  // GradInfo::arena refers to it
};

}  // namespace hs
