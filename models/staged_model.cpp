#include "models/staged_model.h"

#include "engine/check.h"
#include "engine/checkpoint.h"

namespace hs {

void StagedModel::add_stage(std::string name, std::function<Tensor(const Tensor&)> forward) {
  stages_.push_back({std::move(name), std::move(forward)});
}

void StagedModel::set_segments(std::vector<Segment> segments) {
  size_t position = 0;
  for (const Segment& s : segments) {
    check(position <= s.begin && s.begin < s.end && s.end <= stages_.size(),
          "set_segments: stages {} to {} after stage {} of {}; expected segments in order, not empty and apart",
          s.begin, s.end, position, stages_.size());
    position = s.end;
  }
  segments_ = std::move(segments);
}

void StagedModel::adapt(const LoraOptions&, LayerKeys&) {
  fail(ExitCode::usage, "this model has no linear layers that take adapters; char_gpt has");
}

Tensor StagedModel::run(size_t begin, size_t end, const Tensor& x) const {
  Tensor y = stages_[begin].forward(x);
  for (size_t i = begin + 1; i < end; ++i) y = stages_[i].forward(y);
  return y;
}

Tensor StagedModel::forward(const Tensor& x) {
  Tensor y = x;
  size_t position = 0;
  for (const Segment& s : segments_) {
    if (position < s.begin) y = run(position, s.begin, y);
    y = checkpoint([this, s](const Tensor& input) { return run(s.begin, s.end, input); }, y);
    position = s.end;
  }
  return position < stages_.size() ? run(position, stages_.size(), y) : y;
}

}  // namespace hs
