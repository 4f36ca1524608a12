// GradientSum: how the gradients of a step's micro-batches become one, in the arena.
//
//   one after another   each is added to the arena as backward computes it, which costs nothing
//   by the tree         each is computed for itself, and added as engine/ranks/leaf_tree.h defines: the same bits for
//                       any number of ranks. Costs an addition and a copy of all gradients for each micro-batch, and
//                       memory for the sums that are kept: in one process log2(micro-batches) times the gradients
//
// With an Exchange, the micro-batches are divided among ranks. The arena is cut into buckets, from its end to its
// begin: about the order in which backward finishes them. As soon as the last micro-batch's backward has finished a
// bucket, it is sent, while backward continues with the next one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/module.h"
#include "engine/observe.h"
#include "engine/ranks/exchange.h"
#include "engine/ranks/leaf_tree.h"

namespace hs {

// How gradients are summed, and with which ranks.
struct SumConfig {
  bool tree = false;                // otherwise one after another, and with ranks the library's own all-reduce
  Exchange* exchange = nullptr;     // nullptr: this process computes all micro-batches
  RankSums* device_sums = nullptr;  // with an exchange: of the model's device, if that is not the CPU
  int64_t bucket_bytes = int64_t{256} << 10;  // smallest size of a bucket, except for the last

  // The sums of the model's device; nullptr: no ranks.
  RankSums* sums() const { return device_sums ? device_sums : exchange; }
  int ranks() const { return exchange ? exchange->size() : 1; }  // number of them, 1 without an exchange
  int rank() const { return exchange ? exchange->rank() : 0; }   // this process's
};

class GradientSum : private Observer {  // of one training run; not thread safe
 public:
  GradientSum(ParameterArena& arena, const SumConfig& config);  // arena must outlive it

  // Begins the sum over all ranks of a step with so many micro-batches. REQUIRES: the gradients are zero
  void begin(int64_t micro_batches);
  // Around the backward of each of this rank's micro-batches. `last`: of this rank
  void begin_micro_batch();
  void backward(bool last, const std::function<void()>& run);  // calls run(); see begin_micro_batch()
  // After the last backward: from here on the arena has the sum, as RankSums::wait() says. False if stop() said so
  // first: the gradients are then garbage.
  bool finish(const std::function<bool()>& stop);

 private:
  struct Bucket {
    int64_t begin, end;  // of the arena
    size_t first, last;  // parameters, both included
    std::string name;    // for traces
  };

  void gradient(const char* op, const Tensor& dy) override;
  uint32_t writes(size_t parameter) const;
  bool is_complete(const Bucket& bucket) const;
  void check_not_late() const;
  void send(const Bucket& bucket);
  void keep();
  const ReducePlan& plan();

  ParameterArena& arena_;
  const SumConfig config_;
  std::vector<Bucket> buckets_;
  std::map<int64_t, ReducePlan> plans_;  // by micro-batches

  int64_t micro_batches_ = 0;  // of the step: the tree's leaves
  LeafCounter counter_{0};
  std::vector<Tensor> kept_;  // the first kept_count_ are in use
  size_t kept_count_ = 0;
  bool has_begun_ = false;  // a micro-batch of the step, whose gradients are in the arena
  size_t sent_ = 0;         // buckets
  // By parameter: GradInfo::writes at the begin of a micro-batch's backward, how many a backward makes, and how many
  // this one had made when the bucket was sent.
  std::vector<uint32_t> writes_before_, writes_expected_, writes_sent_;
};

}  // namespace hs
