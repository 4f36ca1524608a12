#include "engine/observe.h"

#include <algorithm>
#include <array>

#include "engine/check.h"

namespace hs {
namespace {

// Slots, not a list, so that tell() takes no lock: an observer may wait for the device, or for another thread.
std::array<std::atomic<Observer*>, 16> attached;
std::atomic<int> telling = 0;  // threads inside tell()
std::mutex attaching;          // guards writes to `attached`

// Recursive, because a kernel may call another one.
std::recursive_mutex& queue_mutex(Stream stream) {
  static std::recursive_mutex mutexes[2];
  return mutexes[static_cast<size_t>(stream)];
}

// Not a string: the first use of one registers its destructor, and where memory has just run out, glibc ends the
// program instead of reporting it.
thread_local std::array<char, 32> thread_name;

struct Choices {
  std::mutex mutex;
  std::map<std::string, std::string> by_name;
};

Choices& choices() {
  static Choices all;
  return all;
}

}  // namespace

void Observers::attach(Observer& observer) {
  const std::lock_guard lock(attaching);
  const auto slot = std::ranges::find(attached, nullptr, [](const auto& one) { return one.load(); });
  if (slot == attached.end()) {
    fail(ExitCode::usage, "{} observers are attached, which is the most; detach one first", attached.size());
  }
  *slot = &observer;
  wanted_ |= observer.events_;
}

void Observers::detach(Observer& observer) {
  {
    const std::lock_guard lock(attaching);
    uint8_t wanted = 0;
    for (auto& slot : attached) {
      if (slot == &observer) slot = nullptr;
      if (const Observer* other = slot) wanted |= other->events_;
    }
    wanted_ = wanted;
  }
  // A thread in tell() has either counted itself by now, and is waited for, or finds the slot empty.
  while (telling != 0) std::this_thread::yield();
}

void Observers::tell_all(Event event, const std::function<void(Observer&)>& call) {
  struct Counted {
    Counted() { ++telling; }
    ~Counted() { --telling; }
  } const counted;
  for (auto& slot : attached) {
    Observer* observer = slot;
    if (!observer || (observer->events_ & static_cast<uint8_t>(event)) == 0) continue;
    if (observer->watch_ == Observer::Watch::this_thread && observer->thread_ != std::this_thread::get_id()) continue;
    call(*observer);
  }
}

void WorkRange::begin() {
  work_.captured = runtime(work_.device).is_capturing();
  if (work_.device != Device::cpu) lock_ = std::unique_lock(queue_mutex(work_.stream));
  Observers::tell(Event::work, [this](Observer& o) { o.work_begins(work_); });
  observed_ = true;
}

void WorkRange::end(bool failed) {
  observed_ = false;
  Observers::tell(Event::work, [&](Observer& o) { o.work_ends(work_, failed); });
}

void WorkRange::fail() noexcept {
  try {
    end(true);
  } catch (const Error&) {  // the device has failed; the next call that waits for it reports the error
  }
}

void name_this_thread(std::string_view name) {
  thread_name = {};
  name.copy(thread_name.data(), thread_name.size() - 1);
}
std::string name_of_this_thread() { return thread_name.data(); }

void note_choice(const std::string& what, const std::string& choice) {
  const std::lock_guard lock(choices().mutex);
  choices().by_name[what] = choice;
}

std::map<std::string, std::string> noted_choices() {
  const std::lock_guard lock(choices().mutex);
  return choices().by_name;
}

}  // namespace hs
