// GradientWatch: the gradients of an f16 training run. Counts how many underflow to zero or to subnormals and how many
// overflow, and follows the loss scale. Gradients are counted as training stores them, multiplied by the scale, over
// all steps, including skipped ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/observe.h"
#include "models/train.h"

namespace hs::bench::measure {

// Numbers of values by magnitude; zero, below_subnormal and below_normal are cumulative: each includes the one before.
struct GradientCounts {
  int64_t values = 0;
  int64_t zero = 0;
  int64_t below_subnormal = 0;  // below 2^-24, f16's smallest number
  int64_t below_normal = 0;     // below 2^-14, f16's smallest normal number
  int64_t not_finite = 0;       // inf and NaN

  void add(const Tensor& gradient);  // f16 or f32; waits for the device

  double share(int64_t count) const { return static_cast<double>(count) / static_cast<double>(values); }
};

struct GradientRow {
  std::string name;  // "relu 2": the output of the second relu of the model; or a parameter's name
  DType dtype = DType::f16;
  GradientCounts counts;
};

struct ScaleChange {
  int64_t after_step;  // from 1
  double scale;
};

// Construct it before train(), on the same thread. Call on_gradients() from TrainHooks and finish() after train().
class GradientWatch : public Observer {
 public:
  explicit GradientWatch(const ParameterArena& arena);

  void gradient(const char* op, const Tensor& dy) override;
  void on_gradients(const GradScaler& scaler);  // from TrainHooks
  void finish(const TrainResult& result);
  void stop() { attached_.reset(); }  // stops watching; keeps the counts

  int64_t steps() const { return steps_; }
  double first_scale() const { return first_scale_; }
  double last_scale() const { return changes_.empty() ? first_scale_ : changes_.back().scale; }
  const std::vector<ScaleChange>& changes() const { return changes_; }
  const std::vector<int64_t>& skipped() const { return skipped_; }  // the steps
  std::vector<GradientRow> activations() const;                     // those in f16, in the model's order
  const std::vector<GradientRow>& parameters() const { return parameters_; }

 private:
  void note_scale(double scale, int64_t skipped);

  const ParameterArena& arena_;
  std::vector<GradientRow> activations_, parameters_;  // activations in the order of backward()
  size_t seen_ = 0;                                    // activations of this step so far
  int64_t steps_ = 0;
  double first_scale_ = 0;
  std::vector<ScaleChange> changes_;
  std::vector<int64_t> skipped_;
  std::optional<Attached> attached_;
};

}  // namespace hs::bench::measure
