// A page for the browsers of this machine, which shows what a run knows so far.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "bench/cli/clock.h"
#include "bench/cli/json_file.h"
#include "engine/non_copyable.h"

namespace hs::bench::cli {

// Serves one page over HTTP at an address of 127.0.0.1 that nobody can guess, from a thread of its own that sleeps
// until it is asked. Whatever else is asked for does not exist (404). One connection is served at a time, for half a
// second at most; a request that is too long or too slow ends with its connection.
class PageServer : NonCopyable {
 public:
  // draw: makes the page of a record, in the thread, each time that it is asked for. port 0: a free one. Throws Error:
  // io (the port cannot be had), out_of_memory (the thread cannot be started).
  PageServer(int port, Json record, std::function<std::string(const Json&)> draw);
  ~PageServer() { stop(); }

  const std::string& address() const { return address_; }  // "http://127.0.0.1:PORT/TOKEN/"
  // What the page shows from now on. Once a second is often enough: is_due(). For one thread.
  void publish(Json record);
  bool is_due() const { return seconds_since(published_) >= 1; }
  // Stops serving. A browser asks every two seconds: one that did lately first gets the page once more, and is told not
  // to ask again.
  void finish();

 private:
  struct Descriptor {
    int number = -1;
    ~Descriptor();
  };
  void stop();
  void run();
  void serve(int socket);
  std::string answer_to(const std::string& request);

  const std::function<std::string(const Json&)> draw_;
  std::mutex mutex_;  // guards record_
  Json record_;
  Clock::time_point published_{}, watched_until_{};  // the second is of the thread alone
  std::string request_, address_;                    // how the one request that counts begins
  Descriptor listener_, wake_;
  std::atomic<bool> ends_ = false, lingers_ = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace hs::bench::cli
