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
//
// HALFSTEP_CENSUS_NODES=FILE writes there, instead of comparing, one line for each node of five steps, with what a few
// of its blocks have counted: for `tests/cubin.py estimate`. It needs a build with -D HALFSTEP_EMULATOR_COUNTS=ON.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "bench/measure/observers/kernel_trace.h"
#include "data/io/memory_source.h"
#include "data/loader/loader.h"
#include "engine/observe.h"
#include "engine/storage.h"
#include "kernels/linear/linear.h"
#include "models/models.h"
#include "models/training/train.h"
#include "source_dir.h"
#include "tests/cuda_emulator/source/internal.h"
#include "tests/support/checks.h"
#include "tests/support/temporary_folder.h"

namespace hs::test {
namespace {

const char* nodes_file() { return std::getenv("HALFSTEP_CENSUS_NODES"); }

// With no zeros, where a kernel may skip those: 0x3c3c is 1.06 in f16 and 0.01 in bf16, and so is f32. Integers stay 0,
// a label and a winner that there are, and so do few numbers, as an update's state, which may say that it is skipped.
void fill(const Tensor& tensor, size_t bytes) {
  const bool is_float = tensor.dtype() == DType::f32 || tensor.dtype() == DType::f16 || tensor.dtype() == DType::bf16;
  if (!is_float || bytes < 256) return;
  void* at = const_cast<void*>(tensor.raw_data());
  const emulator::DeviceAccess access{at};
  memset(at, 0x3c, bytes);
}

// What the interposed functions below write down. Thread: all of it happens on the one that trains.
struct Recorder;
Recorder* recorder = nullptr;
struct Recorder : Observer {
  Recorder() : Observer(Event::work, Watch::this_thread) { recorder = this; }
  ~Recorder() override { recorder = nullptr; }

  // A call of a kernel slot that is running.
  struct Call {
    bool has_node = false;
    double flops = 0;  // of the calls inside
    double own_flops = 0, tensor_bytes = 0;
  };
  bool capturing = false;
  std::vector<Call> running;  // the innermost last
  int64_t nodes = 0, products = 0, host_calls = 0, replays = 0, allocations = 0;
  double bytes = 0, flops = 0, allocated = 0;
  std::string lines;  // a node each

  void add_node(size_t copied = 0) {
    if (!capturing) return;
    ++nodes;
    bytes += static_cast<double>(copied);
    if (!running.empty()) running.back().has_node = true;
  }
  void describe_node(const std::string& kind, const std::string& counted) {
    const Call call = running.empty() ? Call{} : running.back();
    lines += fmt::format("{}\t{}\t{}\t{}\n", kind, call.tensor_bytes, call.own_flops, counted);
  }
  void work_begins(const DeviceWork& work) override {
    if (!capturing) return;
    Call& call = running.emplace_back();
    std::vector<Shape> shapes;
    for (const Tensor* tensor : work.tensors) {
      shapes.push_back(tensor->defined() ? tensor->shape() : Shape{0});
      if (!tensor->defined()) continue;
      const int64_t size = size_of(tensor->dtype()) * tensor->size();
      call.tensor_bytes += static_cast<double>(size);
      if (nodes_file()) fill(*tensor, static_cast<size_t>(size));
    }
    call.own_flops = bench::measure::flops_of(work.name, shapes);
  }
  void work_ends(const DeviceWork&, bool) override {
    if (!capturing || running.empty()) return;
    Call call = running.back();
    running.pop_back();
    if (call.has_node) bytes += call.tensor_bytes;
    if (call.flops == 0) call.flops = call.own_flops;
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

// Runs some blocks of a kernel, and says what they have counted.
std::string count_some_blocks(const void* kernel, const cudaLaunchConfig_t& config, const std::function<void()>& thread,
                              const std::vector<const void*>& pointers) {
  const dim3 grid = config.gridDim;
  emulator::options().count = true;
  emulator::options().sample = 6;
  emulator::run_grid(kernel, grid, config.blockDim, config.dynamicSmemBytes, false, thread, pointers);
  emulator::options().count = false;
  const emulator::Counts c = emulator::take_counts().at(0);
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}", c.kernel, uint64_t{grid.x} * grid.y * grid.z, c.threads,
                     c.shared_bytes, c.blocks, 32 * (c.loads.sectors + c.stores.sectors),
                     fmt::join(c.instructions, "\t"));
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
  if (sizes.input == InputKind::tokens) info.vocabulary.resize(static_cast<size_t>(sizes.classes), "a");
  const MemorySource set(
      info, std::vector<uint8_t>(static_cast<size_t>(samples * sizes.rows * sizes.columns * sizes.channels)),
      std::vector<int32_t>(static_cast<size_t>(samples)));
  std::string text;
  for (int run = 0; run < 2; ++run) {
    const auto model = make_model(name, 1, sizes);
    ParameterArena arena(*model, Device::cuda);
    Loader training(set, {.batch = batch, .device = Device::cuda, .cache = CacheMode::device});
    Loader test(set, {.batch = batch});  // not reached
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
    train(*model, arena, training, test, config, hooks);
    text = fmt::format("{} nodes, {} of cuBLASLt, {:.1f} MB, {:.0f} MFLOP, {} host calls, {} allocations of {:.1f} MB",
                       recording.nodes, recording.products, recording.bytes / 1e6, recording.flops / 1e6, fewest,
                       recording.allocations, recording.allocated / 1e6);
    release_cached_memory(Device::cuda);
    if (nodes_file()) text = "\n" + recording.lines;
  }
  const std::string group = graph_steps == 1 ? "" : fmt::format(", a graph of {} steps", graph_steps);
  return fmt::format("{} {} batch {}{}{}: {}\n", name, hs::name(precision), batch, fuse ? "" : " fuse off", group,
                     text);
}

// With our kernels for the last layer, where a library's products are the default.
std::string narrow_census() {
  const ForcedVariant gradients(linear_backward, "narrow");
  return "narrow: " + census("mnist_cnn", Precision::f16, 64);
}

}  // namespace

TEST_CASE("a captured step has the nodes, bytes and host calls of tests/census.lock") {
  set_caching(true);
  if (const char* file = nodes_file()) {
    std::string nodes;
    for (const int64_t batch : {64, 2048}) nodes += census("mnist_cnn", Precision::f16, batch);
    nodes += narrow_census();
    nodes += census("mnist_cnn_large", Precision::f16, 2048);
    nodes += census("resnet8", Precision::bf16, 128);
    nodes += census("char_gpt", Precision::bf16, 64);
    std::ofstream(file) << nodes;
    return;
  }
  std::string text =
      "What one captured training step amounts to; host calls are those of a replay, allocations those of a run.\n"
      "Written by HALFSTEP_UPDATE_CENSUS=1 build/release/tests/test_cuda_census.\n";
  for (const Precision precision : {Precision::f32, Precision::f16, Precision::bf16}) {
    for (const char* name : {"mlp", "mnist_cnn", "mnist_cnn_large", "deep_cnn"}) {
      for (const int64_t batch : {64, 2048}) {
        text += census(name, precision, batch);
        // What fusing saves: docs/chapters/11_gpu_kernels.md.
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
  text += narrow_census();
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
cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config, std::function<void()> thread,
                   std::vector<const void*> pointers) {
  count_host_call();
  if (recorder) recorder->add_node();
  if (recorder && recorder->capturing && test::nodes_file()) {
    recorder->describe_node("kernel", test::count_some_blocks(kernel, config, thread, pointers));
  }
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
  if (hs::test::nodes_file()) {  // the emulator's memory, which kernels can use
    hs::emulator::options().total_memory = space;
    using Function = cudaError_t(void**, size_t);
    const cudaError_t error = hs::test::library_function<Function>(cudaMalloc)(pointer, bytes);
    if (error == cudaSuccess) cudaMemset(*pointer, 0, bytes);
    return error;
  }
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  count_host_call();
  if (hs::test::nodes_file()) return hs::test::library_function(cudaFree)(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void*, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  count_host_call();
  if (kind == cudaMemcpyDeviceToHost) memset(to, 0, bytes);
  if (recorder) recorder->add_node(2 * bytes);
  if (recorder && recorder->capturing) recorder->describe_node("copy", std::to_string(2 * bytes));
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, size_t bytes, cudaStream_t) {
  count_host_call();
  if (recorder) recorder->add_node(bytes);
  if (recorder && recorder->capturing) recorder->describe_node("fill", std::to_string(bytes));
  return cudaSuccess;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                              const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t,
                              void*, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  count_host_call();
  if (recorder && recorder->capturing) ++recorder->products, recorder->describe_node("cuBLASLt", "");
  if (recorder) recorder->add_node();
  return CUBLAS_STATUS_SUCCESS;
}

// These are counted and then run.
template <class... A>
cudaError_t counted(cudaError_t (*own)(A...), A... arguments) {
  count_host_call();
  return hs::test::library_function(own)(arguments...);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (recorder) recorder->capturing = true;
  return counted(cudaStreamBeginCapture, stream, mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (recorder) recorder->capturing = false;
  return counted(cudaStreamEndCapture, stream, graph);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (recorder) ++recorder->replays;
  return counted(cudaGraphLaunch, graph, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return counted(cudaStreamSynchronize, stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return counted(cudaStreamWaitEvent, stream, event, flags);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return counted(cudaEventRecord, event, stream); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return counted(cudaEventSynchronize, event); }
