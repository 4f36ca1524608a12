#include "data/loader/loader.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "engine/check.h"
#include "engine/observe.h"
#include "engine/ranks/leaf_tree.h"
#include "engine/slots.h"
#include "engine/storage.h"

namespace hs {
namespace {

// A view of another source that reads each sample once and keeps it, decoded. Filled on demand: the first epoch
// costs what it did without the cache, and each later one costs a copy. Thread safe.
class SampleCache : public SampleSource {
 public:
  // Memory of all pixels at once, whose pages the operating system provides as they are written.
  explicit SampleCache(const SampleSource& source) : SampleSource(source.info()), source_(source) {
    const auto count = static_cast<size_t>(info().count), bytes = static_cast<size_t>(info().image_bytes());
    try {
      pixels_ = std::make_unique_for_overwrite<uint8_t[]>(count * bytes);
      is_there_ = std::make_unique<std::atomic<bool>[]>(count);
    } catch (const std::bad_alloc&) {
      fail(ExitCode::out_of_memory, "cache ram: no memory for {} samples of {} bytes; do without the cache", count,
           bytes);
    }
  }

 private:
  void read_sample(int64_t index, uint8_t* image) const override {
    const int64_t bytes = info().image_bytes();
    uint8_t* kept = pixels_.get() + index * bytes;
    std::atomic<bool>& is_there = is_there_[static_cast<size_t>(index)];
    if (!is_there.load(std::memory_order_acquire)) {
      // Two epochs may read a sample at the same time: the second thread waits for the first.
      const std::scoped_lock lock(locks_[static_cast<size_t>(index) % std::size(locks_)]);
      if (!is_there.load(std::memory_order_relaxed)) {
        source_.read_through(index, kept);
        is_there.store(true, std::memory_order_release);
      }
    }
    std::copy_n(kept, bytes, image);
  }
  int32_t sample_label(int64_t index) const override { return source_.label(index); }

  const SampleSource& source_;
  std::unique_ptr<uint8_t[]> pixels_;              // (count, rows, columns, channels)
  std::unique_ptr<std::atomic<bool>[]> is_there_;  // (count)
  mutable std::mutex locks_[64];                   // one per remainder of the index; held while a sample is read
};

std::unique_ptr<const SampleSource> make_cache(const SampleSource& source, CacheMode mode) {
  return mode == CacheMode::ram && !source.is_in_memory() ? std::make_unique<SampleCache>(source) : nullptr;
}

LoaderOptions with_workers(const SampleSource& source, LoaderOptions options) {
  if (options.workers != automatic_workers) return options;
  const bool only_copies = source.is_in_memory() && options.device == Device::cpu && !options.normalize_on_host;
  options.workers = only_copies ? 0 : 1;
  if (only_copies) options.prefetch = 0;
  return options;
}

// Reads a sample; every failure is an Error that names it.
void read_sample(const SampleSource& source, int64_t sample, uint8_t* image) {
  try {
    source.read(sample, image);
  } catch (const Error&) {
    throw;  // names it already
  } catch (const std::bad_alloc&) {
    fail(ExitCode::out_of_memory, "{}: out of host memory (sample {})", source.info().name, sample);
  } catch (const std::exception& error) {
    fail(ExitCode::internal, "{}: {} (sample {})", source.info().name, error.what(), sample);
  }
}

}  // namespace

Loader::Loader(const SampleSource& source, const LoaderOptions& options)
    : options_(with_workers(source, options)), source_(source), cache_(make_cache(source, options.cache)) {
  const SampleInfo& info = source_.info();
  if (options.batch < 1) fail(ExitCode::usage, "batch size {}: expected 1 or more", options.batch);
  if (options.prefetch < 0) fail(ExitCode::usage, "prefetch {}: expected 0 or more", options.prefetch);
  if (options.prefetch > max_prefetch) {
    fail(ExitCode::usage, "prefetch {}: expected at most {}", options.prefetch, max_prefetch);
  }
  if (options_.workers < 0) fail(ExitCode::usage, "workers {}: expected 0 or more", options.workers);
  if (info.count < 1) fail(ExitCode::bad_input, "{}: the set has 0 samples, expected 1 or more", info.name);
  if (info.count > INT32_MAX) {
    fail(ExitCode::bad_input, "{}: {} samples, expected at most {}", info.name, info.count, INT32_MAX);
  }
  check(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks, "Loader: rank {} of {}", options.rank,
        options.ranks);
  if (options.normalize_on_host && options.cache == CacheMode::device) {
    fail(ExitCode::usage, "preprocess host: with cache device the pixels are on the device; preprocess them there");
  }
  if (options.normalize_on_host) {
    for (int pixel = 0; pixel < 256; ++pixel) normalized_.push_back(normalized(static_cast<float>(pixel), info.scale));
  }
  // Creates the slots that a caller of one batch at a time needs now: memory use is known before the first step.
  for (int64_t i = 0; i <= options_.prefetch; ++i) add_slot();
}

Loader::~Loader() {
  if (!is_forked()) {
    stop();
  } else {
    for (std::thread& thread : threads_) thread.detach();
    static_cast<void>(wanted_.release());  // whose end would wait for the threads
  }
}

int64_t Loader::batches_per_epoch() const { return (samples() - 1) / options_.batch + 1; }

void Loader::seek(int64_t epoch, int64_t position) {
  check(epoch >= 0 && epoch < int64_t{1} << 32, "Loader: epoch {} is not in 0 .. 2^32-1", epoch);
  check(position >= 0 && position < samples(), "Loader: position {} in an epoch of {} samples", position, samples());
  is_forked() ? leave_fork() : stop();
  next_ = requested_ = {epoch, position};
}

void Loader::prepare(int64_t workers, int64_t prefetch) {
  stop();
  options_.workers = workers;
  options_.prefetch = prefetch;
}

const ResidentSet* Loader::resident() {
  if (options_.cache != CacheMode::device) return nullptr;
  if (!on_device_.images.defined()) load_to_device();
  return &on_device_;
}

BatchPlace Loader::skip(int64_t batches) {
  const BatchPlace first = next_;
  const int64_t end = first.position + batches * options_.batch;
  check(end <= samples(), "Loader: position {} in an epoch of {} samples", end, samples());
  stop();
  next_ = requested_ = end == samples() ? BatchPlace{first.epoch + 1, 0} : BatchPlace{first.epoch, end};
  return first;
}

// Number of samples of the batch that begins at `place`.
int64_t Loader::count_at(BatchPlace place) const { return std::min(options_.batch, samples() - place.position); }

BatchPlace Loader::place_after(BatchPlace place, int64_t count) const {
  place.position += count;
  return place.position == samples() ? BatchPlace{place.epoch + 1, 0} : place;
}

// The first place from `place` on that belongs to this rank.
BatchPlace Loader::own_place(BatchPlace place) const {
  if (options_.ranks == 1) return place;
  const int64_t all = batches_per_epoch(), group = options_.group > 0 ? options_.group : all;
  check(leaves_of(std::min(group, all), options_.ranks, options_.rank).size() > 0,
        "Loader: rank {} of {} has none of an epoch's {} batches", options_.rank, options_.ranks, all);
  while (true) {
    const int64_t index = place.position / options_.batch, first = index / group * group;
    const int64_t count = std::min(group, all - first);
    const LeafRange own = leaves_of(count, options_.ranks, options_.rank);
    if (own.size() > 0 && index < first + own.end) {
      return {place.epoch, std::max(place.position, (first + own.begin) * options_.batch)};
    }
    place = first + count == all ? BatchPlace{place.epoch + 1, 0}
                                 : BatchPlace{place.epoch, (first + count) * options_.batch};
  }
}

// The order of an epoch.
Permutation Loader::order_of(int64_t epoch) const { return shuffled_order(samples(), options_.seed, epoch); }

Batch Loader::next() {
  if (is_forked()) leave_fork();
  (void)resident();
  std::unique_lock lock(mutex_);
  for (const auto& slot : slots_) {
    if (slot->state == State::in_use && slot->buffers.try_release()) slot->state = State::free;
  }
  while (static_cast<int64_t>(ahead_.size()) <= options_.prefetch) request();
  if (options_.prefetch == 0 || options_.workers == 0) {
    for (; !to_fill_.empty(); to_fill_.pop_front()) {
      fill(*to_fill_.front());
      to_fill_.front()->state = State::uploading;
    }
  } else {
    start_workers();
  }
  Slot* slot = ahead_.front();
  made_.wait(lock, [&] { return slot->state == State::uploading; });
  if (slot->error) {
    const std::exception_ptr error = slot->error;
    lock.unlock();
    stop();
    std::rethrow_exception(error);
  }
  std::erase(ahead_, slot);
  slot->state = State::in_use;
  next_ = place_after(slot->first, slot->count);
  lock.unlock();
  return batch_in(*slot);
}

void Loader::add_slot() {
  slots_.push_back(std::make_unique<Slot>(options_.device, images_at() + largest() * image_bytes(), options_.pin));
}

// Assigns the next batch to a free slot, or to a new one if none is free because the caller keeps many batches.
// REQUIRES: the mutex is held
void Loader::request() {
  auto found = std::ranges::find(slots_, State::free, [](const auto& slot) { return slot->state; });
  if (found == slots_.end()) {
    add_slot();
    found = slots_.end() - 1;
  }
  Slot& slot = **found;
  slot.state = State::filling;
  slot.first = own_place(requested_);
  slot.count = count_at(slot.first);
  requested_ = place_after(slot.first, slot.count);
  ahead_.push_back(&slot);
  to_fill_.push_back(&slot);
  wanted_->notify_one();
}

void Loader::start_workers() {
  while (std::ssize(threads_) < options_.workers) {
    try {
      threads_.emplace_back([this, number = threads_.size() + 1] { work(number); });
    } catch (const std::system_error& error) {
      fail(ExitCode::out_of_memory, "workers {}: only {} threads can be started: {}; give fewer, or raise `ulimit -u`",
           options_.workers, threads_.size(), error.code().message());
    }
  }
}

// The loop of a worker thread.
void Loader::work(size_t number) {
  name_this_thread(fmt::format("loader {}", number));
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_->wait(lock, [this] { return stopping_ || !to_fill_.empty(); });
    if (stopping_) return;
    Slot* slot = to_fill_.front();
    to_fill_.pop_front();
    lock.unlock();
    fill(*slot);
    lock.lock();
    slot->state = State::uploading;
    made_.notify_one();
  }
}

// Does not throw: an exception is kept in the slot until next() reaches it.
void Loader::fill(Slot& slot) {
  slot.error = nullptr;
  const Range range("fill", slot.first.position / options_.batch);
  try {
    read(slot, slot.buffers.begin_fill());
    const int64_t pixels = on_device_.images.defined() ? 0 : slot.count * image_bytes();
    slot.buffers.upload(static_cast<size_t>(images_at() + pixels));
  } catch (...) {
    slot.error = std::current_exception();
  }
}

// Writes the labels, indices and pixels of a batch to the host buffer.
void Loader::read(const Slot& slot, uint8_t* to) {
  const SampleSource& source = cache_ ? *cache_ : source_;
  auto* labels = reinterpret_cast<int32_t*>(to);
  auto* samples = reinterpret_cast<int32_t*>(to + samples_at());
  *reinterpret_cast<int32_t*>(to + epoch_at()) = static_cast<int32_t>(slot.first.epoch);
  const Permutation order = order_of(slot.first.epoch);
  for (int64_t i = 0; i < slot.count && !stopping_; ++i) {
    const int64_t position = slot.first.position + i;
    const auto sample = options_.shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(position))) : position;
    labels[i] = source.label(sample);
    samples[i] = static_cast<int32_t>(sample);
    if (on_device_.images.defined()) continue;
    uint8_t* image = to + images_at() + i * image_bytes();
    if (normalizes()) {
      // The bytes are read to the end of the image's place, and no float overwrites one that is yet to be converted.
      const int64_t pixels = source.info().image_bytes();
      uint8_t* pixel = image + image_bytes() - pixels;
      read_sample(source, sample, pixel);
      auto* values = reinterpret_cast<float*>(image);
      for (int64_t k = 0; k < pixels; ++k) values[k] = normalized_[pixel[k]];
    } else {
      read_sample(source, sample, image);
    }
  }
}

Batch Loader::batch_in(Slot& slot) {
  const SampleInfo& info = source_.info();
  const Tensor& bytes = slot.buffers.hand_over();
  Batch batch;
  batch.images = bytes.carve(images_at(), {slot.count, info.rows, info.columns, info.channels}, image_type());
  batch.labels = bytes.carve(0, {slot.count}, info.label_type);
  batch.samples = bytes.carve(samples_at(), {slot.count}, DType::i32);
  batch.epoch = bytes.carve(epoch_at(), {}, DType::i32);
  if (on_device_.images.defined()) gather_samples({on_device_.images, batch.samples, batch.images});
  return batch;
}

void Loader::load_to_device() {
  const SampleInfo& info = source_.info();
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  Tensor all = Tensor::empty({info.count, info.rows, info.columns, info.channels}, info.type);
  Tensor labels = Tensor::empty({info.count}, info.label_type);
  auto* const image = static_cast<uint8_t*>(all.mutable_raw_data());
  auto* const label = static_cast<int32_t*>(labels.mutable_raw_data());
  for (int64_t i = 0; i < info.count; ++i) {
    read_sample(source_, i, image + i * info.image_bytes());
    label[i] = source_.label(i);
  }
  on_device_ = {all.to(options_.device), labels.to(options_.device), options_.batch, options_.shuffle, options_.seed};
}

// A loader without threads continues in a forked process.
void Loader::leave_fork() {
  check(threads_.empty(), "Loader: its threads are in another process; make one after fork()");
  stop();
}

// Stops and joins the threads, and frees the slots of batches that were not returned.
void Loader::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wanted_->notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stopping_ = false;
  for (Slot* slot : ahead_) slot->state = State::free;
  ahead_.clear();
  to_fill_.clear();
  requested_ = next_;
}

}  // namespace hs
