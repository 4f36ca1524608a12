#include "models/training/checkpoint_plan.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <tuple>

#include "engine/check.h"
#include "engine/parsed_number.h"

namespace hs {
namespace {

// Bytes that the tapes hold at a border between stages. `input_held`: they include the tensor at the border.
struct Remaining {
  int64_t bytes;
  bool input_held;
};

int64_t with_input(const Remaining& left, const StageCost& stage) {
  return left.bytes + (left.input_held ? 0 : stage.input);
}

Remaining after_kept(const Remaining& left, const StageCost& stage) {
  return {(stage.saves_input ? with_input(left, stage) : left.bytes) + stage.saved +
              (stage.saves_output ? stage.output : 0),
          stage.saves_output};
}

// Peak while a kept stage runs forward, recording, and while it runs backward.
int64_t peak_of_kept(const Remaining& left, const StageCost& stage) {
  return std::max(with_input(left, stage) + stage.forward_peak,
                  after_kept(left, stage).bytes + stage.output + stage.backward_peak);
}

// Peak bytes of a segment, over what is left behind at its start (its input included). add() appends a stage.
class SegmentPeak {
 public:
  void add(const StageCost& stage) {
    unrecorded_ = std::max(unrecorded_, (empty_ ? 0 : stage.input) + stage.unrecorded_peak);
    empty_ = false;
    forward_ = std::max(forward_, with_input(inside_, stage) + stage.forward_peak);
    inside_ = after_kept(inside_, stage);
    backward_ = std::max(backward_, inside_.bytes + stage.output + stage.backward_peak);
    output_ = stage.output;
  }
  // The largest of: the forward pass, the recomputation (with dL/d(output) live), the backward pass.
  int64_t bytes() const { return std::max({unrecorded_, forward_ + output_, backward_}); }

 private:
  bool empty_ = true;
  Remaining inside_{0, true};
  int64_t unrecorded_ = 0, forward_ = 0, backward_ = 0, output_ = 0;
};

Remaining after_segment(const Remaining& left, const StageCost& first) { return {with_input(left, first), false}; }

constexpr int64_t no_limit = std::numeric_limits<int64_t>::max();

// One plan for the stages before a border: the bytes left behind, the extra time, and the choice that led there.
struct Plan {
  Remaining left;
  double extra_ms;
  size_t from_border, from_plan;
  bool segment;
};

// Those of the plans up to a border that no other beats in both bytes and time. `any_time`: only those with the fewest
// bytes, whatever their time.
std::vector<Plan> best_of(std::vector<Plan> plans, bool any_time) {
  const auto key = [](const Plan& plan) { return std::tuple(plan.left.input_held, plan.left.bytes, plan.extra_ms); };
  std::ranges::sort(plans, {}, key);
  std::vector<Plan> best;
  for (const Plan& plan : plans) {
    const bool same_kind = !best.empty() && best.back().left.input_held == plan.left.input_held;
    if (!same_kind || (!any_time && plan.extra_ms < best.back().extra_ms)) best.push_back(plan);
  }
  return best;
}

// The segments that cost the least time within the budget, if any plan fits. `any_time`: those of the plan with the
// fewest bytes, which is found in less time.
std::optional<std::vector<Segment>> search(const StepCosts& costs, int64_t budget, bool any_time = false) {
  const std::vector<StageCost>& stages = costs.stages;
  std::vector<std::vector<Plan>> plans(stages.size() + 1);  // up to each border
  plans[0].push_back({{costs.fixed, true}, 0, 0, 0, false});
  for (size_t a = 0; a < stages.size(); ++a) {
    plans[a] = best_of(std::move(plans[a]), any_time);
    const bool is_loss = a + 1 == stages.size();
    for (size_t w = 0; w < plans[a].size(); ++w) {
      const Plan plan = plans[a][w];
      if (peak_of_kept(plan.left, stages[a]) <= budget) {
        plans[a + 1].push_back({after_kept(plan.left, stages[a]), plan.extra_ms, a, w, false});
      }
      if (is_loss) continue;
      const Remaining left = after_segment(plan.left, stages[a]);
      SegmentPeak peak;
      double extra_ms = plan.extra_ms;
      for (size_t b = a; b + 1 < stages.size(); ++b) {
        peak.add(stages[b]);
        extra_ms += stages[b].forward_ms;
        if (left.bytes + peak.bytes() > budget) continue;
        plans[b + 1].push_back({left, extra_ms, a, w, true});
      }
    }
  }
  if (plans.back().empty()) return {};
  std::vector<Segment> segments;
  const Plan* plan = &*std::ranges::min_element(plans.back(), {}, &Plan::extra_ms);
  for (size_t border = stages.size(); border > 0; plan = &plans[border][plan->from_plan]) {
    if (plan->segment) segments.push_back({plan->from_border, border});
    border = plan->from_border;
  }
  std::ranges::reverse(segments);
  return segments;
}

}  // namespace

double StepCosts::milliseconds() const {
  double sum = 0;
  for (const StageCost& stage : stages) sum += stage.forward_ms + stage.backward_ms;
  return sum;
}

void StepCosts::take_shorter_times(const StepCosts& again) {
  for (size_t i = 0; i < stages.size(); ++i) {
    stages[i].forward_ms = std::min(stages[i].forward_ms, again.stages[i].forward_ms);
    stages[i].backward_ms = std::min(stages[i].backward_ms, again.stages[i].backward_ms);
  }
}

PlanFigures predict(const StepCosts& costs, const std::vector<Segment>& segments) {
  PlanFigures figures;
  Remaining left{costs.fixed, true};
  auto next = segments.begin();
  for (size_t i = 0; i < costs.stages.size();) {
    if (next == segments.end() || i < next->begin) {
      figures.peak = std::max(figures.peak, peak_of_kept(left, costs.stages[i]));
      left = after_kept(left, costs.stages[i++]);
      continue;
    }
    left = after_segment(left, costs.stages[i]);
    SegmentPeak peak;
    for (; i < next->end; ++i) {
      peak.add(costs.stages[i]);
      figures.extra_ms += costs.stages[i].forward_ms;
    }
    figures.peak = std::max(figures.peak, left.bytes + peak.bytes());
    ++next;
  }
  return figures;
}

int64_t smallest_budget(const StepCosts& costs) {
  int64_t low = costs.fixed, high = predict(costs, {}).peak;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (search(costs, middle, true)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

std::vector<Segment> fastest_within(const StepCosts& costs, int64_t budget) {
  if (const auto found = search(costs, budget)) return *found;
  fail(ExitCode::usage,
       "checkpoint budget={}: this step needs {} bytes or more; use a larger budget or a smaller batch", budget,
       smallest_budget(costs));
}

std::vector<Segment> smallest_for_time(const StepCosts& costs, double extra_share) {
  const double limit = extra_share * costs.milliseconds();
  int64_t low = smallest_budget(costs), high = predict(costs, {}).peak;
  std::vector<Segment> best = fastest_within(costs, high);
  while (high - low > high / 1000) {
    const int64_t middle = low + (high - low) / 2;
    std::vector<Segment> segments = fastest_within(costs, middle);
    const PlanFigures figures = predict(costs, segments);
    if (figures.extra_ms <= limit) {
      high = figures.peak;
      best = std::move(segments);
    } else {
      low = middle + 1;
    }
  }
  return best;
}

int64_t parse_bytes(const std::string& name, std::string_view text) {
  int64_t value = 0, unit = 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const std::string_view byte : {"iB", "B"}) {
    if (suffix.size() > 1 && suffix.ends_with(byte)) suffix.remove_suffix(byte.size());
  }
  if (suffix == "k" || suffix == "K") unit = int64_t{1} << 10;
  if (suffix == "M") unit = int64_t{1} << 20;
  if (suffix == "G") unit = int64_t{1} << 30;
  const bool known = suffix.empty() || unit > 1;
  if (error != std::errc() || !known || value < 1 || value > no_limit / unit) {
    fail(ExitCode::usage, "{}{}: expected a number of bytes, with k, M or G for powers of 1024, for example 300M", name,
         text);
  }
  return value * unit;
}

CheckpointChoice parse_checkpoint(std::string_view text) {
  using Kind = CheckpointChoice::Kind;
  if (text == "off") return {};
  if (text == "all") return {Kind::every, 1};
  if (text == "budget=auto") return {Kind::automatic, 0};
  if (text.starts_with("budget=")) return {Kind::budget, parse_bytes("checkpoint budget=", text.substr(7))};
  if (text.starts_with("every=")) {
    const int64_t stages = parsed_number<int64_t>(text.substr(6)).value_or(0);
    if (stages > 0) return {Kind::every, stages};
  }
  fail(ExitCode::usage,
       "checkpoint {}: expected off, all, every=N (N stages in a segment), budget=BYTES (with k, M or G) or "
       "budget=auto",
       text);
}

std::vector<Segment> segments_of(const CheckpointChoice& choice, size_t stages) {
  check(!choice.needs_costs(), "segments_of: a budget needs the stages' costs");
  if (choice.kind == CheckpointChoice::Kind::given) return choice.segments;
  std::vector<Segment> segments;
  if (choice.kind == CheckpointChoice::Kind::off) return segments;
  for (size_t begin = 0; begin < stages;) {
    const size_t end = std::min(stages, begin + static_cast<size_t>(choice.value));
    segments.push_back({begin, end});
    begin = end;
  }
  return segments;
}

std::vector<Segment> segments_of(const CheckpointChoice& choice, const StepCosts& costs) {
  switch (choice.kind) {
    case CheckpointChoice::Kind::budget:
      return fastest_within(costs, choice.value);
    case CheckpointChoice::Kind::automatic:
      return smallest_for_time(costs);
    case CheckpointChoice::Kind::smallest:
      return fastest_within(costs, smallest_budget(costs));
    default:
      return segments_of(choice, costs.stages.size() - 1);
  }
}

}  // namespace hs
