// How long a step of training takes on any number of ranks, by a model. A message of n bytes takes alpha + n beta
// seconds, and adding n bytes to n others n gamma. (Thakur, Rabenseifner, Gropp, "Optimization of collective
// communication operations in MPICH", 2005, has the times of the all-reduces.) Nothing here measures; see link.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hs::bench::measure {

// seconds = alpha + beta * bytes, both at least 0.
struct Line {
  double alpha = 0, beta = 0;
  double at(double bytes) const { return alpha + beta * bytes; }
};

struct MessageTime {
  int64_t bytes;
  double seconds;
};

// Least squares of the relative errors, that is with weights 1 / seconds^2: otherwise the largest messages alone would
// decide, and alpha would be noise. REQUIRES: at least one time, all above 0
Line fit_line(std::span<const MessageTime> times);

// MPI sends small messages at once and announces larger ones first, which is slower at first: two lines.
struct Link {
  Line small, large;
  int64_t border = 0;        // bytes; up to it a message is small
  double largest_error = 0;  // of the fit, relative
  double seconds(double bytes) const { return (bytes <= static_cast<double>(border) ? small : large).at(bytes); }
};

// REQUIRES: times on both sides of the border
Link fit_link(std::span<const MessageTime> times, int64_t border);

// The seconds in which p ranks sum n bytes each. `halving` is Rabenseifner's: each rank adds a part, and all parts are
// then collected. With p not a power of two, all send once more to the ranks beyond it, and back: for an exact tree.
double doubling_seconds(double bytes, int64_t ranks, const Link& link, double gamma);
double halving_seconds(double bytes, int64_t ranks, const Link& link, double gamma);
double ring_seconds(double bytes, int64_t ranks, const Link& link, double gamma);

// What `train` does: halving from so many bytes on, if the ranks are a power of two and more than two.
double sum_seconds(double bytes, int64_t ranks, const Link& link, double gamma, double halving_bytes);
// The bytes from which halving is quicker than doubling, for a link without a border. REQUIRES: ranks is a power of
// two, above 2
double halving_crossover(int64_t ranks, const Line& line, double gamma);

// Buckets in the order in which backward finishes them, from the last parameter to the first. A parameter is not
// divided: a bucket has at least `bucket_bytes`, but for the last one.
struct Bucket {
  double bytes;
  double ready;  // as a share of backward, which is taken to need as long for each parameter
};
std::vector<Bucket> cut_buckets(const std::vector<int64_t>& parameter_bytes, int64_t bucket_bytes);

// One bucket after another is summed, each once it is ready: bucket i ends at f_i = max(r_i, f_{i-1}) + c_i.
struct Overlap {
  double total = 0;    // seconds of all sums
  double exposed = 0;  // of them after the end of backward
  double hidden_share() const { return total > exposed ? 1 - exposed / total : 0; }
};
Overlap overlap(std::span<const double> ready, std::span<const double> cost, double backward);

// What a rank computes in a step: its time with so many micro-batches, and of the last one's backward.
struct Compute {
  double seconds, backward;
};

struct Prediction {
  int64_t ranks;
  int64_t leaves;  // micro-batches of the rank that has the most
  int64_t idle;    // ranks without any
  double compute;
  Overlap sum;
  double seconds;     // compute + exposed
  double efficiency;  // strong: T_1 / (p T_p), weak: T_1 / T_p
};

struct StepModel {
  Link link;
  double gamma;
  std::vector<Bucket> buckets;
  double one_rank;  // seconds of a step of `leaves` micro-batches on one rank
  int64_t leaves;   // of a step (strong), of a rank (weak)
  double halving_bytes;
};

// The same step on more ranks. `compute`: of ceil(leaves / ranks) micro-batches
Prediction predict_strong(const StepModel& model, int64_t ranks, const Compute& compute);
// A step that grows with the ranks. `compute`: of `leaves` micro-batches
Prediction predict_weak(const StepModel& model, int64_t ranks, const Compute& compute);

}  // namespace hs::bench::measure
