// What a graph node, a dependent launch, a grid barrier and memory cost on this device: as one JSON object, medians of
// 20. They decide what a faster step would gain, and replace the estimates of docs/chapters/11_gpu_kernels.md. It knows
// nothing of the engine: its own kernels, launched as plainly as they can be. The arguments `write` and `race` make
// mistakes on purpose, one of each kind that compute-sanitizer must report (bench/gpu_check).
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace hs::ceilings {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "ceilings: %s: %s\n", call, cudaGetErrorString(error));
  std::exit(7);
}

__global__ void empty_kernel() {}

// A round trip to the second-level cache.
__global__ void chain_kernel(float* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = values[i] * 1.0001f + 1;
}

// The same as a programmatic dependent launch: it may begin before the kernel in front of it has ended.
__global__ void early_kernel(float* values, int count) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = values[i] * 1.0001f + 1;
}

__global__ void barrier_kernel(int rounds) {
  const auto grid = cooperative_groups::this_grid();
  for (int i = 0; i < rounds; ++i) grid.sync();
}

__global__ void copy_kernel(const float4* from, float4* to, size_t count) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    to[i] = from[i];
}

// Reads what another warp has written, without a barrier.
__global__ void race_kernel(float* values) {
  __shared__ float shared[256];
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  values[threadIdx.x] = shared[255 - threadIdx.x];
}

enum class How { plain, early, cooperative };

template <class... Parameters, class... Args>
void launch(cudaStream_t stream, How how, int blocks, void (*kernel)(Parameters...), Args... args) {
  cudaLaunchAttribute attribute{};
  attribute.id =
      how == How::early ? cudaLaunchAttributeProgrammaticStreamSerialization : cudaLaunchAttributeCooperative;
  how == How::early ? attribute.val.programmaticStreamSerializationAllowed = 1 : attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = how == How::plain ? 0 : 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), "cudaLaunchKernelEx");
}

template <class Work>
float median_us(cudaStream_t stream, const Work& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i < 23; ++i) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i >= 3) times.push_back(milliseconds * 1e3f);  // the first ones warm up
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

constexpr int nodes = 500;

template <class Node>
float graph_us_per_node(cudaStream_t stream, const Node& node) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < nodes; ++i) node();
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  const float us = median_us(stream, [&] { check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch"); });
  check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return us / nodes;
}

void print(const char* what, double value) {
  static const char* before = "{";
  std::printf("%s\"%s\": %.3f", before, what, value);
  before = ",\n ";
}

int attribute_of(cudaDeviceAttr attribute) {
  int value = -1;
  check(cudaDeviceGetAttribute(&value, attribute, 0), "cudaDeviceGetAttribute");
  return value;
}

void measure(cudaStream_t stream, float* values, float* others, int count) {
  print("multiprocessors", attribute_of(cudaDevAttrMultiProcessorCount));
  print("l2_mib", attribute_of(cudaDevAttrL2CacheSize) / 1048576.0);
  print("shared_memory_opt_in_kib", attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin) / 1024.0);
  print("pageable_memory_access", attribute_of(cudaDevAttrPageableMemoryAccess));
  print("clock_mhz", attribute_of(cudaDevAttrClockRate) / 1000.0);
  print("graph_node_empty_kernel_us", graph_us_per_node(stream, [&] { launch(stream, How::plain, 1, empty_kernel); }));
  const auto chain = [&] { launch(stream, How::plain, count / 256, chain_kernel, values, count); };
  print("graph_node_load_add_store_us", graph_us_per_node(stream, chain));
  print("graph_node_copy_256_bytes_us", graph_us_per_node(stream, [&] {
          check(cudaMemcpyAsync(others, values, 256, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
        }));
  print("graph_node_memset_64_kib_us", graph_us_per_node(stream, [&] {
          check(cudaMemsetAsync(others, 0, sizeof(float) * static_cast<size_t>(count), stream), "cudaMemsetAsync");
        }));
  cudaFuncAttributes code{};
  check(cudaFuncGetAttributes(&code, early_kernel), "cudaFuncGetAttributes");
  if (code.ptxVersion >= 90) {  // otherwise it has no wait
    print("graph_node_dependent_launch_us",
          graph_us_per_node(stream, [&] { launch(stream, How::early, count / 256, early_kernel, values, count); }));
  }
  print("stream_load_add_store_us", median_us(stream, [&] {
                                      for (int i = 0; i < nodes; ++i) chain();
                                    }) / nodes);
  for (const int blocks : {64, attribute_of(cudaDevAttrMultiProcessorCount)}) {
    constexpr int rounds = 200;
    const float us = median_us(stream, [&] { launch(stream, How::cooperative, blocks, barrier_kernel, rounds); });
    print(blocks == 64 ? "grid_barrier_64_blocks_us" : "grid_barrier_all_multiprocessors_us", us / rounds);
  }
  for (const size_t mebibytes : {size_t{8}, size_t{1024}}) {
    const size_t bytes = mebibytes << 20;
    float4 *from = nullptr, *to = nullptr;
    check(cudaMalloc(&from, bytes), "cudaMalloc");
    check(cudaMalloc(&to, bytes), "cudaMalloc");
    check(cudaMemset(from, 1, bytes), "cudaMemset");
    const int blocks = 8 * attribute_of(cudaDevAttrMultiProcessorCount);
    const float us = median_us(stream, [&] { launch(stream, How::plain, blocks, copy_kernel, from, to, bytes / 16); });
    print(mebibytes == 8 ? "copy_8_mib_tb_per_s" : "copy_1_gib_tb_per_s", 2e-6 * static_cast<double>(bytes) / us);
    check(cudaFree(from), "cudaFree");
    check(cudaFree(to), "cudaFree");
  }
  std::printf("}\n");
}

}  // namespace hs::ceilings

int main(int argc, char** argv) {
  using namespace hs::ceilings;
  constexpr int count = 64 * 256;
  const char* const mistake = argc > 1 ? argv[1] : "";
  cudaStream_t stream = nullptr;
  float *values = nullptr, *others = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaMalloc(&values, sizeof(float) * count), "cudaMalloc");
  check(cudaMalloc(&others, sizeof(float) * count), "cudaMalloc");
  check(cudaMemset(values, 0, sizeof(float) * count), "cudaMemset");
  if (std::strcmp(mistake, "write") == 0) {
    launch(stream, How::plain, count / 256 + 1, chain_kernel, others, count + 256);
  } else if (std::strcmp(mistake, "race") == 0) {
    launch(stream, How::plain, 1, race_kernel, values);
  } else {
    measure(stream, values, others, count);
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return 0;
}
