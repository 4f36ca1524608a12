#include "data/loader/loader_buffers.h"

#include "engine/check.h"
#include "engine/observe.h"
#include "engine/storage.h"

namespace hs {
namespace {

Tensor empty_bytes(int64_t bytes, Device device) {
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  return Tensor::empty({bytes}, DType::u8, device);
}

}  // namespace

LoaderBuffers::LoaderBuffers(Device device, int64_t bytes, bool pin)
    : runtime_(runtime(device)), device_(empty_bytes(bytes, device)) {
  if (pin && device != Device::cpu) {
    pinned_ = pin_host_memory(device, static_cast<size_t>(bytes), "a batch; do without pinning");
    host_ = static_cast<uint8_t*>(pinned_.get());
  } else if (device != Device::cpu) {
    pageable_ = empty_bytes(bytes, Device::cpu);
    host_ = pageable_.mutable_data<uint8_t>();
  } else {
    host_ = device_.mutable_data<uint8_t>();
  }
  uploaded_ = make_event(device, EventTiming::off);
  released_ = make_event(device, EventTiming::off);
  // The allocator may have given us a block that was freed while kernels still read it.
  runtime_.record_event(released_.get(), Stream::compute);
}

LoaderBuffers::~LoaderBuffers() {
  try {
    runtime_.wait_on_host(uploaded_.get());  // memory must not be freed while a copy uses it
  } catch (const Error&) {                   // the device has failed: no copy runs any more
  }
}

uint8_t* LoaderBuffers::begin_fill() {
  runtime_.wait_on_host(uploaded_.get());
  return host_;
}

void LoaderBuffers::upload(size_t bytes) {
  if (device_.device() == Device::cpu) return;
  runtime_.wait_on_stream(released_.get(), Stream::copy);
  WorkRange range({device_.device(), Stream::copy, "upload"});
  runtime_.upload(device_.mutable_raw_data(), host_, bytes);
  range.end();
  runtime_.record_event(uploaded_.get(), Stream::copy);
}

const Tensor& LoaderBuffers::hand_over() {
  runtime_.wait_on_stream(uploaded_.get(), Stream::compute);
  return device_;
}

bool LoaderBuffers::try_release() {
  if (device_.is_shared()) return false;
  runtime_.record_event(released_.get(), Stream::compute);
  return true;
}

}  // namespace hs
