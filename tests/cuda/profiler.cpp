// Profiles of work on the CUDA device: the times of its two queues, graphs, and NVTX.
#include <doctest/doctest.h>

#include "bench/measure/observers/profiler.h"
#include "data/loader/loader.h"
#include "data/synthetic.h"
#include "kernels/linear/linear.h"
#include "kernels/relu/relu.h"
#include "models/models.h"
#include "models/training/train.h"
#include "tests/support/checks.h"
#include "tests/support/emulated.h"
#include "tests/support/profiles.h"

namespace hs::test {

using namespace bench::measure;

namespace {

constexpr int64_t batch = 8, batches = 6;

Profile profile_training(bool graph, const char* model_name = "mlp") {
  const MemorySource digits = synthetic_digits(synthetic_train_seed, batch * batches);
  const MemorySource few = synthetic_digits(synthetic_test_seed, batch);
  Loader training(digits, {.batch = batch, .device = Device::cuda, .prefetch = 2, .workers = 2});
  Loader test(few, {.batch = batch, .device = Device::cuda});
  const auto model = make_model(model_name, 1);
  ParameterArena arena(*model, Device::cuda);
  Profiler profiler(Device::cuda);
  TrainConfig config;
  config.epochs = 1;
  config.device = Device::cuda;
  config.graph = graph;
  train(*model, arena, training, test, config);
  return profiler.finish();
}

}  // namespace

TEST_CASE("copies and kernels stand on the device's rows, a copy before the kernels that read it") {
#ifdef HALFSTEP_TEST_EMULATED
  const Emulator fresh;
  emulator::options().delay_streams = true;
#endif
  const Profile profile = profile_training(false);
  check_nesting(profile);
  const std::vector<ProfileSpan> copies = spans_called(spans_on(profile, "copy"), "upload");
  const std::vector<ProfileSpan> kernels = spans_on(profile, "compute");
  const std::vector<ProfileSpan> readers = spans_called(kernels, "normalize_image_forward");
  REQUIRE(copies.size() >= static_cast<size_t>(batches));
  REQUIRE(readers.size() == static_cast<size_t>(batches) + 1);
  for (size_t i = 0; i < static_cast<size_t>(batches); ++i) {
    // Both times come from two events each, which are exact to half a microsecond.
    CHECK(readers[i].begin > copies[i].begin);
    CHECK(readers[i].end >= copies[i].end - 2e-6);
  }
  for (const ProfileSpan& kernel : kernels) CHECK((kernel.begin >= 0 && !kernel.counts));
  CHECK(spans_called(spans_on(profile, "training"), "step").size() == static_cast<size_t>(batches));
  CHECK(!profile.memory.empty());
}

TEST_CASE("a replayed graph is one piece of work") {
  const Profile profile = profile_training(true);
  check_nesting(profile);
  // The first step is done as it is, the second recorded and replayed, the others replayed.
  CHECK(spans_called(spans_on(profile, "compute"), "graph").size() == static_cast<size_t>(batches) - 1);
  CHECK(spans_called(spans_on(profile, "training"), "capture").size() == 1);
  CHECK(spans_called(spans_on(profile, "compute"), "softmax_cross_entropy_forward").size() <= 2);
}

TEST_CASE("a profile that nobody reads leaves nothing behind") {
  const Tensor x = Tensor::zeros({8}, DType::f32, Device::cuda);
  {
    const Profiler profiler(Device::cuda);
    relu(x);
  }
  Profiler profiler(Device::cuda);
  CHECK(profiler.finish().spans.empty());
}

#ifdef HALFSTEP_TEST_EMULATED
TEST_CASE("a kernel's time is when it ran, not when it was launched") {
  std::vector<std::vector<Tensor>> results;
  int late = 0;  // runs in which the last kernel was still queued when the host had launched all
  for_each_delay(20, [&] {
    const Tensor x = Tensor::zeros({8}, DType::f32, Device::cuda);
    Profiler profiler(Device::cuda);
    {
      const Range range("launch");
      std::vector<Tensor>& kept = results.emplace_back();  // to free memory would wait for the device
      for (int i = 0; i < 10; ++i) kept.push_back(relu(x));
    }
    const Profile profile = profiler.finish();
    const ProfileSpan launch = spans_called(spans_on(profile, "training"), "launch").at(0);
    const std::vector<ProfileSpan> kernels = spans_on(profile, "compute");
    REQUIRE(kernels.size() == 10);
    late += kernels.back().begin > launch.end;
  });
  CHECK(late > 0);
}

TEST_CASE("the kernels of a profile together have what the emulator counted") {
  const Emulator fresh;
  emulator::options().count = true;
  const ForcedVariant narrow(linear_backward, "narrow");  // has conflicts
  uint64_t conflicts = 0, counted = 0;
  for (const ProfileSpan& kernel : spans_on(profile_training(false, "mnist_cnn"), "compute")) {
    if (kernel.depth == 0) conflicts += kernel.counts.value().bank_conflicts;
  }
  for (const emulator::Counts& kernel : emulator::take_counts()) counted += kernel.shared.conflicts;
  CHECK(conflicts > 0);
  CHECK(conflicts == counted);
}

TEST_CASE("ranges are NVTX ranges, which begin and end in pairs") {
  const Emulator fresh;
  emulator::options().keep_ranges = true;
  emulator::take_ranges();
  {
    const Range range("mine");
    relu(Tensor::zeros({8}, DType::f32, Device::cuda));
  }
  CHECK(emulator::take_ranges() == std::vector<std::string>{"mine", "relu", "", ""});
  profile_training(false);
  int open = 0;
  bool saw_backward = false;
  for (const std::string& name : emulator::take_ranges()) {
    open += name.empty() ? -1 : 1;
    saw_backward = saw_backward || name == "backward";
    REQUIRE(open >= 0);
  }
  CHECK(open == 0);
  CHECK(saw_backward);
}
#endif

}  // namespace hs::test
