#include "bench/measure/noise_scale.h"

#include <memory>
#include <numeric>

namespace hs::bench::measure {
namespace {

double squared_norm_of(ParameterArena& arena) {
  const std::vector<float> all = arena.gradients().to_vector<float>();
  return std::transform_reduce(all.begin() + arena.statistics_size(), all.end(), 0.0, std::plus(),
                               [](float g) { return double{g} * double{g}; });
}

}  // namespace

void watch_noise(NoiseScale& noise, ParameterArena& arena, int64_t accumulate, int64_t samples_of_epoch,
                 TrainHooks& hooks) {
  struct Place {
    int64_t micro_batches = 0, steps = 0;
    double first = 0;
  };
  const auto place = std::make_shared<Place>();
  const int64_t of_epoch = (samples_of_epoch + noise.step() - 1) / noise.step();
  const bool has_tail = samples_of_epoch % noise.step() != 0;
  hooks.on_loss = [=, &arena](const Tensor&) {
    // Before the second backward the gradients are the first micro-batch's share of the mean.
    if (++place->micro_batches == 2) {
      place->first = squared_norm_of(arena) * static_cast<double>(accumulate) * static_cast<double>(accumulate);
    }
  };
  hooks.on_gradients = [=, &arena, &noise](const GradScaler& scaler) {
    const bool is_tail = has_tail && ++place->steps % of_epoch == 0;
    const double scale = scaler.config().enabled ? scaler.scale() : 1;
    if (place->micro_batches == accumulate && !is_tail) {
      noise.add(place->first / (scale * scale), squared_norm_of(arena) / (scale * scale));
    }
    place->micro_batches = 0;
  };
}

}  // namespace hs::bench::measure
