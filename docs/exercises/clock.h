// For checks of threads: ends the program, with words, where a wait of the answer would never end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

class Clock {
 public:
  // `words` says who waits for what, or nothing if nobody does. If somebody does and 1.9 s go by without a tick(),
  // prints the words and exits with 1. It counts turns of its own thread, so that a busy machine makes it late and not
  // hasty.
  explicit Clock(const std::function<std::string()>& words)
      : thread_([this, words](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          int ticks = ticks_, quiet = 0;
          while (!stop.stop_requested()) {
            std::condition_variable_any().wait_for(lock, stop, std::chrono::milliseconds(100), [] { return false; });
            quiet = ticks == ticks_ ? quiet + 1 : 0;
            ticks = ticks_;
            if (const std::string who = words(); quiet >= 19 && !who.empty() && !stop.stop_requested()) {
              std::printf("ERROR: for 2 s nothing has happened. %s\n", who.c_str());
              std::fflush(nullptr);
              std::_Exit(1);
            }
          }
        }) {}
  void tick() { ++ticks_; }

 private:
  std::atomic<int> ticks_ = 0;
  std::jthread thread_;  // last: it uses the ticks
};
