// Progress of training, on stderr: one line per epoch and, on a terminal, a line below them that is redrawn in place.
#pragma once

#include <chrono>
#include <string>

#include "models/train.h"

namespace hs::bench::cli {

class ProgressDisplay {
 public:
  // samples: of one epoch; label: stands on every line, because each reports figures of that data set.
  ProgressDisplay(bool quiet, const std::string& label, int64_t runs, int64_t epochs, int64_t samples, int64_t batch);
  ~ProgressDisplay() { erase(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void start_run(int64_t run);  // from 1
  void on_step(const Progress& progress);
  void on_epoch(int64_t epoch, const EpochResult& result);
  void print_line(const std::string& line);  // with its newline, in the place of the redrawn one

 private:
  using Clock = std::chrono::steady_clock;

  void erase();
  double done(int64_t epoch, double part_of_epoch) const;  // of all runs, 0 to 1
  std::string position(int64_t epoch) const;               // "synthetic digits  run 2/3, epoch 1/5"
  std::string remaining(double done) const;                // "0:42"

  const bool quiet_;
  const bool terminal_;
  const std::string label_;
  const int64_t runs_, epochs_, samples_, batch_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};  // when the line was last drawn
  bool visible_ = false;
  int64_t run_ = 1;
};

}  // namespace hs::bench::cli
