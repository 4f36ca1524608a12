// For checks of threads: ends the program, with words, where a wait of the answer would never end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>

class Clock {
 public:
  // Runs the call, and knows that it waits until it returns or throws. If for 2 s no call begins or ends and some
  // wait, prints which, and which returned last, and exits with 1.
  template <class Call>
  auto during(const std::string& name, const Call& call) {
    const struct Ends {
      Clock& clock;
      const std::string& name;
      ~Ends() {
        const std::lock_guard lock(clock.mutex_);
        clock.waiting_.erase(clock.waiting_.find(name));
        clock.returned_.push_back(name);
        if (clock.returned_.size() > 4) clock.returned_.pop_front();
        clock.quiet_ = 0;
      }
    } ends{*this, name};
    begin(name);
    return call();
  }

 private:
  void begin(const std::string& name) {
    const std::lock_guard lock(mutex_);
    waiting_.insert(name);
    quiet_ = 0;
  }
  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    std::condition_variable_any stopped;
    while (!stop.stop_requested()) {
      stopped.wait_for(lock, stop, std::chrono::milliseconds(100), [] { return false; });
      // Its own turns are counted, so that on a busy machine it is late and not hasty.
      if (++quiet_ < 20 || waiting_.empty() || stop.stop_requested()) continue;
      std::printf("ERROR: for 2 s nothing has happened. Waiting: ");
      for (const std::string& name : waiting_) std::printf("%s. ", name.c_str());
      std::printf("Returned last:");
      for (const std::string& name : returned_) std::printf(" %s.", name.c_str());
      std::puts("");
      std::fflush(nullptr);
      std::_Exit(1);
    }
  }

  std::mutex mutex_;
  std::multiset<std::string> waiting_;
  std::deque<std::string> returned_;
  int quiet_ = 0;
  std::jthread thread_{[this](const std::stop_token& stop) { watch(stop); }};  // last: it uses the others
};
