#include "data/loader_buffers.h"

#include "engine/check.h"
#include "engine/memory.h"
#include "engine/profiler.h"

namespace hs {
namespace {

Tensor empty_bytes(int64_t bytes, Device device) {
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  return Tensor::empty({bytes}, DType::u8, device);
}

}  // namespace

LoaderBuffers::LoaderBuffers(Device device, int64_t bytes, bool pin)
    : runtime_(runtime(device)), pinned_(pin && device != Device::cpu), device_(empty_bytes(bytes, device)) {
  if (pinned_) {
    host_ = static_cast<uint8_t*>(runtime_.allocate_host(static_cast<size_t>(bytes)));
    if (host_ == nullptr) {
      fail(ExitCode::out_of_memory, "no {} bytes of host memory can be pinned for a batch; do without pinning", bytes);
    }
  } else if (device != Device::cpu) {
    pageable_ = empty_bytes(bytes, Device::cpu);
    host_ = pageable_.mutable_data<uint8_t>();
  } else {
    host_ = device_.mutable_data<uint8_t>();
  }
  uploaded_ = runtime_.create_event(EventTiming::off);
  released_ = runtime_.create_event(EventTiming::off);
  // The allocator may have given us a block that was freed while kernels still read it.
  runtime_.record_event(released_, Stream::compute);
}

LoaderBuffers::~LoaderBuffers() {
  try {
    runtime_.wait_on_host(uploaded_);  // memory must not be freed under a copy
  } catch (const Error&) {             // the device has failed: no copy runs any more
  }
  runtime_.destroy_event(uploaded_);
  runtime_.destroy_event(released_);
  if (pinned_) runtime_.release_host(host_);
}

uint8_t* LoaderBuffers::begin_fill() {
  runtime_.wait_on_host(uploaded_);
  return host_;
}

void LoaderBuffers::upload(size_t bytes) {
  if (device_.device() == Device::cpu) return;
  runtime_.wait_on_stream(released_, Stream::copy);
  {
    const DeviceRange range(device_.device(), Stream::copy, "upload");
    runtime_.upload(device_.mutable_raw_data(), host_, bytes);
  }
  runtime_.record_event(uploaded_, Stream::copy);
}

const Tensor& LoaderBuffers::hand_over() {
  runtime_.wait_on_stream(uploaded_, Stream::compute);
  return device_;
}

bool LoaderBuffers::try_release() {
  if (device_.is_shared()) return false;
  runtime_.record_event(released_, Stream::compute);
  return true;
}

}  // namespace hs
