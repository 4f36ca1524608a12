#include "engine/autograd.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/check.h"
#include "engine/observe.h"
#include "engine/slots.h"

namespace hs {

Tensor record(const char* op, Tensor y, std::initializer_list<Tensor> inputs, Backward backward) {
  const bool needed = std::ranges::any_of(inputs, &Tensor::requires_grad);
  if (needed && !ambient().recording) ambient().met_gradient = true;  // for checkpoint()
  if (!needed || !ambient().recording) return y;
  return record_always(op, std::move(y), inputs, std::move(backward));
}

Tensor record_always(const char* op, Tensor y, std::initializer_list<Tensor> inputs, Backward backward) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) node->inputs.push_back(input.grad_info());
  node->backward = std::move(backward);
  auto info = std::make_shared<GradInfo>(y.shape(), y.dtype());
  info->node = std::move(node);
  y.set_grad_info(std::move(info));
  return y;
}

Tensor& gradient_of(GradInfo& leaf) {
  if (leaf.grad_is_zero) leaf.grad.fill_zero();
  leaf.grad_is_zero = false;
  return leaf.grad;
}

bool claim_gradients(std::initializer_list<const GradientTarget*> targets) {
  // Of one leaf that is wanted twice, the second gradient would replace the first.
  const auto is_alone = [&](auto* one) { return std::ranges::count(targets, one->info_, &GradientTarget::info_) == 1; };
  const auto is_free = [&](auto* one) { return !one->wanted() || (one->has_buffer() && is_alone(one)); };
  const auto is_zero = [](auto* one) { return !one->wanted() || one->info_->grad_is_zero; };
  if (!std::ranges::all_of(targets, is_free)) return false;
  const bool all_zero = std::ranges::all_of(targets, is_zero);
  for (const GradientTarget* target : targets) {
    if (!target->wanted()) continue;
    GradInfo& leaf = *target->info_;
    if (!all_zero) gradient_of(leaf);  // fills in zeros where the gradient only counts as zeros
    leaf.is_claimed = true, leaf.grad_is_zero = false, ++leaf.writes;
  }
  return !all_zero;
}

namespace {

// Nodes reachable from `root`, each after every node that uses its result: the order in which gradients are complete.
// Without it a reused value goes wrong: in b = a + a; c = b + b, visiting b before both of its gradients have arrived
// would pass on half of them. An explicit stack, because a recursive walk overflows on long chains.
std::vector<std::shared_ptr<Node>> in_backward_order(const std::shared_ptr<Node>& root) {
  static std::atomic<uint64_t> walks = 0;
  const uint64_t walk = ++walks;
  std::vector<std::shared_ptr<Node>> order;
  std::vector<std::pair<std::shared_ptr<Node>, size_t>> stack;
  order.reserve(32), stack.reserve(32);  // a usual model's
  stack.push_back({root, 0});
  root->walk = walk;
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    check(next > 0 || node->backward != nullptr,
          "backward: the tape was already used at op {}; run the forward pass again before a second backward",
          node->op);
    if (next == node->inputs.size()) {
      order.push_back(std::move(node));
      stack.pop_back();
      continue;
    }
    const auto& input = node->inputs[next++];
    if (input && input->node && input->node->walk != walk) {
      input->node->walk = walk;
      stack.push_back({input->node, 0});  // invalidates `node` and `next`
    }
  }
  std::ranges::reverse(order);
  for (size_t i = 0; i < order.size(); ++i) order[i]->place = i;
  return order;
}

struct Partial {
  Tensor sum;
  bool owned = false;  // false: `sum` may be shared (add returns one tensor for both inputs), so it must not be written
};

void add_to_leaf(GradInfo& leaf, const Tensor& gradient) {
  if (leaf.grad.defined()) {
    leaf.grad_is_zero ? leaf.grad.copy_from(gradient) : accumulate(gradient, gradient_of(leaf));
    leaf.grad_is_zero = false, ++leaf.writes;
    return;
  }
  check(
      !leaf.lacks_arena,
      "backward: a parameter {} has a gradient but is in no ParameterArena, so nothing would train it; register it or "
      "its layer (add_child), freeze() what is constant, and make the arena before the forward pass",
      leaf.shape);
  leaf.grad = gradient.clone();  // the leaf owns it: gradients may be shared with other inputs
}

// dL/dL, for a loss.
Tensor one_for(const Tensor& y) {
  check(y.size() == 1, "backward: {} is not a scalar; pass dL/dy of that shape, or call it on a scalar loss",
        y.shape());
  const MemoryPurposeScope purpose(MemoryPurpose::gradients);
  return y.dtype() == DType::f64 ? Tensor::from(std::vector<double>{1}, y.shape())
                                 : Tensor::from(std::vector<float>{1}, y.shape()).to(y.device());
}

// The first gradient of a value is its sum, and a later one is added to it.
void add_to(Partial& partial, Tensor gradient, const Node& node) {
  if (!partial.sum.defined()) {
    partial.sum = std::move(gradient);
    return;
  }
  if (node.more && !Observers::wants(Event::gradient)) std::swap(*node.more, gradient);  // an observer sees the sum
  if (!gradient.defined()) return;  // of two, the newer waits for the rule, which adds them up
  Tensor sum = partial.owned ? partial.sum : partial.sum.empty_like();
  add_forward({partial.sum, gradient, sum});
  partial = {sum, true};
}

}  // namespace

void backward(const Tensor& y, Tensor dy) {
  check(y.requires_grad(),
        "backward: the tensor {} has no history; before the forward pass, call set_requires_grad(true) on an input or "
        "make a ParameterArena, and run it outside of NoGrad and Inference",
        y.shape());
  backward(y.grad_info(), dy.defined() ? std::move(dy) : one_for(y));
}

void backward(const std::shared_ptr<GradInfo>& y, Tensor dy) {
  check(y != nullptr && dy.defined(), "backward: {} is missing, expected both y's history and dL/dy",
        y ? "dL/dy" : "y's history");
  check(dy.shape() == y->shape && dy.dtype() == y->dtype, "backward: dL/dy is {} {} but y is {} {}, expected the same",
        name(dy.dtype()), dy.shape(), name(y->dtype), y->shape);

  const Op op("backward");
  const MemoryPurposeScope purpose(MemoryPurpose::gradients);
  const AmbientScope scope;
  ambient().recording = false;  // gradients of gradients are not supported

  const auto order = y->node ? in_backward_order(y->node) : std::vector<std::shared_ptr<Node>>();
  std::vector<Partial> interior(order.size());
  const auto leaf_or_interior = [&](const std::shared_ptr<GradInfo>& info, const Tensor& gradient) {
    if (!info->node) return add_to_leaf(*info, gradient);
    const size_t place = info->node->place;
    check(place < order.size() && order[place] == info->node,
          "backward: the tape of a checkpointed block reached op {} too; give the block its result as the input",
          info->node->op);
    add_to(interior[place], gradient, *info->node);
  };

  leaf_or_interior(y, std::exchange(dy, {}));
  for (size_t place = 0; place < order.size(); ++place) {
    const auto& node = order[place];
    const Op running(node->op);
    Tensor dresult = std::exchange(interior[place], {}).sum;
    const Backward rule = std::exchange(node->backward, nullptr);  // at the end of this turn, what it saved is freed
    if (!dresult.defined()) continue;                              // every user of this value returned no gradient
    Observers::tell(Event::gradient, [&](Observer& observer) { observer.gradient(node->op, dresult); });
    for (const auto& info : node->inputs) {
      if (info) info->is_claimed = false;
    }
    Gradients gradients;
    try {
      gradients = rule(std::move(dresult));
    } catch (const Error& error) {
      throw error.with_message(fmt::format("backward of {}: {}", node->op, error.what()));
    }
    check(gradients.size() == node->inputs.size(), "backward of {}: {} gradients for {} inputs, expected one for each",
          node->op, gradients.size(), node->inputs.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto& info = node->inputs[i];
      if (!info || !gradients[i].defined()) continue;
      check(gradients[i].shape() == info->shape && gradients[i].dtype() == info->dtype,
            "backward of {}: gradient {} is {} {} but its input is {} {}, expected the same", node->op, i,
            name(gradients[i].dtype()), gradients[i].shape(), name(info->dtype), info->shape);
      const bool is_there = info->is_claimed && gradients[i].raw_data() == info->grad.raw_data();
      if (!is_there) leaf_or_interior(info, gradients[i]);
    }
  }
}

// A chain of 100,000 ops must not be destroyed recursively (each node holds its inputs' GradInfo, each of them a node):
// the outermost destructor releases all nodes; the destructors that it triggers only queue theirs.
GradInfo::~GradInfo() {
  thread_local std::vector<std::shared_ptr<Node>>* queue = nullptr;
  if (node && queue) queue->push_back(std::move(node));  // leaves none here
  if (!node) return;
  std::vector<std::shared_ptr<Node>> dying{std::move(node)};
  queue = &dying;
  while (!dying.empty()) {
    const std::shared_ptr<Node> last = std::move(dying.back());  // it dies at the end of this turn
    dying.pop_back();
  }
  queue = nullptr;
}

}  // namespace hs
