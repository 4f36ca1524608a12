// The emulated device, an H100 by its numbers if it is not told otherwise, and the limits of a launch.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "cuda_runtime.h"
#include "internal.h"

namespace hs::emulator {
namespace {

constexpr int default_shared = 48 << 10, max_shared = 227 << 10;
auto& launched = *new std::set<const void*>;  // kernels
auto& first_in_capture = *new std::vector<std::string>;
auto& dynamic_shared_limit = *new std::map<const void*, int>;  // cudaFuncSetAttribute

int limit_of(const void* kernel) {
  auto found = dynamic_shared_limit.find(kernel);
  return found == dynamic_shared_limit.end() ? default_shared : found->second;
}

}  // namespace

cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config, std::function<void()> thread,
                   std::vector<const void*> pointers) {
  return api([&] {
    const dim3 block = config.blockDim, grid = config.gridDim;
    const uint64_t threads = static_cast<uint64_t>(block.x) * block.y * block.z;
    if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64 || grid.x == 0 ||
        grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
      return cudaErrorInvalidConfiguration;
    }
    if (config.dynamicSmemBytes > static_cast<size_t>(limit_of(kernel))) return cudaErrorInvalidValue;
    if (!config.stream) return cudaErrorInvalidResourceHandle;  // README: the project does not use the default stream
    if (launched.insert(kernel).second && capture_of(config.stream)) first_in_capture.push_back(symbol_name(kernel));
    const bool early = config.numAttrs > 0 && config.attrs->val.programmaticStreamSerializationAllowed != 0;
    return enqueue(config.stream, [=, shared_bytes = config.dynamicSmemBytes, thread = std::move(thread),
                                   pointers = std::move(pointers)] {
      run_grid(kernel, grid, block, shared_bytes, early, thread, pointers);
    });
  });
}

void forget_launches() {
  launched.clear();
  first_in_capture.clear();
}

std::vector<std::string> take_first_launches_in_captures() {
  std::lock_guard guard(mutex());
  return std::exchange(first_in_capture, {});
}

}  // namespace hs::emulator

using namespace hs::emulator;

// As without a driver, the version is 0 and asking for it is no error.
cudaError_t cudaDriverGetVersion(int* version) {
  *version = options().no_device ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return api([&] {
    *count = 1;
    return cudaSuccess;
  });
}
cudaError_t cudaSetDevice(int device) {
  return api([&] { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api([&] {
    if (device != 0) return cudaErrorInvalidDevice;
    *properties = cudaDeviceProp{};
    std::strcpy(properties->name, "halfstep CUDA emulator");
    properties->totalGlobalMem = options().total_memory;
    properties->major = options().device / 10;
    properties->minor = options().device % 10;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api([&] {
    if (device != 0) return cudaErrorInvalidDevice;
    const std::map<cudaDeviceAttr, int> values = {
        {cudaDevAttrClockRate, 1980000},
        {cudaDevAttrMultiProcessorCount, 132},
        {cudaDevAttrL2CacheSize, 50 << 20},
        {cudaDevAttrPageableMemoryAccess, options().pageable_access},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, max_shared},
    };
    const auto found = values.find(attribute);
    if (found == values.end()) return cudaErrorInvalidValue;
    *value = found->second;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return api([&] {
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > max_shared) {
      return cudaErrorInvalidValue;
    }
    dynamic_shared_limit[kernel] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return api([&] {
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (options().code > options().device) return cudaErrorNoKernelImageForDevice;
    *attributes = cudaFuncAttributes{};
    attributes->ptxVersion = options().code;
    attributes->binaryVersion = options().device;
    attributes->maxDynamicSharedSizeBytes = limit_of(kernel);
    return cudaSuccess;
  });
}
