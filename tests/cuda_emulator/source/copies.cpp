// Copies and fills: what they may read and write, and when.
#include <cstring>

#include "internal.h"

namespace hs::emulator {
namespace {

// In order with nothing: non-blocking streams do not wait for the default stream, nor it for them.
template <class Now>
cudaError_t run_at_once(const Now& now) {
  if (const cudaError_t error = unsafe_in_capture()) return error;
  now();
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool synchronous) {
  if (bytes == 0) return cudaSuccess;
  const Where target = where(to, bytes), source = where(from, bytes);
  if (target == Where::overrun || source == Where::overrun) return cudaErrorInvalidValue;
  const bool to_device = target == Where::device, from_device = source == Where::device;
  if (kind != cudaMemcpyDefault &&
      kind != (from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                           : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost))) {
    return kind < 0 || kind > cudaMemcpyDefault ? cudaErrorInvalidMemcpyDirection : cudaErrorInvalidValue;
  }
  const auto now = [to, from, bytes] {
    DeviceAccess access{to, from};
    memmove(to, from, bytes);
  };
  if (synchronous) return run_at_once(now);
  const bool pageable = (!to_device && !is_pinned(to, bytes)) || (!from_device && !is_pinned(from, bytes));
  if (!pageable) return enqueue(stream, now);
  if (capture_of(stream)) return forbid_in_capture(stream);
  if (!to_device) {  // the real call, too, returns only when a copy to pageable memory has been made
    if (const cudaError_t error = enqueue(stream, now)) return error;
    return cudaStreamSynchronize(stream);
  }
  if (options().pageable_access) return enqueue(stream, now);  // the device reads it when it gets there
  auto staged =
      std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  return enqueue(stream, [to, staged] {
    DeviceAccess access{to};
    memcpy(to, staged->data(), staged->size());
  });
}

}  // namespace
}  // namespace hs::emulator

using namespace hs::emulator;

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api([&] { return copy(to, from, bytes, kind, nullptr, true); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api([&] {
    if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
    return copy(to, from, bytes, kind, stream, false);
  });
}

static cudaError_t set(void* to, int value, size_t bytes, cudaStream_t stream, bool synchronous) {
  if (bytes == 0) return cudaSuccess;
  if (where(to, bytes) != Where::device) return cudaErrorInvalidValue;
  const auto now = [to, value, bytes] {
    DeviceAccess access{to};
    memset(to, value, bytes);
  };
  return synchronous ? run_at_once(now) : enqueue(stream, now);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return api([&] { return set(to, value, bytes, nullptr, true); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return api([&] { return set(to, value, bytes, stream, false); });
}
