// Watches the phases of a training step, for what looks into one.
#pragma once

#include <cstring>
#include <functional>
#include <utility>

#include "engine/observe.h"

namespace hs {

// While it is alive, calls back when a phase of a step begins on this thread: "forward" and "backward" of each
// micro-batch, then "update". The callback may throw, which the step passes on.
class StepPhases : private Observer {
 public:
  // ended: the phase before, nullptr in the first
  using Begins = std::function<void(const char* phase, const char* ended)>;
  // Begins to watch.
  explicit StepPhases(Begins begins) : Observer(Event::range, Watch::this_thread), begins_(std::move(begins)) {}

 private:
  void range_begins(const Range& range) override {
    const auto is = [&](const char* name) { return std::strcmp(range.name, name) == 0; };
    if (phase_ && is(phase_)) return;  // autograd's own range within the phase "backward"
    if (is("forward") || is("backward") || is("update")) begins_(range.name, std::exchange(phase_, range.name));
  }

  const Begins begins_;
  const char* phase_ = nullptr;
  const Attached attached_{*this};
};

}  // namespace hs
