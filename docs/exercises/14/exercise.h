// Exercise 14, of docs/chapters/14_data_parallel.md: gradients leave in buckets while backward still computes others.
// Edit exercise.cpp beside this file, then run tests/exercise 14.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace exercise {

// Sums the values of all ranks in place. It may take long, and may throw.
using AllReduce = std::function<void(size_t bucket, std::span<float> values)>;

// The parameters are numbered in the order of forward, so the gradient of the last one comes first. Buckets are filled
// in this order: from the last parameter to the first, and one is closed as soon as it holds `capacity` values or more.
// Within a bucket the parameters also lie from the last to the first. Bucket 0 is that of the last parameter.
class Buckets {
 public:
  // sizes: the number of values of each parameter. REQUIRES: sizes is not empty, all sizes > 0, capacity > 0
  Buckets(std::vector<size_t> sizes, size_t capacity, AllReduce all_reduce);
  ~Buckets();  // waits for an all-reduce that runs, and begins no other

  // The gradient of a parameter is complete: copies it into its bucket, and never waits for an all-reduce. Parameters
  // may come in any order, each at most once in a step. All all-reduces run on one thread of this object, as soon as
  // their bucket is complete and that of every smaller number has run: all ranks have to begin them in the same order.
  void ready(size_t parameter, std::span<const float> gradient);

  // The end of backward. A parameter that was not ready in this step has a gradient of 0, and its bucket is sent, too:
  // on another rank it may be ready. Returns when all all-reduces of the step have run, with the sums of each
  // parameter, in the order of forward. If an all-reduce threw, none is begun after it, and this throws its exception.
  // The next step begins empty.
  std::vector<std::vector<float>> wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace exercise
