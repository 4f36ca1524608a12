// Exchange: sums over the ranks of a run, computed by a thread of its own while the caller continues.
//
//   exchange.start(plan, {gradients, kept...}, count, name);   // as often as wanted, in the same order on every rank
//   ...                                                  // backward computes the next gradients
//   exchange.wait();                                     // gradients[0 .. count-1] are now the sum over all ranks
//
// The thread opens the transport and alone uses it. It carries out several sums at once, each by its ReducePlan
// (engine/ranks/leaf_tree.h), so the result does not depend on which message arrives first. MPI moves nothing between
// calls into it; so the thread polls, and sleeps in between, because it shares its core with the threads that compute.
//
// No rank waits for another one longer than the timeout: everything here then throws Error (rank) that names the rank
// whose message has not come. That one may itself have waited for a third.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/clock.h"
#include "engine/device.h"
#include "engine/ranks/leaf_tree.h"
#include "engine/ranks/transport.h"

namespace hs {

enum class Wire : uint8_t { f32, bf16 };  // the type in which the floats of start() are sent

// How ranks exchange sums.
struct ExchangeOptions {
  double timeout = 60;  // seconds
  // bf16: the sums of start() are rounded where they cross from rank to rank, so half the bytes are sent, and the
  // result depends on the number of ranks. (Both sides round both operands: every rank still has the same result.)
  Wire wire = Wire::f32;
  // Sums of at least this many bytes are halved (ReducePlan::halving) if they can be. Every rank must have the same
  // number, which changes the time and not the bits. On four ranks halving is quicker from 4 alpha / (beta + 2.5 gamma)
  // bytes on (bench/measure/rank_model.h): an estimated 9 KB in shared memory (1 us, 5 GB/s) and 110 KB in a network
  // (30 us, 1.25 GB/s). Not with 16 bits on the wire: collected sums would be rounded once more.
  int64_t halving_bytes = int64_t{64} << 10;
};

// What the sums have cost this rank since the exchange was opened.
struct ExchangeSeconds {
  double active = 0;            // with at least one sum in progress: messages, additions, and waiting for other ranks
  double exposed = 0;           // of wait(), in which the caller did nothing else
  int64_t sums = 0, bytes = 0;  // started; sent
};

// One sum, in seconds of this process's steady clock.
struct SumTimes {
  std::string name;         // as given to start()
  int64_t bytes;            // of the array
  double posted, finished;  // by start(); by the exchange's thread
};

// Sums over the ranks of arrays on one device. Exchange is the one for the CPU; open_sums() opens others.
class RankSums {
 public:
  virtual ~RankSums() = default;
  // Starts the sum of `count` floats over the leaves of all ranks. arrays: as ReducePlan defines them, 0 and those
  // kept; none may be touched, and the plan must live, until wait() returns. name: for take_times()
  virtual void start(const ReducePlan& plan, std::vector<float*> arrays, size_t count, const std::string& name) = 0;
  // The same over the ranks' arrays, by the library's own all-reduce: quicker, in an order of additions that it
  // chooses.
  virtual void start_library(float* values, size_t count, const std::string& name) = 0;
  // The sum over ranks of values that are zero on all ranks but one each, so every order of additions is exact.
  virtual void start_gather(float* values, size_t count) = 0;
  // From here on all sums are there for what the device does. The CPU waits for them; returns false if stop() has said
  // so for two seconds: the arrays are then garbage, and no other rank may be expected to be in step; only the
  // destructor may be called. Work on another device is ordered after them, nobody waits, and stop() is not asked.
  virtual bool wait(const std::function<bool()>& stop) = 0;
  // After a step: returns when the device has done it. Throws Error (rank) if another rank keeps it from that for
  // longer than the timeout. The CPU has done it at wait().
  virtual void finish_step() {}
  // After a failure: what waits for other ranks on the device gives up, so that the process can end. Nothing else may
  // be called afterwards.
  virtual void abandon() {}

  virtual ExchangeSeconds seconds() = 0;  // totals so far
  // From now on notes each sum, if `on`. Returns those noted since the last call, in the order in which they finished.
  virtual std::vector<SumTimes> take_times(bool on) = 0;
};

class Exchange : public RankSums {  // the sums of the CPU, on a thread of its own; one thread at a time may call it
 public:
  using Open = std::function<std::unique_ptr<Transport>()>;  // see open_mpi()
  // `open` runs on the thread. Throws what it throws, and Error (rank) if it has not ended within the timeout.
  Exchange(const Open& open, const ExchangeOptions& options);
  // Ends the thread, but not the transport: a process that fails must not wait for others.
  ~Exchange() override;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank() const { return rank_; }                 // this process's number, from 0
  int size() const { return size_; }                 // number of ranks in the run
  const std::string& host() const { return host_; }  // name of this rank's machine

  enum class With : uint8_t { all, first };  // the ranks that get what is shared
  // A text of each rank, by rank; With::first: rank 0 alone gets them. Every rank must call it; waits.
  // REQUIRES: no sum in progress
  std::vector<std::string> share(const std::string& own, With with = With::all);
  // The seconds by which this rank's clock is ahead of rank 0's, wrong by half of the shortest message there and back
  // at most (Cristian, "Probabilistic clock synchronization", 1989). Every rank must call it; waits.
  // REQUIRES: no sum in progress
  double clock_ahead(const std::function<double()>& clock = steady_seconds);

  void start(const ReducePlan& plan, std::vector<float*> arrays, size_t count, const std::string& name = "") override {
    begin(&plan, std::move(arrays), count, name);
  }
  void start_library(float* values, size_t count, const std::string& name = "") override {
    begin(nullptr, {values}, count, name);
  }
  void start_gather(float* values, size_t count) override { begin(&one_each_, {values}, count, "values"); }
  bool wait(const std::function<bool()>& stop = {}) override;
  bool gather(std::vector<float>& values, const std::function<bool()>& stop = {}) {  // start_gather(), then wait()
    start_gather(values.data(), values.size());
    return wait(stop);
  }

  ExchangeSeconds seconds() override;
  std::vector<SumTimes> take_times(bool on) override;
  // The regular end of all ranks.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Sum;

  // On the caller's thread.
  void call(const std::function<void()>& task);
  void begin(const ReducePlan* plan, std::vector<float*> arrays, size_t count, const std::string& name);
  void throw_error() const;
  // On the exchange's own.
  void run();
  void carry_out();
  void advance(std::unique_lock<std::mutex>& lock);
  void send_text(int to, std::string text);
  std::string receive_text(int from, double timeout);

  const ExchangeOptions options_;
  int rank_ = 0, size_ = 1;
  std::string host_;
  ReducePlan one_each_;  // of size() leaves

  std::mutex mutex_;  // guards what both threads use
  std::condition_variable work_, progress_;
  std::vector<std::unique_ptr<Sum>> sums_;  // by tag; reused after each wait()
  size_t started_ = 0, taken_ = 0, finished_ = 0;
  std::function<void()> task_;
  std::exception_ptr error_;
  bool waiting_ = false, abandoned_ = false, ending_ = false, ended_ = false;
  ExchangeSeconds seconds_;
  bool notes_times_ = false;
  std::vector<SumTimes> times_;

  // Used only by the exchange's own thread.
  std::unique_ptr<Transport> transport_;
  std::vector<Sum*> active_;
  Clock::time_point last_progress_, last_turn_;
  TransferPtr idle_;  // receives what nobody sends

  std::thread thread_;  // last: uses the others
};

// Opens the sums of arrays on a device; every rank must call it. nullptr for the CPU, where Exchange is that itself.
// Throws Error: device (the library is missing), rank.
std::unique_ptr<RankSums> open_sums(Device device, Exchange& ranks, const ExchangeOptions& options);
// Called by a static object in the file that implements the sums of a device.
using OpenSums = std::unique_ptr<RankSums> (*)(Exchange& ranks, const ExchangeOptions& options);
bool register_sums(Device device, OpenSums open);  // returns true

}  // namespace hs
