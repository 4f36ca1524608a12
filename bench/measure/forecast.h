// What a training run will cost, from a few of its steps: for --dry-run.
#pragma once

#include <string>

#include "bench/measure/experiment.h"

namespace hs::bench::measure {

struct Forecast {
  double seconds;  // of one run, evaluation included
  size_t peak_bytes;
};

// Times four steps and an evaluation of one batch, after as many to warm up. Throws what a run throws.
Forecast forecast(const Experiment& experiment, const SampleSource& train, const SampleSource& test, uint64_t seed);

std::string minutes_text(double seconds);  // "2.5 minutes", "0.03 minutes"

}  // namespace hs::bench::measure
