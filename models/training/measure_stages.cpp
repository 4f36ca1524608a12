#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/autograd.h"
#include "models/training/checkpoint_plan.h"
#include "models/training/train_step.h"

namespace hs {
namespace {

using Clock = std::chrono::steady_clock;

class Measurement {
 public:
  Measurement(const StagedModel& model, const Tensor& images, const Tensor& labels)
      : stages_(model.stages()), device_(images.device()), group_(1), inputs_(stages_.size() + 1) {
    stages_.push_back({"loss", [&model, of = NetworkInput{images, labels}](const Tensor& output) {
                         return loss_of(model, output, of);
                       }});
    group_ = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(stages_.size()))));
    inputs_[0] = images;
    has_history_.resize(stages_.size() + 1);
    costs_.stages.resize(stages_.size());
    costs_.fixed = live() + step_scalars;
  }

  StepCosts run() {
    for (size_t begin = 0; begin < stages_.size(); begin += group_) run_group(begin, true);
    for (size_t i = stages_.size(); i-- > 0;) {
      if (!inputs_[i].defined()) run_group(i / group_ * group_, false);
      measure(i);
    }
    return costs_;
  }

 private:
  int64_t live() const { return static_cast<int64_t>(memory_stats(device_).live); }

  // Peak since the last reset, which also counts towards the measurement's own peak.
  int64_t peak() {
    const auto bytes = static_cast<int64_t>(memory_stats(device_).peak);
    costs_.measuring_peak = std::max(costs_.measuring_peak, bytes);
    return bytes;
  }

  template <class Work>
  double milliseconds(const Work& work) const {
    runtime(device_).synchronize();
    const Clock::time_point start = Clock::now();
    work();
    runtime(device_).synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

  // Runs the stages from `begin` on without history. The first time: to the next group, keeping that group's first
  // input. Later: within the group, keeping every input.
  void run_group(size_t begin, bool first_time) {
    const NoGrad no_history;
    ambient().met_gradient = false;
    const size_t end = std::min(begin + group_, stages_.size());
    Tensor x = inputs_[begin];
    for (size_t i = begin; i < (first_time ? end : end - 1); ++i) {
      reset_peak(device_);
      const int64_t start = live();
      Tensor y;
      const double ms = milliseconds([&] { y = stages_[i].forward(x); });
      costs_.stages[i].unrecorded_peak = peak() - start;
      costs_.stages[i].forward_ms = first_time ? ms : std::min(ms, costs_.stages[i].forward_ms);
      has_history_[i + 1] = has_history_[i] || ambient().met_gradient;
      x = std::move(y);
      if (i + 1 < stages_.size() && (!first_time || i + 1 == end)) inputs_[i + 1] = x;
    }
  }

  void measure(size_t i) {
    StageCost& cost = costs_.stages[i];
    cost.name = stages_[i].name;
    reset_peak(device_);
    const int64_t start = live();

    Tensor dx, input = inputs_[i];
    if (has_history_[i]) {
      input = record_always("stage_input", input.detach(), {}, [&dx](Tensor gradient) -> Gradients {
        dx = std::move(gradient);
        return {};
      });
    }
    Tensor y;
    cost.forward_ms = std::min(cost.forward_ms, milliseconds([&] { y = stages_[i].forward(input); }));
    cost.forward_peak = peak() - start;
    cost.input = static_cast<int64_t>(input.bytes());
    cost.output = static_cast<int64_t>(y.bytes());

    // Drop the output, then the input. If dropping one frees no memory, the tape holds it.
    const std::shared_ptr<GradInfo> tape = y.grad_info();
    const int64_t with_all = live();
    y = {};
    cost.saves_output = live() == with_all;
    const int64_t with_input = live();
    input = {};
    if (i > 0) inputs_[i] = {};  // the first one is the caller's
    cost.saves_input = live() == with_input;
    cost.saved = with_all - start - cost.output;

    if (!gradient_.defined()) {
      const MemoryPurposeScope purpose(MemoryPurpose::gradients);
      gradient_ = Tensor::from(std::vector<float>{1}, {}).to(device_);
    }
    reset_peak(device_);
    const int64_t start_of_backward = live();
    cost.backward_ms = milliseconds([&] {
      if (tape) backward(tape, std::move(gradient_));
    });
    cost.backward_peak = peak() - start_of_backward;
    gradient_ = std::move(dx);
  }

  std::vector<Stage> stages_;
  const Device device_;
  size_t group_;                   // stages between two inputs that are kept throughout
  std::vector<Tensor> inputs_;     // of each stage; undefined if not kept now
  std::vector<bool> has_history_;  // of each stage's input: a stage before it has something that is trained
  Tensor gradient_;                // dL/d(output) of the current stage
  StepCosts costs_;
};

}  // namespace

StepCosts measure_stages(const StagedModel& model, const Tensor& images, const Tensor& labels) {
  const AmbientScope scope;
  ambient().recording = true;
  return Measurement(model, images, labels).run();
}

}  // namespace hs
