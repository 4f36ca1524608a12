#include "bench/measure/gradient_watch.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <map>

namespace hs::bench::measure {
namespace {

// IEEE 754 magnitudes are ordered like their bits read as integers.
template <class Bits, class T>
void count(const T* values, int64_t size, T subnormal, T normal, T infinity, GradientCounts& counts) {
  const Bits below_subnormal = std::bit_cast<Bits>(subnormal), below_normal = std::bit_cast<Bits>(normal);
  const Bits too_large = std::bit_cast<Bits>(infinity);
  for (int64_t i = 0; i < size; ++i) {
    const Bits magnitude = std::bit_cast<Bits>(values[i]) & (std::numeric_limits<Bits>::max() >> 1);
    counts.zero += magnitude == 0;
    counts.below_subnormal += magnitude < below_subnormal;
    counts.below_normal += magnitude < below_normal;
    counts.not_finite += magnitude >= too_large;
  }
  counts.values += size;
}

}  // namespace

void GradientCounts::add(const Tensor& gradient) {
  constexpr float subnormal = 0x1p-24f, normal = 0x1p-14f, infinity = std::numeric_limits<float>::infinity();
  const Tensor values = gradient.to(Device::cpu);
  if (values.dtype() == DType::f16) {
    count<uint16_t>(values.data<Half>(), values.size(), to_half(subnormal), to_half(normal), to_half(infinity), *this);
  } else {
    count<uint32_t>(values.data<float>(), values.size(), subnormal, normal, infinity, *this);
  }
}

GradientWatch::GradientWatch(const ParameterArena& arena)
    : Observer(Event::gradient, Watch::this_thread), arena_(arena), attached_(*this) {
  for (const NamedParameter& parameter : arena.parameters()) {
    if (!parameter.is_statistic) parameters_.push_back({parameter.name, DType::f32, {}});
  }
}

// Every step runs the same ops in the same order.
void GradientWatch::gradient(const char* op, const Tensor& dy) {
  if (dy.dtype() != DType::f16) return;
  if (seen_ == activations_.size()) activations_.push_back({op, DType::f16, {}});
  activations_[seen_++].counts.add(dy);
}

void GradientWatch::on_gradients(const GradScaler& scaler) {
  const size_t statistics = arena_.parameters().size() - parameters_.size();  // they come first
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].counts.add(arena_.parameters()[statistics + i].value->grad());
  }
  if (steps_ == 0) first_scale_ = scaler.scale();
  note_scale(scaler.scale(), scaler.skipped());
  ++steps_;
  seen_ = 0;
}

void GradientWatch::finish(const TrainResult& result) { note_scale(result.loss_scale, result.skipped_steps); }

// Called after steps_ steps.
void GradientWatch::note_scale(double scale, int64_t skipped) {
  if (scale != last_scale()) changes_.push_back({steps_, scale});
  if (skipped != static_cast<int64_t>(skipped_.size())) skipped_.push_back(steps_);
}

std::vector<GradientRow> GradientWatch::activations() const {
  std::vector<GradientRow> rows(activations_.rbegin(), activations_.rend());
  std::map<std::string, int> numbers;
  for (GradientRow& row : rows) row.name = fmt::format("{} {}", row.name, ++numbers[row.name]);
  return rows;
}

}  // namespace hs::bench::measure
