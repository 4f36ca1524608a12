#include "engine/ranks/exchange.h"

#include <sys/prctl.h>

#include <algorithm>
#include <future>
#include <limits>
#include <span>
#include <type_traits>

#include "engine/check.h"
#include "engine/float16.h"
#include "engine/observe.h"

namespace hs {
namespace {

using namespace std::chrono_literals;

constexpr int control_tag = 32767, text_tag = 32766;
constexpr std::chrono::microseconds pause_between_polls = 20us, eager_polling = 50us, watch_every = 20ms,
                                    ask_after = 250ms;

template <class T>
auto bytes_of(T* values, size_t count) {
  if constexpr (std::is_const_v<T>) {
    return std::as_bytes(std::span(values, count));
  } else {
    return std::as_writable_bytes(std::span(values, count));
  }
}

// The sum of all ranks is sent as it is: those who sent it go on with it as it is.
bool is_narrow(const ReducePlan::Message& message, bool narrow) { return narrow && !message.is_result; }

float rounded(float value) { return to_float(to_bfloat16(value)); }

// What threads tell each other while one waits too long.
struct Control {
  int32_t is_answer = 0;
  int32_t waits_for = -1;  // a rank; -1: none, it computes
  int64_t done = 0;        // sums so far
};

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
  size_t round = 0;
  bool posted = false;
  struct Pending {
    TransferPtr transfer;
    int peer;
  };
  std::vector<Pending> pending;  // receives first
  std::vector<std::vector<float>> received;
  std::vector<std::vector<BFloat16>> wire;  // by array, with 16 bits on the wire

  bool is_done() const { return round == (plan ? rounds->size() : 1); }
  int waits_for() const { return pending.empty() ? -1 : pending.front().peer; }

  // Buffers for what is received, kept from step to step.
  void prepare(const ExchangeOptions& options) {
    round = 0;
    posted = false;
    if (!plan) return;
    rounds = &plan->rounds_for(count, options.wire == Wire::f32 ? options.halving_bytes : -1);
    received.resize(static_cast<size_t>(plan->arrays) - arrays.size());
    for (std::vector<float>& buffer : received) {
      buffer.resize(count);
      arrays.push_back(buffer.data());
    }
    if (options.wire == Wire::f32) return;
    wire.resize(arrays.size());
    for (std::vector<BFloat16>& buffer : wire) buffer.resize(count);
  }

  void post(Transport& transport, bool narrow, ExchangeSeconds& seconds) {
    posted = true;
    if (!plan) {
      pending.push_back({transport.all_reduce({arrays[0], count}), transport.rank() == 0 ? 1 : 0});  // or any other
      return;
    }
    const ReducePlan::Round& now = (*rounds)[round];
    const auto buffer = [&](const ReducePlan::Message& message) {
      const auto i = static_cast<size_t>(message.array);
      const auto [begin, end] = message.part.elements(count);
      return is_narrow(message, narrow) ? bytes_of(wire[i].data() + begin, end - begin)
                                        : bytes_of(arrays[i] + begin, end - begin);
    };
    for (const auto& message : now.receives) {
      pending.push_back({transport.receive(message.rank, tag, buffer(message)), message.rank});
    }
    for (const auto& message : now.sends) {
      if (is_narrow(message, narrow)) {
        std::ranges::transform(std::span(arrays[static_cast<size_t>(message.array)], count),
                               wire[static_cast<size_t>(message.array)].begin(), to_bfloat16);
      }
      pending.push_back({transport.send(message.rank, tag, buffer(message)), message.rank});
      seconds.bytes += static_cast<int64_t>(buffer(message).size());
    }
  }

  // After the messages of a round: its additions.
  void add(bool narrow) {
    if (!plan) return;
    const ReducePlan::Round& now = (*rounds)[round];
    for (const auto& message : now.receives) {
      const auto i = static_cast<size_t>(message.array);
      if (!is_narrow(message, narrow)) continue;
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
  bool advance(Transport& transport, bool narrow, ExchangeSeconds& seconds) {
    bool any = false;
    while (!is_done()) {
      if (!posted) {
        post(transport, narrow, seconds);
        any = true;
      }
      any = std::erase_if(pending, [](const Pending& each) { return each.transfer->done(); }) > 0 || any;
      if (!pending.empty()) return any;
      add(narrow);
      ++round;
      posted = false;
    }
    return any;
  }
};

// Another rank, as far as it has told.
struct Exchange::Peer {
  TransferPtr receive;
  Control message;  // of `receive`
  Control answer;   // the last one
  bool is_asked = false, has_answered = false;
  std::vector<std::pair<std::unique_ptr<Control>, TransferPtr>> told;  // not yet sent
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
         "waited {:.1f} s for all ranks to start: one has ended before it began, or cannot be reached; see its own "
         "output",
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

std::vector<std::string> Exchange::share(const std::string& own) {
  std::vector<std::string> all;
  call([&] { all = share_on_thread(own, true); });
  return all;
}

std::vector<std::string> Exchange::collect(const std::string& own) {
  std::vector<std::string> all;
  call([&] { all = share_on_thread(own, false); });
  return all;
}

int Exchange::silent_rank(double seconds) {
  int silent = -1;
  call([&] { silent = silent_on_thread(seconds); });
  return silent;
}

double Exchange::clock_ahead(const std::function<double()>& clock) {
  double ahead = 0;
  call([&] { ahead = clock_ahead_on_thread(clock); });
  return ahead;
}

void Exchange::close() {
  share("");  // with a timeout, which MPI's own end has not
  call([this] {
    peers_.clear();
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
    sum.arrays = std::move(arrays);
    sum.count = count;
    if (notes_times_) {
      sum.name = name;
      sum.posted_at = steady_seconds();
    }
    ++seconds_.sums;
  }
  work_.notify_one();
}

bool Exchange::wait(const std::function<bool()>& stop) {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  waiting_ = true;
  while (!error_ && finished_ < started_) {
    progress_.wait_for(lock, 10ms);
    if (!stop || !stop() || finished_ == started_) continue;
    abandoned_ = true;
    interrupted_ = waiting_for_;
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

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Exchange::run() {
  name_this_thread("exchange");
  ::prctl(PR_SET_TIMERSLACK, 1000);  // ns; by default a short sleep takes 50 us more
  try {
    peers_.resize(static_cast<size_t>(size_));
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
      work_.wait_for(lock, watch_every);
      lock.unlock();
      watch();
      lock.lock();
    }
  }
}

// One turn of all sums.
void Exchange::advance(std::unique_lock<std::mutex>& lock) {
  const auto begin = Clock::now();
  if (active_.empty()) last_progress_ = begin;
  for (; taken_ < started_; ++taken_) {
    sums_[taken_]->prepare(options_);
    active_.push_back(sums_[taken_].get());
  }
  const bool hurry = waiting_ && begin - last_progress_ < eager_polling, notes = notes_times_;
  lock.unlock();
  ExchangeSeconds spent;
  bool any = false;
  for (Sum* sum : active_) any = sum->advance(*transport_, options_.wire == Wire::bf16, spent) || any;
  std::vector<SumTimes> times;
  const double now = notes ? steady_seconds() : 0;
  const auto finished = std::erase_if(active_, [&](const Sum* sum) {
    if (!sum->is_done()) return false;
    if (notes) times.push_back({sum->name, static_cast<int64_t>(sum->count * sizeof(float)), sum->posted_at, now});
    return true;
  });
  if (any) {
    last_progress_ = Clock::now();
    suspect_ = -1;
  } else if (hurry) {
    std::this_thread::yield();
  } else {
    watch();
    std::this_thread::sleep_for(pause_between_polls);
  }
  lock.lock();
  if (any) waiting_for_ = {};
  done_ += static_cast<int64_t>(finished);
  finished_ += finished;
  times_.insert(times_.end(), times.begin(), times.end());
  seconds_.bytes += spent.bytes;
  seconds_.active += std::chrono::duration<double>(Clock::now() - begin).count();
  if (finished > 0 && finished_ == started_) progress_.notify_all();
}

int Exchange::waits_for() const { return active_.empty() ? -1 : active_.front()->waits_for(); }

// Answers other ranks. If this one has waited for long, it asks them, and in the end gives up.
void Exchange::watch() {
  const auto now = Clock::now();
  if (!transport_ || now - last_watch_ < watch_every) return;
  // A process that was stopped, or that the machine did not run, does not count that time as another rank's.
  if (now - last_watch_ > ask_after) last_progress_ = std::min(now, last_progress_ + (now - last_watch_));
  last_watch_ = now;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) hear(rank);
  }
  if (active_.empty()) return;
  const double waited = std::chrono::duration<double>(now - last_progress_).count();
  if (now - last_progress_ > ask_after && now - last_question_ > ask_after) {
    last_question_ = now;
    ask();
  }
  const int guilty = suspect_ >= 0 ? suspect_ : waits_for();
  if (waited > options_.timeout) fail_waiting(waited, guilty);
  const std::scoped_lock lock(mutex_);
  waiting_for_ = {guilty, waited};
}

void Exchange::hear(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  std::erase_if(peer.told, [](const auto& each) { return each.second->done(); });
  if (!peer.receive) peer.receive = transport_->receive(rank, control_tag, bytes_of(&peer.message, 1));
  while (peer.receive->done()) {
    if (peer.message.is_answer) {
      peer.answer = peer.message;
      peer.has_answered = true;
    } else {
      tell(rank, true);
    }
    peer.receive = transport_->receive(rank, control_tag, bytes_of(&peer.message, 1));
  }
}

void Exchange::tell(int rank, bool is_answer) {
  auto control = std::make_unique<Control>(Control{is_answer, waits_for(), done_});
  TransferPtr transfer = transport_->send(rank, control_tag, bytes_of(control.get(), 1));
  peers_[static_cast<size_t>(rank)].told.emplace_back(std::move(control), std::move(transfer));
}

int Exchange::silent_on_thread(double seconds) {
  const auto silent = [&] {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_ && !peers_[static_cast<size_t>(rank)].has_answered) return rank;
    }
    return -1;
  };
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    peers_[static_cast<size_t>(rank)].has_answered = false;
    tell(rank, false);
  }
  const auto start = Clock::now();
  while (silent() >= 0 && std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) hear(rank);
    }
    std::this_thread::sleep_for(pause_between_polls);
  }
  return silent();
}

// Judges by the answers to the question before: a rank that gave none; otherwise, of those that do not wait, the one
// that is furthest behind.
void Exchange::ask() {
  const bool asked = std::ranges::any_of(peers_, &Peer::is_asked);
  suspect_ = -1;
  for (int rank = 0; rank < size_; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (rank == rank_) continue;
    if (asked && !peer.has_answered) {
      suspect_ = rank;
      break;
    }
    if (!asked || peer.answer.waits_for >= 0) continue;
    if (suspect_ < 0 || peer.answer.done < peers_[static_cast<size_t>(suspect_)].answer.done) suspect_ = rank;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.has_answered = false;
    peer.is_asked = true;
    tell(rank, false);
  }
}

// Every rank sends its text to rank 0, which sends all of them to every rank, if `with_all`. A text is preceded by its
// size; -1 - r instead says that rank r is missing.
std::vector<std::string> Exchange::share_on_thread(const std::string& own, bool with_all) {
  std::vector<std::string> all(static_cast<size_t>(size_));
  if (rank_ != 0) {
    send_text(0, own);
    if (!with_all) return {};
    for (std::string& text : all) text = receive_text(0, options_.timeout + 1);  // rank 0 gives up first
    return all;
  }
  all[0] = own;
  const auto begin = Clock::now();
  for (int rank = 1; rank < size_; ++rank) {
    try {
      const std::chrono::duration<double> spent = Clock::now() - begin;
      all[static_cast<size_t>(rank)] = receive_text(rank, std::max(options_.timeout - spent.count(), 0.1));
    } catch (const Error&) {
      const int64_t missing = -1 - int64_t{rank};
      std::vector<TransferPtr> told;
      for (int other = 1; other < size_; ++other) {
        told.push_back(transport_->send(other, text_tag, bytes_of(&missing, 1)));
      }
      for (const auto until = Clock::now() + 200ms; Clock::now() < until;) {
        std::erase_if(told, [](const TransferPtr& transfer) { return transfer->done(); });
      }
      throw;
    }
  }
  for (int rank = 1; rank < size_ && with_all; ++rank) {
    for (const std::string& text : all) send_text(rank, text);
  }
  return all;
}

// Rank 0 answers each rank in turn with its time. Of several answers the quickest counts: its time was half way.
double Exchange::clock_ahead_on_thread(const std::function<double()>& clock) {
  constexpr int questions = 20;
  double ahead = 0, quickest = std::numeric_limits<double>::infinity();
  const auto wait_for = [&](const TransferPtr& transfer, int peer) { hs::wait(*transfer, peer, options_.timeout); };
  for (int rank = 1; rank < size_; ++rank) {
    for (int i = 0; i < questions && (rank_ == 0 || rank_ == rank); ++i) {
      double theirs = 0;
      char question = 0;
      if (rank_ == 0) {
        wait_for(transport_->receive(rank, text_tag, bytes_of(&question, 1)), rank);
        const double own = clock();
        wait_for(transport_->send(rank, text_tag, bytes_of(&own, 1)), rank);
        continue;
      }
      const double asked = clock();
      wait_for(transport_->send(0, text_tag, bytes_of(&question, 1)), 0);
      wait_for(transport_->receive(0, text_tag, bytes_of(&theirs, 1)), 0);
      const double answered = clock();
      if (answered - asked >= quickest) continue;
      quickest = answered - asked;
      ahead = (asked + answered) / 2 - theirs;
    }
  }
  return ahead;
}

void Exchange::send_text(int to, const std::string& text) {
  const auto size = static_cast<int64_t>(text.size());
  const TransferPtr head = transport_->send(to, text_tag, bytes_of(&size, 1));
  const TransferPtr body = transport_->send(to, text_tag, bytes_of(text.data(), text.size()));
  hs::wait(*head, to, options_.timeout);
  hs::wait(*body, to, options_.timeout);
}

std::string Exchange::receive_text(int from, double timeout) {
  int64_t size = 0;
  hs::wait(*transport_->receive(from, text_tag, std::as_writable_bytes(std::span(&size, 1))), from, timeout);
  if (size < 0) fail_waiting(options_.timeout, static_cast<int>(-1 - size));
  std::string text(static_cast<size_t>(size), '\0');
  hs::wait(*transport_->receive(from, text_tag, std::as_writable_bytes(std::span(text))), from, timeout);
  return text;
}

namespace {

OpenSums& registered_sums(Device device) {
  static OpenSums all[device_count] = {};
  return all[static_cast<int>(device)];
}

}  // namespace

bool register_sums(Device device, OpenSums open) {
  registered_sums(device) = open;
  return true;
}

std::unique_ptr<RankSums> open_sums(Device device, Exchange& ranks, const ExchangeOptions& options) {
  const OpenSums open = registered_sums(device);
  return open ? open(ranks, options) : nullptr;
}

}  // namespace hs
