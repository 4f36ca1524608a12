// The memory of one loader slot: a host buffer that is filled, a device buffer that the kernels read, and the two
// events that say when each may be used again. Double buffering usually goes wrong here: on a GPU a copy continues
// after the call that started it, and kernels run long after their launch, so "I have moved on" does not mean "the
// buffer is free". Each wait below is right before the access that it protects.
//
//   event      recorded                                   waited for
//   uploaded   after the copy, on the copy stream         by the host before it writes the host buffer again,
//                                                         by the compute stream before the batch is read
//   released   after the last reader, on the compute      by the copy stream before the device buffer is overwritten
//              stream
// On the CPU both buffers are one, nothing is copied, and events are no-ops (engine/device.h).
// Not thread safe; the loader passes it from thread to thread under its mutex.
#pragma once

#include "engine/device.h"
#include "engine/tensor.h"

namespace hs {

class LoaderBuffers : NonCopyable {  // a host and a device buffer, and their events
 public:
  // `pin`: the host buffer is pinned memory, which the device reads directly; no effect on the CPU.
  // Throws Error (device, out_of_memory).
  LoaderBuffers(Device device, int64_t bytes, bool pin);
  ~LoaderBuffers();

  // Returns the host buffer for the next batch. Waits until the last upload has read it.
  uint8_t* begin_fill();
  // Starts the copy of its first `bytes` to the device and returns.
  void upload(size_t bytes);
  // The device buffer, u8, for kernels launched from now on: they wait for the upload, the host does not.
  const Tensor& hand_over();
  // Returns false while a tensor outside shares the device buffer. Otherwise the buffer is free once the kernels
  // launched so far have run.
  bool try_release();

 private:
  const DeviceRuntime& runtime_;
  Tensor device_;    // (bytes) u8
  Tensor pageable_;  // (bytes) u8 on the host; undefined if the host buffer is pinned, or is device_
  HostMemory pinned_;
  uint8_t* host_ = nullptr;
  DeviceEvent uploaded_, released_;
};

}  // namespace hs
