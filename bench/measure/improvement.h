// The search of `improve`: one thing at a time, by successive halving, for what reaches a target in the least time, and
// again until nothing more is found. It knows trainings only as a function, so that tests give it one whose costs they
// know.
//
// Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016: all
// candidates get one run, the better half another, until one is left. That one then meets what is kept so far, in
// turns.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::measure {

// What a run came to. seconds: of training until the target; infinite if it was not reached within the limit.
struct Trial {
  double seconds = std::numeric_limits<double>::infinity();
  double accuracy = 0;  // in the test, at its end
  double waiting = 1;   // the share of training in which it waited for data
};
std::vector<double> seconds_of(const std::vector<Trial>& trials);
double accuracy_of(const std::vector<Trial>& trials);  // their mean
// Runs `train` with these settings (cli::Flags::settings()) and a seed, for `limit` seconds of training at most.
using Trainer = std::function<Trial(const Json& settings, uint64_t seed, double limit)>;

// A change of settings: flags with their new words; null: the flag is left out.
struct Change {
  std::string kind;  // "loader", "precision", "batch", ...
  Json set;
  std::string text() const;  // "--batch 256 --scale-lr 64"
};
Json changed(Json settings, const Change& change);

// The candidates of a kind, in the order in which they are tried: what differs from `settings`, whose missing flags are
// train's defaults. `kinds()` is the order: first what changes the time alone, then what changes the training.
std::vector<std::string> kinds();
std::vector<Change> candidates(const std::string& kind, const Json& settings);

struct SearchRules {
  double lose = 0.002;       // of the first settings' accuracy
  double gain = 1.05;        // least ratio of times that is kept
  double first_limit = 300;  // seconds of a run before any has reached the target
  uint64_t seed = 1;
  std::function<bool()> may_go_on = [] { return true; };  // asked before each run
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

struct Found {
  Json settings;
  std::vector<Change> changes;  // that were kept, in their order
  int64_t runs = 0;
  bool out_of_time = false;  // may_go_on() ended it
};
Found improve(const Json& settings, const Trainer& train, const SearchRules& rules);

}  // namespace hs::bench::measure
