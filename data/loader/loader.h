// Loader: batches of any SampleSource, prepared ahead of time by threads, epoch after epoch.
//
// The order of epoch e depends only on (seed, e): its position p is sample order_of(e)(p), computed on demand. No
// order is stored, and resuming is a seek(). Threads determine when a batch is built, never which.
//
// A batch is built in a slot, which has a buffer on the host and one on the device (data/loader/loader_buffers.h); enum
// State lists its states. Slots are queued in the order of their batches and leave the queue from its front, whichever
// is finished first: this is "delivery by index". Workers get their work from the front, too. With prefetch 0, or no
// workers, the same functions run inside next(), on the caller's thread. On the CPU only the copy is omitted.
//
// Not thread safe: one thread calls next(), and uses or drops the batches. A process that was forked has none of the
// threads, and makes a loader of its own.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/io/sample_source.h"
#include "data/loader/loader_buffers.h"
#include "engine/batch.h"
#include "engine/device.h"
#include "engine/random.h"

namespace hs {

// Where samples are kept once they have been read.
enum class CacheMode {
  none,    // each sample is read from the source every time
  ram,     // once, and kept decoded (see SampleCache); a source in memory is used directly
  device,  // all are read and copied to the device before the first batch; batches are gathered there
};

// A worker if it is worth one: not where a batch is only copied, from samples in memory to tensors of the CPU. That
// takes less time than to wake a thread, and the thread would take the core of another one that computes. Then nothing
// is built ahead either.
inline constexpr int64_t automatic_workers = -1;
inline constexpr int64_t max_prefetch = 1000;  // batches: all of them are in memory at once

// Options of a Loader.
struct LoaderOptions {
  int64_t batch = 128;          // samples per batch
  bool shuffle = true;          // false: the order of the source
  uint64_t seed = 1;            // key of the order, see shuffled_order()
  Device device = Device::cpu;  // where the batches are
  int64_t prefetch = 0;         // batches built ahead of next()'s, at most max_prefetch; 0: none, and no threads
  // Threads, each building one batch at a time; 0: next() builds the batches ahead itself.
  int64_t workers = 1;
  CacheMode cache = CacheMode::none;  // see CacheMode
  bool pin = true;                    // pinned host buffers, which the device reads directly; no effect on the CPU
  bool normalize_on_host = false;     // uploads pixels as f32, four times the bytes; not with CacheMode::device
  // With several ranks, next() gives the batches of one of them: of every `group` batches in a row (0: of an epoch; the
  // last group of an epoch may be smaller) those of leaves_of() (engine/ranks/leaf_tree.h).
  int ranks = 1, rank = 0;
  int64_t group = 0;  // see ranks
};

class Loader : public BatchSource {  // see the head of this file
 public:
  // `source` must outlive the loader. A batch larger than the set gives one batch per epoch, the whole set.
  // Throws Error: usage (options), bad_input (the set is empty), device (there is none), out_of_memory.
  Loader(const SampleSource& source, const LoaderOptions& options);
  Loader(SampleSource&&, const LoaderOptions&) = delete;
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the next batch; waits until it is ready. Its tensors may be kept for any length of time: a slot is reused
  // once no tensor of its batch is left. (There are prefetch + 1 slots if each batch is dropped before the next call,
  // and prefetch + 2 if one is kept until that has returned.) If reading a sample throws, the call for its batch throws
  // that, with the sample's index in the message. All worker threads have then ended and the position has not moved:
  // next() tries again, seek() goes elsewhere.
  Batch next() override;

  int64_t samples() const override { return source_.info().count; }
  int64_t batches_per_epoch() const override;
  int64_t batch() const override { return largest(); }
  PixelScale pixel_scale() const override { return source_.info().scale; }
  const ResidentSet* resident() override;
  BatchPlace skip(int64_t batches) override;

  // Makes the next batch begin at this position of this epoch. Drops batches built ahead.
  // REQUIRES: 0 <= epoch < 2^32, 0 <= position < samples(); with several ranks a multiple of the batch
  void seek(int64_t epoch, int64_t position);
  // From the next batch on, so many threads make so many batches ahead. Drops batches built ahead.
  // REQUIRES: neither is negative
  void prepare(int64_t workers, int64_t prefetch);
  void start_epoch(int64_t epoch) { seek(epoch, 0); }  // as seek()
  // Where the next batch begins: its epoch, and its first position there (0 at the start of an epoch).
  int64_t epoch() const { return next_.epoch; }
  int64_t position() const { return next_.position; }  // see epoch()

 private:
  // state      what happens in the slot, and what it waits for      becomes the next state
  // free       nothing                                              when next() requests a batch up to `prefetch` ahead
  // filling    begin_fill() waits until the slot's last upload      when upload() has started the buffer's copy,
  //            has read the host buffer; samples are read into it   which waits for `released`
  // uploading  the copy                                             when next() reaches this batch
  // in_use     hand_over(): kernels wait for `uploaded`             free, when no tensor of the batch is left:
  //                                                                 try_release() records `released`
  enum class State { free, filling, uploading, in_use };
  struct Slot {
    Slot(Device device, int64_t bytes, bool pin) : buffers(device, bytes, pin) {}
    State state = State::free;
    BatchPlace first;   // of its batch
    int64_t count = 0;  // samples of its batch
    std::exception_ptr error;
    LoaderBuffers buffers;
  };

  int64_t count_at(BatchPlace place) const;
  BatchPlace place_after(BatchPlace place, int64_t count) const;
  BatchPlace own_place(BatchPlace place) const;
  Permutation order_of(int64_t epoch) const;
  void add_slot();
  void request();
  void start_workers();
  void work(size_t number);
  void fill(Slot& slot);
  void read(const Slot& slot, uint8_t* to);
  Batch batch_in(Slot& slot);
  void load_to_device();
  void leave_fork();
  void stop();
  bool is_forked() const { return ::getpid() != process_; }

  // Offsets of the parts of a slot's buffers, in bytes: labels (batch), samples (batch) i32, epoch i32, images.
  int64_t largest() const { return std::min(options_.batch, samples()); }
  int64_t samples_at() const { return 4 * largest(); }
  int64_t epoch_at() const { return 8 * largest(); }
  int64_t images_at() const { return (epoch_at() + 4 + 255) / 256 * 256; }
  bool normalizes() const { return options_.normalize_on_host && source_.info().type == DType::u8; }
  DType image_type() const { return normalizes() ? DType::f32 : source_.info().type; }
  int64_t image_bytes() const { return source_.info().image_bytes() * (normalizes() ? int64_t{sizeof(float)} : 1); }

  LoaderOptions options_;
  const SampleSource& source_;
  const std::unique_ptr<const SampleSource> cache_;  // of source_, with CacheMode::ram
  ResidentSet on_device_;                            // with CacheMode::device, from the first batch on
  std::vector<float> normalized_;                    // by pixel value, with normalize_on_host

  BatchPlace next_;       // of the batch that next() returns
  BatchPlace requested_;  // of the batch that is requested next

  // Slots change owners under this mutex; the owner (a worker, or the caller of next()) uses a slot without it.
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> wanted_ = std::make_unique<std::condition_variable>();
  std::condition_variable made_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::deque<Slot*> ahead_;    // requested and not yet returned, in the order of their batches
  std::deque<Slot*> to_fill_;  // those of ahead_ that no thread has taken yet, in the same order
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
  const pid_t process_ = ::getpid();  // whose the threads are
};

}  // namespace hs
