// Progress of training, on stderr: one line per epoch and, on a terminal, a line below them that is redrawn in place;
// elsewhere a line a minute if no other one has come.
#pragma once

#include <string>

#include "bench/cli/clock.h"
#include "models/training/train.h"

namespace hs::bench::cli {

// A line of stderr, redrawn in place on a terminal at most ten times a second, elsewhere printed once a minute. Writes
// nothing if quiet.
class RedrawnLine : NonCopyable {
 public:
  explicit RedrawnLine(bool quiet);
  ~RedrawnLine() { erase(); }

  bool is_due() const;
  void draw(std::string line);          // cut to the terminal's width
  void print(const std::string& line);  // a permanent line with its newline, in place of the redrawn one
  size_t columns() const;               // of the terminal; 80 if it does not say

 private:
  void erase();

  const bool quiet_, terminal_;
  Clock::time_point drawn_ = terminal_ ? Clock::time_point{} : Clock::now();  // when the line was last drawn
  bool visible_ = false;
};

class ProgressDisplay {
 public:
  // samples: per epoch; batch: per step; label: names the data set on every line, because each line reports results for
  // it.
  ProgressDisplay(bool quiet, const std::string& label, int64_t runs, int64_t epochs, int64_t samples, int64_t batch);

  void start_run(int64_t run) { run_ = run; }  // from 1
  void on_step(const Progress& progress);
  void on_epoch(int64_t epoch, const EpochResult& result);
  void print_line(const std::string& line) { line_.print(line); }

 private:
  double done(int64_t epoch, double part_of_epoch) const;  // of all runs, 0 to 1
  std::string position(int64_t epoch) const;               // "synthetic digits  run 2/3, epoch 1/5"
  std::string remaining(double done) const;                // "0:42"

  RedrawnLine line_;
  const std::string label_;
  const int64_t runs_, epochs_, samples_, batch_;
  const Clock::time_point start_ = Clock::now();
  int64_t run_ = 1;
};

}  // namespace hs::bench::cli
