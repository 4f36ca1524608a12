// Reverse-mode automatic differentiation on a tape of closures.
//
// An op computes y and calls record("relu", y, {x}, [y = y.saved()](const Tensor& dy) {...}). The capture list of that
// lambda IS the list of activations kept for backward: nothing else stays alive, because the edges of the graph
// (GradInfo) carry shapes and history but no data. backward() walks the tape once and frees each node as it goes.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "engine/ambient.h"
#include "engine/observe.h"
#include "engine/tensor.h"

namespace hs {

// One gradient per input of the op, in order; an undefined tensor stands for "none needed".
using Gradients = std::vector<Tensor>;
// The rule of an op: from dL/dy to the gradients of its inputs. By value, so that it can release dy before it returns.
using Backward = std::function<Gradients(Tensor dy)>;

struct Node;

// What the graph knows of a tensor, all but its bytes. A leaf (a weight, an input) has no node; its gradient is here.
struct GradInfo : NonCopyable {
  GradInfo(const Shape& of_shape, DType of_dtype) : shape(of_shape), dtype(of_dtype) {}  // a leaf without a gradient
  ~GradInfo();
  Shape shape;                      // the tensor's
  DType dtype;                      // the tensor's, and its gradient's
  std::shared_ptr<Node> node;       // the op that made the tensor; none for a leaf
  Tensor grad;                      // this and the rest: of leaves only; read it by gradient_of()
  bool grad_is_zero = false;        // grad counts as zeros, whatever it holds, until something is written to it
  bool is_claimed = false;          // the rule that runs writes to grad itself
  uint32_t writes = 0;              // to grad, by rules, since it was zero: for statistics and ranks
  std::weak_ptr<const void> arena;  // expired unless a live ParameterArena owns the parameter
  bool lacks_arena = false;         // a module's parameter that is in no ParameterArena
  Tensor cast;                      // the value in a 16-bit type, as of version cast_version of its storage
  uint64_t cast_version = 0;        // the storage version that cast was made from
};

// One recorded op.
struct Node {
  const char* op = "";                            // its name, a literal
  std::vector<std::shared_ptr<GradInfo>> inputs;  // null where the input needs no gradient
  Backward backward;                              // empty once it has run
  std::shared_ptr<Tensor> more;                   // where the last gradient waits for a rule that adds up two itself
  uint64_t walk = 0;                              // which call of backward() has met it last,
  size_t place = 0;                               // and its place in the order there
};

// Attaches history to y if recording is on and some input needs a gradient; returns y.
// To skip a gradient that is not needed, an op captures x.requires_grad() and returns an undefined tensor.
Tensor record(const char* op, Tensor y, std::initializer_list<Tensor> inputs, Backward backward);

// record() without checking the inputs, for an op that cannot see its parameters (engine/checkpoint.h).
Tensor record_always(const char* op, Tensor y, std::initializer_list<Tensor> inputs, Backward backward);

// Runs the tape from y with dL/dy (default: one, for a scalar). Gradients of leaves accumulate in grad(); interior
// gradients live inside this call only. Throws if the tape was used before, if y has no history, or if a saved tensor
// was modified since.
void backward(const Tensor& y, Tensor dy = {});
// The same, given y's place in the graph; y's data may already have been freed.
void backward(const std::shared_ptr<GradInfo>& y, Tensor dy);

// A parameter as a backward rule captures it, which does not need its bytes. If the leaf has a buffer for its gradient
// (a parameter in the arena), the rule may write there directly, which saves a pass.
class GradientTarget {
 public:
  explicit GradientTarget(const Tensor& parameter) : info_(parameter.grad_info()) {}  // parameter may be undefined
  bool wanted() const { return info_ != nullptr; }  // false: the parameter is constant or undefined
  DType dtype() const { return info_->dtype; }      // REQUIRES: wanted()

  // What to write to, and to return: the buffer if it is claimed, else a new tensor; undefined if not wanted.
  Tensor tensor(Device device) const {
    return !info_ ? Tensor() : info_->is_claimed ? info_->grad : Tensor::empty(info_->shape, info_->dtype, device);
  }

 private:
  friend bool claim_gradients(std::initializer_list<const GradientTarget*> targets);
  bool has_buffer() const { return !info_->node && info_->grad.defined(); }

  std::shared_ptr<GradInfo> info_;
};

// For a kernel that computes these gradients at once. Claims the leaves' buffers if all that are wanted have one of
// their own, and counts them as written: the caller must write every element of each. Returns whether it must add to
// what they hold.
bool claim_gradients(std::initializer_list<const GradientTarget*> targets);

// The gradient of a leaf, complete: where it only counts as zeros, there are zeros.
Tensor& gradient_of(GradInfo& leaf);

}  // namespace hs
