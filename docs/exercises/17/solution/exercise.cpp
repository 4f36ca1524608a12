#include "docs/exercises/17/exercise.h"

#include <condition_variable>
#include <map>
#include <mutex>

namespace exercise {

struct OrderedQueue::State {
  struct Entry {
    Item item;
    std::exception_ptr error;
  };
  explicit State(int64_t slots) : slots(slots) {}
  const int64_t slots;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Entry> entries;  // at most `slots`, from index `taken` on
  int64_t taken = 0;
  bool closed = false;

  bool add(int64_t index, Entry entry) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return closed || index < taken + slots; });
    if (closed) return false;
    entries.emplace(index, std::move(entry));
    changed.notify_all();  // not notify_one, which may wake a worker that has to wait on
    return true;
  }
};

OrderedQueue::OrderedQueue(int64_t slots) : state_(new State(slots)) {}
OrderedQueue::~OrderedQueue() = default;

bool OrderedQueue::put(int64_t index, Item item) { return state_->add(index, {std::move(item), nullptr}); }

bool OrderedQueue::fail(int64_t index, const std::exception_ptr& error) { return state_->add(index, {{}, error}); }

std::optional<Item> OrderedQueue::take() {
  std::unique_lock lock(state_->mutex);
  const auto is_there = [&] { return !state_->entries.empty() && state_->entries.begin()->first == state_->taken; };
  state_->changed.wait(lock, [&] { return state_->closed || is_there(); });
  if (state_->closed) return std::nullopt;
  const auto node = state_->entries.extract(state_->entries.begin());
  ++state_->taken;  // a failed item has been delivered as well
  state_->changed.notify_all();
  if (node.mapped().error) std::rethrow_exception(node.mapped().error);
  return std::move(node.mapped().item);
}

void OrderedQueue::close() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->entries.clear();
  state_->changed.notify_all();
}

}  // namespace exercise
