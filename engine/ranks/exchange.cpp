#include "engine/ranks/exchange.h"

#include <sys/prctl.h>

#include <algorithm>
#include <future>
#include <limits>
#include <span>

#include "engine/check.h"
#include "engine/float16.h"
#include "engine/observe.h"

namespace hs {
namespace {

using namespace std::chrono_literals;

constexpr int idle_tag = 32767, text_tag = 32766;
constexpr std::chrono::microseconds pause_between_polls = 20us, eager_polling = 50us;
// A rank that is asked to stop in a step ends it with the others, which hear of it before the next one.
constexpr std::chrono::seconds time_to_stop_together = 2s;

OpenSums openers[device_count] = {};  // null before any static object is made, so those may register

template <class T>
std::span<std::byte> bytes_of(T* values, size_t count) {
  return std::as_writable_bytes(std::span(values, count));
}

float rounded(float value) { return to_float(to_bfloat16(value)); }

}  // namespace

// A sum in progress: its place in the plan, and the transfers of the current round.
struct Exchange::Sum {
  std::string name;
  double posted_at = 0;
  const ReducePlan* plan = nullptr;                        // nullptr: MPI's own all-reduce
  const std::vector<ReducePlan::Round>* rounds = nullptr;  // of the plan
  std::vector<float*> arrays;
  size_t count = 0;
  int tag = 0;
  bool is_exact = false, narrow = false, posted = false;
  size_t round = 0;
  int64_t bytes_sent = 0;
  struct Pending {
    TransferPtr transfer;
    int peer;
  };
  std::vector<Pending> pending;  // receives first
  std::vector<std::vector<float>> received;
  std::vector<std::vector<BFloat16>> wire;  // by array, with 16 bits on the wire

  bool is_done() const { return round == (plan ? rounds->size() : 1); }
  // Results are sent in full precision: the sender continues with the same bits.
  bool is_narrow(const ReducePlan::Message& message) const { return narrow && !message.is_result; }

  // Buffers for what is received, kept from step to step.
  void prepare(const ExchangeOptions& options) {
    narrow = options.wire == Wire::bf16 && !is_exact;
    posted = false;
    round = 0;
    bytes_sent = 0;
    if (!plan) return;
    rounds = &plan->rounds_for(count, narrow ? -1 : options.halving_bytes);
    received.resize(static_cast<size_t>(plan->arrays) - arrays.size());
    for (std::vector<float>& buffer : received) {
      buffer.resize(count);
      arrays.push_back(buffer.data());
    }
    wire.resize(narrow ? arrays.size() : 0);
    for (std::vector<BFloat16>& buffer : wire) buffer.resize(count);
  }

  void post(Transport& transport) {
    if (!plan) {
      pending.push_back({transport.all_reduce({arrays[0], count}), any_rank});
      return;
    }
    const ReducePlan::Round& now = (*rounds)[round];
    const auto buffer = [&](const ReducePlan::Message& message) {
      const auto i = static_cast<size_t>(message.array);
      const auto [begin, end] = message.part.elements(count);
      return is_narrow(message) ? bytes_of(wire[i].data() + begin, end - begin)
                                : bytes_of(arrays[i] + begin, end - begin);
    };
    for (const auto& message : now.receives) {
      pending.push_back({transport.receive(message.rank, tag, buffer(message)), message.rank});
    }
    for (const auto& message : now.sends) {
      if (is_narrow(message)) {
        const auto i = static_cast<size_t>(message.array);
        std::ranges::transform(std::span(arrays[i], count), wire[i].begin(), to_bfloat16);
      }
      pending.push_back({transport.send(message.rank, tag, buffer(message)), message.rank});
      bytes_sent += static_cast<int64_t>(buffer(message).size());
    }
  }

  // After the messages of a round: its additions.
  void add() {
    if (!plan) return;
    const ReducePlan::Round& now = (*rounds)[round];
    for (const auto& message : now.receives) {
      const auto i = static_cast<size_t>(message.array);
      if (!is_narrow(message)) continue;
      std::ranges::transform(wire[i], arrays[i], [](BFloat16 value) { return to_float(value); });
    }
    for (const ReducePlan::Add& sum : now.adds) {
      float* const to = arrays[static_cast<size_t>(sum.to)];
      const float* const from = arrays[static_cast<size_t>(sum.from)];
      const auto [begin, end] = sum.part.elements(count);
      if (narrow && sum.crosses) {
        for (size_t i = begin; i < end; ++i) to[i] = rounded(to[i]) + rounded(from[i]);
      } else {
        for (size_t i = begin; i < end; ++i) to[i] += from[i];
      }
    }
  }

  // Returns whether anything happened.
  bool advance(Transport& transport) {
    bool any = false;
    while (!is_done()) {
      if (!std::exchange(posted, true)) {
        post(transport);
        any = true;
      }
      any = std::erase_if(pending, [](const Pending& each) { return each.transfer->done(); }) > 0 || any;
      if (!pending.empty()) return any;
      add();
      ++round;
      posted = false;
    }
    return any;
  }
};

Exchange::Exchange(const Open& open, const ExchangeOptions& options) : options_(options) {
  // Not members: MPI waits for ever for a rank that ended before it began, and a thread that is left there must not use
  // this object.
  std::promise<std::unique_ptr<Transport>> opened;
  std::promise<bool> is_wanted;
  std::future<std::unique_ptr<Transport>> transport = opened.get_future();
  thread_ = std::thread([this, open, opened = std::move(opened), is_wanted = is_wanted.get_future()]() mutable {
    try {
      opened.set_value(open());
    } catch (...) {
      return opened.set_exception(std::current_exception());
    }
    if (is_wanted.get()) run();
  });
  if (transport.wait_for(std::chrono::duration<double>(options.timeout)) != std::future_status::ready) {
    is_wanted.set_value(false);
    thread_.detach();
    fail(ExitCode::rank,
         "waited {:g} s for all ranks to start; one has ended before it began, or cannot be reached: see its output",
         options.timeout);
  }
  try {
    transport_ = transport.get();
  } catch (...) {
    thread_.join();
    throw;
  }
  rank_ = transport_->rank();
  size_ = transport_->size();
  host_ = transport_->host();
  one_each_ = reduce_plan(size_, size_, rank_);
  is_wanted.set_value(true);
}

Exchange::~Exchange() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Exchange::throw_error() const {
  if (error_) std::rethrow_exception(error_);
  check(!abandoned_, "Exchange: a sum was given up, so this rank is out of step with the others; end the run");
}

// Runs the task on the thread, and waits for it.
void Exchange::call(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  throw_error();
  task_ = task;
  work_.notify_one();
  progress_.wait(lock, [this] { return !task_ || error_; });
  throw_error();
}

// Every rank sends its text to rank 0, which sends all of them to every rank.
std::vector<std::string> Exchange::share(const std::string& own, With with) {
  std::vector<std::string> all;
  call([&] {
    if (rank_ == 0) all.push_back(own);
    for (int rank = 1; rank < size_ && rank_ == 0; ++rank) all.push_back(receive_text(rank, options_.timeout));
    for (int rank = 1; rank < size_ && rank_ == 0 && with == With::all; ++rank) {
      for (const std::string& text : all) send_text(rank, text);
    }
    if (rank_ == 0) return;
    send_text(0, own);
    while (with == With::all && std::ssize(all) < size_) {
      all.push_back(receive_text(0, options_.timeout + 1));  // later than rank 0, which names the rank that is late
    }
  });
  return all;
}

// Rank 0 answers each rank in turn with its time. Of several answers the quickest counts: its time was half way.
double Exchange::clock_ahead(const std::function<double()>& clock) {
  constexpr int questions = 20;
  double ahead = 0, quickest = std::numeric_limits<double>::infinity();
  call([&] {
    for (int i = 0; i < questions * (size_ - 1); ++i) {
      const int peer = 1 + i / questions;
      if (rank_ == 0) {
        receive_text(peer, options_.timeout);
        send_text(peer, fmt::format("{}", clock()));
      } else if (rank_ == peer) {
        const double asked = clock();
        send_text(0, "");
        const double theirs = std::stod(receive_text(0, options_.timeout));
        const double answered = clock();
        if (answered - asked >= quickest) continue;
        quickest = answered - asked;
        ahead = (asked + answered) / 2 - theirs;
      }
    }
  });
  return ahead;
}

void Exchange::send_text(int to, std::string text) {
  auto size = static_cast<int64_t>(text.size());
  const TransferPtr head = transport_->send(to, text_tag, bytes_of(&size, 1));
  const TransferPtr body = transport_->send(to, text_tag, bytes_of(text.data(), text.size()));
  hs::wait(*head, to, options_.timeout);
  hs::wait(*body, to, options_.timeout);
}

std::string Exchange::receive_text(int from, double timeout) {
  int64_t size = 0;
  hs::wait(*transport_->receive(from, text_tag, bytes_of(&size, 1)), from, timeout);
  std::string text(static_cast<size_t>(size), '\0');
  hs::wait(*transport_->receive(from, text_tag, bytes_of(text.data(), text.size())), from, timeout);
  return text;
}

void Exchange::close() {
  share("");  // with a timeout, which MPI's own end has not
  call([this] {
    idle_.reset();
    transport_->close();
    transport_.reset();
  });
}

void Exchange::begin(const ReducePlan* plan, std::vector<float*> arrays, size_t count, const std::string& name) {
  {
    const std::scoped_lock lock(mutex_);
    throw_error();
    if (started_ == sums_.size()) {
      sums_.push_back(std::make_unique<Sum>());
      sums_.back()->tag = static_cast<int>(started_);
    }
    Sum& sum = *sums_[started_++];
    sum.plan = plan;
    sum.is_exact = plan == &one_each_;
    sum.arrays = std::move(arrays);
    sum.count = count;
    sum.name = name;
    sum.posted_at = steady_seconds();
    ++seconds_.sums;
  }
  work_.notify_one();
}

bool Exchange::wait(const std::function<bool()>& stop) {
  const auto begin = Clock::now();
  Clock::time_point asked = Clock::time_point::max();  // to stop
  std::unique_lock lock(mutex_);
  waiting_ = true;
  while (!error_ && finished_ < started_) {
    progress_.wait_for(lock, 10ms);
    if (!stop || !stop() || finished_ == started_) continue;
    asked = std::min(asked, Clock::now());
    if (Clock::now() - asked < time_to_stop_together) continue;
    abandoned_ = true;
    progress_.wait(lock, [this] { return ended_; });  // no array is touched from now on
    return false;
  }
  waiting_ = false;
  started_ = taken_ = finished_ = 0;
  seconds_.exposed += std::chrono::duration<double>(Clock::now() - begin).count();
  throw_error();
  return true;
}

ExchangeSeconds Exchange::seconds() {
  const std::scoped_lock lock(mutex_);
  return seconds_;
}

std::vector<SumTimes> Exchange::take_times(bool on) {
  const std::scoped_lock lock(mutex_);
  notes_times_ = on;
  return std::exchange(times_, {});
}

void Exchange::run() {
  name_this_thread("exchange");
  ::prctl(PR_SET_TIMERSLACK, 1000);  // ns; by default a short sleep takes 50 us more
  try {
    idle_ = transport_->receive(rank_, idle_tag, {});
    carry_out();
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    error_ = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  progress_.notify_all();
}

// The loop of the thread.
void Exchange::carry_out() {
  std::unique_lock lock(mutex_);
  while (!ending_ && !abandoned_) {
    if (task_) {
      lock.unlock();
      task_();
      lock.lock();
      task_ = nullptr;
      progress_.notify_all();
    } else if (taken_ < started_ || !active_.empty()) {
      advance(lock);
    } else {
      work_.wait_for(lock, 20ms);
      if (idle_) (void)idle_->done();  // MPI may have kept something that is to be sent, which it does in a call
    }
  }
}

// One turn of all sums.
void Exchange::advance(std::unique_lock<std::mutex>& lock) {
  const auto begin = Clock::now();
  // A process that was stopped, or that the machine did not run, does not count that time as another rank's.
  if (begin - last_turn_ > 250ms) last_progress_ = std::min(begin, last_progress_ + (begin - last_turn_));
  if (active_.empty()) last_progress_ = begin;
  last_turn_ = begin;
  for (; taken_ < started_; ++taken_) {
    sums_[taken_]->prepare(options_);
    active_.push_back(sums_[taken_].get());
  }
  const bool hurry = waiting_ && begin - last_progress_ < eager_polling;
  lock.unlock();
  bool any = false;
  for (Sum* sum : active_) any = sum->advance(*transport_) || any;
  const double now = steady_seconds();
  if (any) {
    last_progress_ = Clock::now();
  } else if (hurry) {
    std::this_thread::yield();
  } else {
    if (std::chrono::duration<double>(begin - last_progress_).count() > options_.timeout) {
      fail_waiting(options_.timeout, active_.front()->pending.front().peer);
    }
    std::this_thread::sleep_for(pause_between_polls);
  }
  lock.lock();
  const auto finished = std::erase_if(active_, [&](const Sum* sum) {
    if (!sum->is_done()) return false;
    seconds_.bytes += sum->bytes_sent;
    const auto bytes = static_cast<int64_t>(sum->count * sizeof(float));
    if (notes_times_) times_.push_back({sum->name, bytes, sum->posted_at, now});
    return true;
  });
  finished_ += finished;
  seconds_.active += std::chrono::duration<double>(Clock::now() - begin).count();
  if (finished > 0 && finished_ == started_) progress_.notify_all();
}

bool register_sums(Device device, OpenSums open) {
  openers[static_cast<int>(device)] = open;
  return true;
}

std::unique_ptr<RankSums> open_sums(Device device, Exchange& ranks, const ExchangeOptions& options) {
  const OpenSums open = openers[static_cast<int>(device)];
  return open ? open(ranks, options) : nullptr;
}

}  // namespace hs
