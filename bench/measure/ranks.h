// --reduce, --bucket-kib, --halving-kib, --wire and --rank-timeout: training over the processes that mpirun has
// started.
#pragma once

#include <map>

#include "bench/cli/command_line.h"
#include "bench/measure/step_profile.h"
#include "engine/ranks/exchange.h"
#include "models/training/gradient_sum.h"
#include "models/training/train.h"

namespace hs::bench::measure {

class Ranks {
 public:
  void declare(cli::Flags& flags);
  // Joins the other ranks, if a launcher has started this process; silences all but rank 0. `threads` becomes this
  // rank's share of the cores if it is 0. Throws Error: usage, rank.
  void join(int64_t& threads);
  bool is_on() const { return exchange_ != nullptr; }
  int count() const { return exchange_ ? exchange_->size() : 1; }
  bool is_first() const { return !exchange_ || exchange_->rank() == 0; }  // and writes what is written

  // Throws Error (usage) if the settings cannot be divided among the ranks.
  void check(int64_t batch, int64_t accumulate) const;
  // Opens what sums on the device, which must be the same on all ranks. Throws Error: usage, device, rank.
  void use(Device device);
  // Throws Error (rank) that names the first rank whose program, settings or data are not those of rank 0.
  void compare(const std::map<std::string, std::string>& identity) const;
  // What rank 0 has, on every rank.
  std::string from_first(const std::string& text) const;
  SumConfig sum() const;
  // The file of train --trace: what each rank did, in rank 0's time. Every rank must call it; empty on all but rank 0.
  std::string trace(const StepProfile& steps, const Json& facts) const;
  // Ends the transport, so that this rank may take as long as it wants for what is left.
  void leave();
  // Before the runs that the record is of: sums of a warm-up do not count.
  void start_measuring();
  // The row's member "ranks", of the runs so far; null for one process.
  Json to_json(const std::vector<RunRecord>& runs) const;
  // What to_json() says of communication, for people; empty for one process.
  static std::string verdict_line(const Json& ranks);
  std::string line() const;  // the same for people; empty for one process

 private:
  std::string reduce_ = "auto";
  Wire wire_ = Wire::f32;
  int64_t bucket_kib_ = 256, halving_kib_ = ExchangeOptions{}.halving_bytes >> 10;
  double timeout_ = 60;

  ExchangeOptions options() const { return {.timeout = timeout_, .wire = wire_, .halving_bytes = halving_kib_ << 10}; }
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<RankSums> device_sums_;
  ExchangeSeconds before_;
  Json places_;  // of each rank
};

}  // namespace hs::bench::measure
