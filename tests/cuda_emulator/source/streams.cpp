// Streams are queues of work, events are marks in them. By default work runs inside the call that queues it. With
// options().delay_streams it runs late and in a random order that respects streams and events: a little at each API
// call, the rest when somebody waits. Every such order is one that a real device may take, so a missing wait shows.
// Work that waits for another process (not_finished()) stays at the front of its stream; the other streams go on.
#include <algorithm>
#include <chrono>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "internal.h"

struct Mark {  // one cudaEventRecord
  bool done = false;
  double seconds = 0;  // when it was reached
};

struct CUevent_st {
  std::shared_ptr<Mark> mark;  // of the last record; null: never recorded
  unsigned flags = 0;
  hs::emulator::Capture* capture = nullptr;  // if the last record was captured, with the nodes it stands for
  std::vector<int> nodes;
};

struct CUstream_st {
  struct Item {
    hs::emulator::Work work;
    std::shared_ptr<Mark> wait;  // must be done first
  };
  std::deque<Item> queue;
};

namespace hs::emulator {
namespace {

auto& streams = *new std::vector<cudaStream_t>;
auto& events = *new std::set<cudaEvent_t>;

bool can_run(cudaStream_t stream) {
  return !stream->queue.empty() && (!stream->queue.front().wait || stream->queue.front().wait->done);
}

bool unfinished = false;  // of the work that runs

// False if it has to be called again.
bool run_front(cudaStream_t stream) {
  CUstream_st::Item item = std::move(stream->queue.front());
  stream->queue.pop_front();
  unfinished = false;
  if (item.work && sticky_error() == cudaSuccess) item.work();
  if (!std::exchange(unfinished, false)) return true;
  stream->queue.push_front(std::move(item));
  return false;
}

// Runs the front of a stream that can go on; false if there is none. It tends to stay with the stream of last time, so
// that one stream may fall far behind the others.
bool run_one() {
  static cudaStream_t favourite = nullptr;
  std::vector<cudaStream_t> able;
  std::copy_if(streams.begin(), streams.end(), std::back_inserter(able), can_run);
  if (able.empty()) return false;
  if (std::find(able.begin(), able.end(), favourite) == able.end() || chance(4)) {
    favourite = able[randomness()() % able.size()];
  }
  return run_front(favourite) || std::any_of(able.begin(), able.end(), [](cudaStream_t stream) {
           return stream != favourite && run_front(stream);
         });
}

// How rarely an API call lets the device get on with its work: one in this many. Changes whenever the host waits, so
// that some stretches run nearly in step with the host and in others nothing moves until it waits.
int sluggishness = 2;

template <class Condition>
cudaError_t run_until(Condition&& reached) {
  if (options().delay_streams) sluggishness = 2 << randomness()() % 5;
  while (!reached()) {
    if (run_one()) continue;
    // Cannot happen: a wait is always for something queued earlier.
    if (std::none_of(streams.begin(), streams.end(), can_run)) return cudaErrorUnknown;
    mutex().unlock();  // only other processes can help; this one's other threads may use the device meanwhile
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    mutex().lock();
  }
  return sticky_error();
}

cudaError_t push(cudaStream_t stream, CUstream_st::Item item) {
  stream->queue.push_back(std::move(item));
  if (!options().delay_streams) {
    while (run_one()) {
    }
    return sticky_error();
  }
  if (chance(sluggishness)) {
    do {
    } while (run_one() && !chance(2));
  }
  return sticky_error();
}

}  // namespace

bool is_live(cudaStream_t stream) { return std::find(streams.begin(), streams.end(), stream) != streams.end(); }

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
  if (Capture* capture = capture_of(stream)) return add_node(capture, stream, std::move(work));
  return push(stream, {std::move(work), nullptr});
}

void drain() {
  run_until([] {
    return std::all_of(streams.begin(), streams.end(), [](cudaStream_t each) { return each->queue.empty(); });
  });
}

void not_finished() { unfinished = true; }

void forget_queues() {
  for (cudaStream_t stream : streams) stream->queue.clear();
  for (cudaEvent_t event : events) *event = CUevent_st{nullptr, event->flags, nullptr, {}};
}

}  // namespace hs::emulator

using namespace hs::emulator;

cudaError_t cudaDeviceSynchronize() {
  return api([] {
    if (const cudaError_t error = forbid_in_any_capture()) return error;
    drain();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api([&] {
    if (!stream || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;  // README: no default stream to synchronise with
    *stream = new CUstream_st;
    streams.push_back(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard guard(mutex());
  if (options().no_device) return remember(cudaErrorInsufficientDriver);
  if (!is_live(stream)) return remember(cudaErrorInvalidResourceHandle);
  if (capture_of(stream)) forbid_in_capture(stream);
  const cudaError_t error = run_until([&] { return stream->queue.empty(); });
  std::erase(streams, stream);
  delete stream;
  return remember(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return api([&] {
    if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
    if (capture_of(stream)) return forbid_in_capture(stream);
    return run_until([&] { return stream->queue.empty(); });
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return api([&] {
    if (!is_live(stream) || !events.count(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) return join(event->capture, stream, event->nodes);
    if (capture_of(stream)) {
      if (!event->mark) return cudaSuccess;
      forbid_in_capture(stream);
      return cudaErrorStreamCaptureIsolation;
    }
    if (!event->mark || event->mark->done) return cudaSuccess;  // a wait for an event never recorded is no wait
    return push(stream, {nullptr, event->mark});
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api([&] {
    if (!event || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) return cudaErrorInvalidValue;
    *event = new CUevent_st;
    (*event)->flags = flags;
    events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::lock_guard guard(mutex());
  if (options().no_device) return remember(cudaErrorInsufficientDriver);
  if (events.erase(event) == 0) return remember(cudaErrorInvalidResourceHandle);
  delete event;  // waits that are queued keep its mark alive
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api([&] {
    if (!is_live(stream) || !events.count(event)) return cudaErrorInvalidResourceHandle;
    event->capture = capture_of(stream);
    if (event->capture) {
      event->nodes = frontier(event->capture, stream);
      return cudaSuccess;
    }
    event->mark = std::make_shared<Mark>();
    return push(stream,
                {[mark = event->mark] {
                   mark->done = true;
                   mark->seconds =
                       std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
                 },
                 nullptr});
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api([&] {
    if (!events.count(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    if (const cudaError_t error = unsafe_in_capture()) return error;
    if (!event->mark || event->mark->done) return cudaSuccess;
    if (chance(2)) run_one();  // a loop that polls must end some time
    return event->mark->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api([&] {
    if (!events.count(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    if (const cudaError_t error = unsafe_in_capture()) return error;
    return run_until([&] { return !event->mark || event->mark->done; });
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api([&] {
    if (!milliseconds) return cudaErrorInvalidValue;
    for (cudaEvent_t event : {start, end}) {
      if (!events.count(event) || (event->flags & cudaEventDisableTiming) || !event->mark) {
        return cudaErrorInvalidResourceHandle;
      }
      if (!event->mark->done) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>((end->mark->seconds - start->mark->seconds) * 1e3);
    return cudaSuccess;
  });
}
