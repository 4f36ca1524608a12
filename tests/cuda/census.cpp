// The census: what one captured training step consists of, compared with tests/census.lock, so that a commit that adds
// a node, bytes or a host call shows it in review. After a change that is meant: HALFSTEP_UPDATE_CENSUS=1 and this
// program.
//
// How: the launches, copies and allocations of the CUDA runtime and the products of cuBLASLt are defined once more
// here, and a program's own definitions come before those of the libraries that it links. They record and run nothing,
// so a step of 2048 samples takes milliseconds, and what is read back from the device is zero: for the check of a new
// cuBLASLt plan this means that no element differs. Everything else (streams, capture, descriptors) is the emulator's.
//
// Bytes of a node: those of each tensor, or part of one, that an argument points to, read or written once; a partial
// sum in a workspace that no kernel call names as a tensor is not counted, and the set that gather_batch takes a batch
// from is counted whole. FLOPs: of matrix products and convolutions only. cuBLASLt's split-K adds nodes on a device
// that are not here.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "bench/measure/kernel_work.h"
#include "data/loader/loader.h"
#include "data/memory_source.h"
#include "engine/observe.h"
#include "engine/storage.h"
#include "models/models.h"
#include "models/train.h"
#include "source_dir.h"
#include "tests/support/temporary_folder.h"

namespace hs::emulator {
std::string symbol_name(const void* address);  // tests/cuda_emulator/source/internal.h
}

namespace hs::test {
namespace {

struct Extent {
  const char* begin = nullptr;
  int64_t bytes = 0;
  bool holds(const char* p) const { return p >= begin && p < begin + bytes; }
};

// A call of a kernel slot, in the order of their beginnings.
struct Call {
  std::string slot;
  std::vector<Extent> tensors;
  std::vector<Shape> shapes;
  DType dtype = DType::f32;
  size_t outermost = 0;  // of the calls that it is inside, or itself
  size_t first_node = 0;
  double flops = 0;  // of the calls inside
};

struct Node {
  explicit Node(std::string what, double all_bytes = 0) : name(std::move(what)), bytes(all_bytes) {}
  std::string name, slot, grid;
  std::vector<const char*> pointers;  // of which some are arguments of other types
  std::vector<size_t> inside;         // the calls that were running, the innermost last
  size_t calls_before = 0;            // how many calls had begun
  double bytes, flops = 0, rate = 1;
};

// FLOP/s that an H100 can reach at best: 800 T in 16 bits by the library, whose products are wgmma; 60 % of that by
// mma.sync, which is what ours are (measured by Luo et al., arXiv 2402.13499); 60 T without tensor cores.
double rate_of(const std::string& kernel, DType dtype) {
  if (kernel.starts_with("cublasLt") && dtype != DType::f32) return 800e12;
  return kernel.find("mma") != std::string::npos ? 480e12 : 60e12;
}

// What the interposed functions below write down. Thread: all of it happens on the one that trains.
struct Recorder;
Recorder* recorder = nullptr;
struct Recorder : Observer {
  Recorder() : Observer(Event::work, Watch::this_thread) { recorder = this; }
  ~Recorder() override { recorder = nullptr; }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  bool capturing = false;
  std::vector<Node> nodes;
  std::vector<Call> calls;
  std::vector<size_t> running;
  std::map<std::string, int64_t> host_calls;
  int64_t allocations = 0, allocated = 0;

  void add(Node node) {
    if (!capturing) return;
    node.inside = running;
    node.calls_before = calls.size();
    if (!running.empty()) node.slot = calls[running.back()].slot;
    nodes.push_back(std::move(node));
  }
  void work_begins(const DeviceWork& work) override {
    if (!capturing) return;
    Call call;
    call.slot = work.name;
    call.outermost = running.empty() ? calls.size() : running.front();
    call.first_node = nodes.size();
    for (const Tensor* tensor : work.tensors) {
      call.shapes.push_back(tensor->defined() ? tensor->shape() : Shape{0});
      if (!tensor->defined()) continue;
      if (call.tensors.empty()) call.dtype = tensor->dtype();
      const auto size = static_cast<int64_t>(size_of(tensor->dtype())) * tensor->size();
      call.tensors.push_back({static_cast<const char*>(tensor->raw_data()), size});
    }
    running.push_back(calls.size());
    calls.push_back(std::move(call));
  }
  void work_ends(const DeviceWork& work, bool) override {
    if (!capturing || running.empty()) return;
    Call& call = calls[running.back()];
    running.pop_back();
    double own = bench::measure::flops_of(call.slot, call.shapes);
    // The gradient of a pooled window is that of one pixel, but matrix units multiply the zeros of the others as well.
    if (call.slot == "conv2d_pool_relu_backward" && std::string(work.variant) == "mma") own *= 4;
    if (call.flops == 0 && own > 0) {  // it computed them itself: its first kernel multiplies, or one per gradient
      std::vector<Node*> kernels;
      for (size_t i = call.first_node; i < nodes.size(); ++i) {
        const bool is_gradient = nodes[i].name.find("gradient_kernel") != std::string::npos;
        if (!nodes[i].grid.empty() && (kernels.empty() || is_gradient)) kernels.push_back(&nodes[i]);
      }
      for (Node* kernel : kernels) {
        kernel->flops = own / static_cast<double>(kernels.size());
        kernel->rate = rate_of(kernel->name, call.dtype);
      }
      if (!kernels.empty()) call.flops = own;
    }
    if (!running.empty()) calls[running.back()].flops += call.flops;
  }
  const Attached attached{*this};
};

void note(const char* function) {
  if (recorder) ++recorder->host_calls[function];
}

// The next definition of a function of this program: that of a library.
template <class F>
F* library_function(F* own) {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<const void*>(own), &info) != 0);
  REQUIRE(info.dli_sname != nullptr);
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, info.dli_sname));
}

// ---- bytes ----

// Where the nodes of a kernel begin, those of the same calls.
using Kernels = std::map<std::pair<std::string, std::vector<size_t>>, std::set<const char*>>;

// The part of `tensor` that begins at `p`: up to where another node of this kernel begins, as one chunk ends where the
// next begins.
int64_t part_from(const char* p, const Extent& tensor, const std::set<const char*>& of_kernel) {
  const auto next = of_kernel.upper_bound(p);
  const char* end = tensor.begin + tensor.bytes;
  return (next == of_kernel.end() ? end : std::min(end, *next)) - p;
}

// A matrix in a workspace: the last call before the node wrote it, or the next one reads it. Both inside the same call.
int64_t scratch_at(const char* p, const Node& node, const std::vector<Call>& calls) {
  const auto tensors_of = [&](size_t i) {
    const bool related = i < calls.size() && !node.inside.empty() && calls[i].outermost == node.inside.front();
    return related ? calls[i].tensors : std::vector<Extent>();
  };
  const auto starts_at = [p](const Extent& tensor) { return tensor.begin == p; };
  const std::vector<Extent> last = tensors_of(node.calls_before - 1), next = tensors_of(node.calls_before);
  if (!last.empty() && starts_at(last.back())) return last.back().bytes;
  const auto found = std::ranges::find_if(next, starts_at);
  return found == next.end() ? 0 : found->bytes;
}

void count_bytes(std::vector<Node>& nodes, const std::vector<Call>& calls) {
  Kernels kernels;
  for (const Node& node : nodes) {
    kernels[{node.name, node.inside}].insert(node.pointers.begin(), node.pointers.end());
  }
  for (Node& node : nodes) {
    for (const char* p : node.pointers) {
      const Extent* tensor = nullptr;
      for (auto call = node.inside.rbegin(); call != node.inside.rend() && !tensor; ++call) {
        for (const Extent& candidate : calls[*call].tensors) {
          if (candidate.holds(p) && (!tensor || candidate.bytes < tensor->bytes)) tensor = &candidate;
        }
      }
      node.bytes += static_cast<double>(tensor ? part_from(p, *tensor, kernels.at({node.name, node.inside}))
                                               : scratch_at(p, node, calls));
    }
  }
}

// ---- the lock ----

// An estimate from what an H100 can reach at best: 3.0 TB/s, the FLOP/s of rate_of(), and 2 us from the start of one
// node to the next.
double estimated_us(const Node& node) { return std::max({2.0, node.bytes / 3.0e6, node.flops / node.rate * 1e6}); }

std::string short_kernel_name(const void* kernel) {
  static std::map<const void*, std::string> symbols;
  const auto [found, is_new] = symbols.try_emplace(kernel);
  if (is_new) found->second = emulator::symbol_name(kernel);
  std::string name = found->second;
  const std::string noise = "cuda::";
  for (size_t at = 0; (at = name.find(noise)) != std::string::npos;) name.erase(at, noise.size());
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += (name[i] == '<') - (name[i] == '>');
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

std::string describe(std::vector<Node> nodes, const std::vector<Call>& calls) {
  count_bytes(nodes, calls);
  double bytes = 0, flops = 0, us = 0;
  std::vector<std::pair<std::string, int>> lines;  // equal nodes are one line, at the place of the first
  for (const Node& node : nodes) {
    bytes += node.bytes;
    flops += node.flops;
    us += estimated_us(node);
    const std::string line =
        fmt::format("{:9.3f} {:9.1f} {:6.1f} {:>9}  {}{}", node.bytes / 1e6, node.flops / 1e6, estimated_us(node),
                    node.grid.empty() ? "-" : node.grid, node.slot.empty() ? "" : node.slot + ": ", node.name);
    const auto same = std::ranges::find(lines, line, &std::pair<std::string, int>::first);
    same == lines.end() ? void(lines.emplace_back(line, 1)) : void(++same->second);
  }
  std::string text = fmt::format("nodes {}, MB {:.1f}, MFLOP {:.0f}, estimated us {:.1f}\n", nodes.size(), bytes / 1e6,
                                 flops / 1e6, us);
  for (const auto& [line, count] : lines) text += fmt::format("{:4} {}\n", count, line);
  return text;
}

// Trains for a few steps without running any kernel, twice, and describes the second run: the first one of a process
// also chooses algorithms.
std::string census(const std::string& name, Precision precision, int64_t batch, bool fuse = true,
                   int64_t graph_steps = 1) {
  constexpr int64_t groups = 6;  // of steps, each a replay
  const int64_t samples = groups * graph_steps * batch;
  SampleInfo info;
  info.rows = info.columns = 28;
  info.channels = 1;
  info.classes = 10;
  const MemorySource set(info, std::vector<uint8_t>(static_cast<size_t>(samples * 784)),
                         std::vector<int32_t>(static_cast<size_t>(samples)));
  std::string text;
  for (int run = 0; run < 2; ++run) {
    const auto model = make_model(name, 1);
    ParameterArena arena(*model, Device::cuda);
    Loader training(set, {.batch = batch, .device = Device::cuda, .cache = CacheMode::device});
    Recorder recording;
    std::map<std::string, int64_t> before,
        fewest;  // host calls of the step with the fewest: others also read the losses
    const auto total = [](const std::map<std::string, int64_t>& calls) {
      int64_t sum = 0;
      for (const auto& [function, count] : calls) sum += count;
      return sum;
    };
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
      std::map<std::string, int64_t> calls = recording.host_calls;
      for (const auto& [function, count] : before) calls[function] -= count;
      std::erase_if(calls, [](const auto& call) { return call.second == 0; });
      if (progress.step > 2 * graph_steps && (fewest.empty() || total(calls) < total(fewest))) fewest = calls;
      before = recording.host_calls;
    };
    hooks.should_stop = [&] { return before.size() > 0 && recording.host_calls["cudaGraphLaunch"] == groups - 1; };
    train(*model, arena, training, training, config, hooks);
    text = describe(recording.nodes, recording.calls);
    text += graph_steps == 1 ? fmt::format("     host calls per step: {}", total(fewest))
                             : fmt::format("     host calls for {} steps: {}", graph_steps, total(fewest));
    for (const auto& [function, count] : fewest) text += fmt::format(", {} {}", count, function);
    text += fmt::format("\n     device allocations per run: {}, MB {:.1f}\n", recording.allocations,
                        static_cast<double>(recording.allocated) / 1e6);
    release_cached_memory(Device::cuda);
  }
  const std::string group = graph_steps == 1 ? "" : fmt::format(", a graph of {} steps", graph_steps);
  return fmt::format("\n{} {} batch {}{}{}: {}", name, hs::name(precision), batch, fuse ? "" : " fuse off", group,
                     text);
}

}  // namespace

TEST_CASE("a captured step has the nodes, bytes and host calls of tests/census.lock") {
  set_caching(true);
  std::string text =
      "What one captured training step consists of, by tests/cuda/census.cpp; its head says what is counted.\n"
      "Written by HALFSTEP_UPDATE_CENSUS=1 build/release/tests/test_cuda_census.\n"
      "us: an estimate for an H100, not a measurement.\n\n"
      "count        MB     MFLOP     us      grid  slot: kernel\n";
  for (const char* name : {"mlp", "mnist_cnn", "mnist_cnn_large", "deep_cnn"}) {
    for (const Precision precision : {Precision::f32, Precision::f16, Precision::bf16}) {
      for (const int64_t batch : {64, 2048}) text += census(name, precision, batch);
    }
  }
  for (const char* name : {"mnist_cnn", "mnist_cnn_large"}) {  // what fusing saves: docs/techniques/gpu_kernels.md
    for (const int64_t batch : {64, 2048}) text += census(name, Precision::f16, batch, false);
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

using hs::test::note;
using hs::test::recorder;

namespace hs::emulator {
cudaError_t launch(const void* kernel, dim3 grid, dim3 block, size_t, cudaStream_t, std::function<void()>,
                   std::vector<const void*> pointers) {
  note("cudaLaunchKernel");
  if (!recorder) return cudaSuccess;
  hs::test::Node node(hs::test::short_kernel_name(kernel));
  node.grid = fmt::format("{}x{}", uint64_t{grid.x} * grid.y * grid.z, block.x * block.y * block.z);
  for (const void* pointer : pointers) node.pointers.push_back(static_cast<const char*>(pointer));
  recorder->add(node);
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
  note("cudaMalloc");
  if (recorder) ++recorder->allocations, recorder->allocated += static_cast<int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void*) {
  note("cudaFree");
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void*, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  note("cudaMemcpyAsync");
  if (kind == cudaMemcpyDeviceToHost) memset(to, 0, bytes);
  if (recorder) recorder->add(hs::test::Node("cudaMemcpyAsync", 2 * static_cast<double>(bytes)));
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, size_t bytes, cudaStream_t) {
  note("cudaMemsetAsync");
  if (recorder) recorder->add(hs::test::Node("cudaMemsetAsync", static_cast<double>(bytes)));
  return cudaSuccess;
}

// A product runs only inside a call of the slot gemm, which names all of its operands.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                              const void*, cublasLtMatrixLayout_t, const void* beta, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*,
                              void*, size_t, cudaStream_t) {
  note("cublasLtMatmul");
  if (!recorder || !recorder->capturing) return CUBLAS_STATUS_SUCCESS;
  hs::test::Node node("cublasLtMatmul");
  node.grid.push_back('?');  // the library's choice
  const hs::test::Call& call = recorder->calls[recorder->running.back()];
  for (const hs::test::Extent& tensor : call.tensors) node.pointers.push_back(tensor.begin);
  if (*static_cast<const float*>(beta) != 0) node.pointers.push_back(static_cast<const char*>(d));  // read as well
  const hs::Shape &a = call.shapes.front(), &c = call.shapes.back();
  node.name += fmt::format(" {}x{}x{}", c[0], c[1], c[0] > 0 ? a.size() / c[0] : 0);
  recorder->add(node);
  return CUBLAS_STATUS_SUCCESS;
}

// These are counted and then run.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  note("cudaStreamBeginCapture");
  if (recorder) recorder->capturing = true;
  return hs::test::library_function(cudaStreamBeginCapture)(stream, mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  note("cudaStreamEndCapture");
  if (recorder) recorder->capturing = false;
  return hs::test::library_function(cudaStreamEndCapture)(stream, graph);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  note("cudaGraphLaunch");
  return hs::test::library_function(cudaGraphLaunch)(graph, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  note("cudaStreamSynchronize");
  return hs::test::library_function(cudaStreamSynchronize)(stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  note("cudaStreamWaitEvent");
  return hs::test::library_function(cudaStreamWaitEvent)(stream, event, flags);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  note("cudaEventRecord");
  return hs::test::library_function(cudaEventRecord)(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  note("cudaEventSynchronize");
  return hs::test::library_function(cudaEventSynchronize)(event);
}
