// The census: what one captured training step amounts to, compared with tests/census.lock, so that a commit that adds a
// node, bytes or a host call shows it in review. After a change that is meant: HALFSTEP_UPDATE_CENSUS=1 and this
// program. Which kernels the nodes are: `halfstep-bench profile kernels`.
//
// How: the launches, copies and allocations of the CUDA runtime and the products of cuBLASLt are defined once more
// here, and a program's own definitions come before those of the libraries that it links. They record and run nothing,
// so a step of 2048 samples takes milliseconds, and what is read back from the device is zero: for the check of a new
// cuBLASLt plan this means that no element differs. Everything else (streams, capture, descriptors) is the emulator's.
//
// Bytes: the tensors of each kernel call that adds a node itself, once for a call. FLOPs: of matrix products and
// convolutions, by their shapes. cuBLASLt's split-K adds nodes on a device that are not here.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "bench/measure/observers/kernel_trace.h"
#include "data/loader/loader.h"
#include "data/memory_source.h"
#include "engine/observe.h"
#include "engine/storage.h"
#include "models/models.h"
#include "models/train.h"
#include "source_dir.h"
#include "tests/support/temporary_folder.h"

namespace hs::test {
namespace {

// What the interposed functions below write down. Thread: all of it happens on the one that trains.
struct Recorder;
Recorder* recorder = nullptr;
struct Recorder : Observer {
  Recorder() : Observer(Event::work, Watch::this_thread) { recorder = this; }
  ~Recorder() override { recorder = nullptr; }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A call of a kernel slot that is running.
  struct Call {
    bool has_node = false;
    double flops = 0;  // of the calls inside
  };
  bool capturing = false;
  std::vector<Call> running;  // the innermost last
  int64_t nodes = 0, products = 0, host_calls = 0, replays = 0, allocations = 0;
  double bytes = 0, flops = 0, allocated = 0;

  void add_node(size_t copied = 0) {
    if (!capturing) return;
    ++nodes;
    bytes += static_cast<double>(copied);
    if (!running.empty()) running.back().has_node = true;
  }
  void work_begins(const DeviceWork&) override {
    if (capturing) running.emplace_back();
  }
  void work_ends(const DeviceWork& work, bool) override {
    if (!capturing || running.empty()) return;
    Call call = running.back();
    running.pop_back();
    std::vector<Shape> shapes;
    for (const Tensor* tensor : work.tensors) {
      shapes.push_back(tensor->defined() ? tensor->shape() : Shape{0});
      if (call.has_node && tensor->defined()) bytes += static_cast<double>(size_of(tensor->dtype()) * tensor->size());
    }
    if (call.flops == 0) call.flops = bench::measure::flops_of(work.name, shapes);
    (running.empty() ? flops : running.back().flops) += call.flops;
  }
  const Attached attached{*this};
};

void count_host_call() {
  if (recorder) ++recorder->host_calls;
}

// The next definition of a function of this program: that of a library.
template <class F>
F* library_function(F* own) {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<const void*>(own), &info) != 0);
  REQUIRE(info.dli_sname != nullptr);
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, info.dli_sname));
}

// Trains for a few steps without running any kernel, twice, and describes the second run: the first one of a process
// also chooses algorithms.
std::string census(const std::string& name, Precision precision, int64_t batch, bool fuse = true,
                   int64_t graph_steps = 1) {
  constexpr int64_t groups = 6;  // of steps, each a replay
  const int64_t samples = groups * graph_steps * batch;
  ModelSizes sizes;
  if (name == "resnet8") sizes = {.rows = 32, .columns = 32, .channels = 3};
  if (name == "char_gpt") sizes = {.rows = 1, .columns = 129, .classes = 65, .input = InputKind::tokens};
  SampleInfo info;
  static_cast<ImageShape&>(info) = {sizes.rows, sizes.columns, sizes.channels};
  info.classes = static_cast<int>(sizes.classes);
  if (sizes.input == InputKind::tokens) info.vocabulary.assign(static_cast<size_t>(sizes.classes), 'a');
  const MemorySource set(
      info, std::vector<uint8_t>(static_cast<size_t>(samples * sizes.rows * sizes.columns * sizes.channels)),
      std::vector<int32_t>(static_cast<size_t>(samples)));
  std::string text;
  for (int run = 0; run < 2; ++run) {
    const auto model = make_model(name, 1, sizes);
    ParameterArena arena(*model, Device::cuda);
    Loader training(set, {.batch = batch, .device = Device::cuda, .cache = CacheMode::device});
    Recorder recording;
    int64_t before = 0, fewest = std::numeric_limits<int64_t>::max();  // host calls; other steps also read the losses
    TrainConfig config;
    config.epochs = 1;
    config.optimizer.name = "adam";
    config.device = Device::cuda;
    config.precision = precision;
    config.graph = true;
    config.fuse = fuse;
    config.graph_steps = graph_steps;
    TrainHooks hooks;
    hooks.on_step = [&](const Progress& progress) {
      if (progress.step % graph_steps != 0) return;
      if (progress.step > 2 * graph_steps) fewest = std::min(fewest, recording.host_calls - before);
      before = recording.host_calls;
    };
    hooks.should_stop = [&] { return before > 0 && recording.replays == groups - 1; };
    train(*model, arena, training, training, config, hooks);
    text = fmt::format("{} nodes, {} of cuBLASLt, {:.1f} MB, {:.0f} MFLOP, {} host calls, {} allocations of {:.1f} MB",
                       recording.nodes, recording.products, recording.bytes / 1e6, recording.flops / 1e6, fewest,
                       recording.allocations, recording.allocated / 1e6);
    release_cached_memory(Device::cuda);
  }
  const std::string group = graph_steps == 1 ? "" : fmt::format(", a graph of {} steps", graph_steps);
  return fmt::format("{} {} batch {}{}{}: {}\n", name, hs::name(precision), batch, fuse ? "" : " fuse off", group,
                     text);
}

}  // namespace

TEST_CASE("a captured step has the nodes, bytes and host calls of tests/census.lock") {
  set_caching(true);
  std::string text =
      "What one captured training step amounts to; host calls are those of a replay, allocations those of a run.\n"
      "Written by HALFSTEP_UPDATE_CENSUS=1 build/release/tests/test_cuda_census.\n";
  for (const Precision precision : {Precision::f32, Precision::f16, Precision::bf16}) {
    for (const char* name : {"mlp", "mnist_cnn", "mnist_cnn_large", "deep_cnn"}) {
      for (const int64_t batch : {64, 2048}) {
        text += census(name, precision, batch);
        // What fusing saves: docs/techniques/gpu_kernels.md.
        const bool compare = precision == Precision::f16 && std::string_view(name).starts_with("mnist_cnn");
        if (compare) text += census(name, precision, batch, false);
      }
    }
  }
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    text += census("resnet8", precision, 128);
    text += census("char_gpt", precision, 64);
  }
  text += census("mnist_cnn", Precision::f16, 64, true, 16);
  set_caching(false);
  const std::string lock = HALFSTEP_SOURCE_DIR "/tests/census.lock";
  if (std::getenv("HALFSTEP_UPDATE_CENSUS")) std::ofstream(lock) << text;
  const TemporaryFolder folder;
  const std::string found = (folder / "census").string();
  std::ofstream(found) << text;
  const std::string compare = fmt::format("diff -U 1 {0} {1} | tail -n +3; cmp -s {0} {1}", lock, found);
  const bool same = std::system(compare.c_str()) == 0;
  INFO(
      "lines with - are those of tests/census.lock. If the change is meant: HALFSTEP_UPDATE_CENSUS=1 and this program");
  CHECK(same);
}

}  // namespace hs::test

// ---- the functions that record instead of running ----

using hs::test::count_host_call;
using hs::test::recorder;

namespace hs::emulator {
cudaError_t launch(const void*, dim3, dim3, size_t, cudaStream_t, std::function<void()>, std::vector<const void*>) {
  count_host_call();
  if (recorder) recorder->add_node();
  return cudaSuccess;
}
}  // namespace hs::emulator

// Addresses that nothing may be read from or written to.
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  constexpr size_t space = size_t{1} << 42;
  static char* next =
      static_cast<char*>(mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  *pointer = next;
  next += (bytes + 511) / 256 * 256;
  count_host_call();
  if (recorder) ++recorder->allocations, recorder->allocated += static_cast<double>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void*) {
  count_host_call();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void*, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  count_host_call();
  if (kind == cudaMemcpyDeviceToHost) memset(to, 0, bytes);
  if (recorder) recorder->add_node(2 * bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, size_t bytes, cudaStream_t) {
  count_host_call();
  if (recorder) recorder->add_node(bytes);
  return cudaSuccess;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                              const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t,
                              void*, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  count_host_call();
  if (recorder && recorder->capturing) ++recorder->products;
  if (recorder) recorder->add_node();
  return CUBLAS_STATUS_SUCCESS;
}

// These are counted and then run.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  count_host_call();
  if (recorder) recorder->capturing = true;
  return hs::test::library_function(cudaStreamBeginCapture)(stream, mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  count_host_call();
  if (recorder) recorder->capturing = false;
  return hs::test::library_function(cudaStreamEndCapture)(stream, graph);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  count_host_call();
  if (recorder) ++recorder->replays;
  return hs::test::library_function(cudaGraphLaunch)(graph, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count_host_call();
  return hs::test::library_function(cudaStreamSynchronize)(stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  count_host_call();
  return hs::test::library_function(cudaStreamWaitEvent)(stream, event, flags);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  count_host_call();
  return hs::test::library_function(cudaEventRecord)(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  count_host_call();
  return hs::test::library_function(cudaEventSynchronize)(event);
}
