#include "docs/exercises/14/exercise.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace exercise {

struct Bucket {
  std::vector<float> values;
  size_t parameters = 0, missing = 0;  // how many are in it, and not ready yet
};

struct Buckets::State {
  struct Place {
    size_t bucket, offset, size;
  };
  AllReduce all_reduce;
  std::vector<Place> places;  // of each parameter
  std::vector<Bucket> buckets;

  std::mutex mutex;
  std::condition_variable changed;
  size_t reduced = 0;  // buckets of this step whose all-reduce has returned
  bool ended = false;  // the object is being destroyed
  std::exception_ptr error;
  std::jthread thread;  // last: it uses the others

  bool finished() const { return reduced == buckets.size() || error; }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ended || (!finished() && buckets[reduced].missing == 0); });
      if (ended) return;
      Bucket& bucket = buckets[reduced];
      lock.unlock();  // nothing writes a complete bucket
      std::exception_ptr thrown;
      try {
        all_reduce(reduced, bucket.values);  // only this thread changes `reduced` before the step has finished
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown)
        error = thrown;
      else
        ++reduced;
      changed.notify_all();
    }
  }

  void begin_step() {
    reduced = 0;
    error = nullptr;
    for (Bucket& bucket : buckets) {
      bucket.missing = bucket.parameters;
      std::ranges::fill(bucket.values, 0.0f);
    }
  }
};

Buckets::Buckets(std::vector<size_t> sizes, size_t capacity, AllReduce all_reduce) : state_(new State) {
  state_->all_reduce = std::move(all_reduce);
  state_->places.resize(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    auto& buckets = state_->buckets;
    if (buckets.empty() || buckets.back().values.size() >= capacity) buckets.emplace_back();
    Bucket& bucket = buckets.back();
    state_->places[i] = {buckets.size() - 1, bucket.values.size(), sizes[i]};
    bucket.values.resize(bucket.values.size() + sizes[i]);
    ++bucket.parameters;
  }
  state_->begin_step();
  state_->thread = std::jthread([state = state_.get()] { state->run(); });
}

Buckets::~Buckets() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
  state_->changed.notify_all();
}

void Buckets::ready(size_t parameter, std::span<const float> gradient) {
  const std::lock_guard lock(state_->mutex);
  const State::Place& place = state_->places[parameter];
  Bucket& bucket = state_->buckets[place.bucket];
  std::ranges::copy(gradient, bucket.values.begin() + static_cast<std::ptrdiff_t>(place.offset));
  if (--bucket.missing == 0) state_->changed.notify_all();
}

std::vector<std::vector<float>> Buckets::wait() {
  std::unique_lock lock(state_->mutex);
  for (Bucket& bucket : state_->buckets) bucket.missing = 0;
  state_->changed.notify_all();
  state_->changed.wait(lock, [&] { return state_->finished(); });
  const std::exception_ptr error = state_->error;
  std::vector<std::vector<float>> sums;
  for (const State::Place& place : state_->places) {
    const float* values = state_->buckets[place.bucket].values.data() + place.offset;
    sums.emplace_back(values, values + place.size);
  }
  state_->begin_step();
  if (error) std::rethrow_exception(error);
  return sums;
}

}  // namespace exercise
