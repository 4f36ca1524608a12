#include "engine/checkpoint.h"

#include "engine/autograd.h"

namespace hs {

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
  if (!ambient().recording) return fn(x);
  Ambient state = ambient();
  if (state.step.defined()) state.step = state.step.saved();  // a later step would give another dropout mask

  Tensor y;
  bool has_parameters = false;
  {
    const NoGrad no_history;
    ambient().met_gradient = false;
    y = fn(x.detach());
    has_parameters = ambient().met_gradient;
  }
  if (!x.requires_grad() && !has_parameters) return y;

  return record_always("checkpoint", y.detach(), {x},
                       [fn, state, x = x.saved(), needs_x = x.requires_grad()](Tensor dy) -> Gradients {
                         const AmbientScope scope(state);
                         Tensor input = x, dx;
                         if (needs_x) {
                           input = record_always("checkpoint_input", input, {}, [&dx](Tensor gradient) -> Gradients {
                             dx = std::move(gradient);
                             return {};
                           });
                         }
                         std::shared_ptr<GradInfo> again;  // only the tape: the result is not needed a second time
                         {
                           const MemoryPurposeScope purpose(MemoryPurpose::activations);
                           again = fn(input).grad_info();
                         }
                         backward(again, std::move(dy));
                         return {dx};
                       });
}

}  // namespace hs
