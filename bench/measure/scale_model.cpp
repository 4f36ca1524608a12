#include "bench/measure/scale_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/check.h"

namespace hs::bench::measure {

Line fit_line(std::span<const MessageTime> times) {
  check(!times.empty(), "fit_line: no times");
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const MessageTime& time : times) {
    const double x = static_cast<double>(time.bytes), y = time.seconds, weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  const double determinant = w * wxx - wx * wx;
  const double beta = determinant > 1e-12 * w * wxx ? (w * wxy - wx * wy) / determinant : 0;
  if (beta <= 0) return {wy / w, 0};  // noise: the best line without a slope
  const double alpha = (wy - beta * wx) / w;
  return alpha >= 0 ? Line{alpha, beta} : Line{0, wxy / wxx};
}

Link fit_link(std::span<const MessageTime> times, int64_t border) {
  std::vector<MessageTime> small, large;
  for (const MessageTime& time : times) (time.bytes <= border ? small : large).push_back(time);
  Link link = {fit_line(small), fit_line(large), border};
  for (const MessageTime& time : times) {
    const double error = std::abs(link.seconds(static_cast<double>(time.bytes)) / time.seconds - 1);
    link.largest_error = std::max(link.largest_error, error);
  }
  return link;
}

namespace {

int floor_log2(int64_t ranks) { return std::bit_width(static_cast<uint64_t>(ranks)) - 1; }

// With p not a power of two.
double extra_seconds(double bytes, int64_t ranks, const Link& link, double gamma) {
  return std::has_single_bit(static_cast<uint64_t>(ranks)) ? 0 : 2 * link.seconds(bytes) + bytes * gamma;
}

}  // namespace

double doubling_seconds(double bytes, int64_t ranks, const Link& link, double gamma) {
  return floor_log2(ranks) * (link.seconds(bytes) + bytes * gamma) + extra_seconds(bytes, ranks, link, gamma);
}

double halving_seconds(double bytes, int64_t ranks, const Link& link, double gamma) {
  double seconds = extra_seconds(bytes, ranks, link, gamma);
  for (int i = 0; i < floor_log2(ranks); ++i) {
    bytes /= 2;
    seconds += 2 * link.seconds(bytes) + bytes * gamma;
  }
  return seconds;
}

double ring_seconds(double bytes, int64_t ranks, const Link& link, double gamma) {
  const double p = static_cast<double>(ranks), part = bytes / p;
  return (p - 1) * (2 * link.seconds(part) + part * gamma);
}

double sum_seconds(double bytes, int64_t ranks, const Link& link, double gamma, double halving_bytes) {
  const bool halves = ranks >= 4 && std::has_single_bit(static_cast<uint64_t>(ranks)) && bytes >= halving_bytes;
  return (halves ? halving_seconds : doubling_seconds)(bytes, ranks, link, gamma);
}

double halving_crossover(int64_t ranks, const Line& line, double gamma) {
  const double doublings = floor_log2(ranks), p = static_cast<double>(ranks), parts = (p - 1) / p;
  return doublings * line.alpha / ((doublings - 2 * parts) * line.beta + (doublings - parts) * gamma);
}

std::vector<Bucket> cut_buckets(const std::vector<int64_t>& parameter_bytes, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  const double all = static_cast<double>(parameter_bytes.size());
  int64_t bytes = 0;
  for (size_t i = parameter_bytes.size(); i-- > 0;) {
    bytes += parameter_bytes[i];
    if (i > 0 && bytes < bucket_bytes) continue;
    buckets.push_back({static_cast<double>(bytes), 1 - static_cast<double>(i) / all});
    bytes = 0;
  }
  return buckets;
}

Overlap overlap(std::span<const double> ready, std::span<const double> cost, double backward) {
  check(ready.size() == cost.size(), "overlap: {} times at which buckets are ready, {} costs", ready.size(),
        cost.size());
  Overlap result;
  double end = 0;
  for (size_t i = 0; i < ready.size(); ++i) {
    end = std::max(ready[i], end) + cost[i];
    result.total += cost[i];
  }
  result.exposed = std::max(0.0, end - backward);
  return result;
}

namespace {

Prediction predict(const StepModel& model, int64_t ranks, const Compute& compute) {
  std::vector<double> ready, cost;
  for (const Bucket& bucket : model.buckets) {
    ready.push_back(bucket.ready * compute.backward);
    cost.push_back(sum_seconds(bucket.bytes, ranks, model.link, model.gamma, model.halving_bytes));
  }
  Prediction prediction = {ranks, model.leaves, 0, compute.seconds, overlap(ready, cost, compute.backward), 0, 0};
  prediction.seconds = compute.seconds + prediction.sum.exposed;
  prediction.efficiency = model.one_rank / prediction.seconds;
  return prediction;
}

}  // namespace

Prediction predict_strong(const StepModel& model, int64_t ranks, const Compute& compute) {
  Prediction prediction = predict(model, ranks, compute);
  prediction.leaves = (model.leaves + ranks - 1) / ranks;
  prediction.idle = std::max<int64_t>(0, ranks - model.leaves);
  prediction.efficiency /= static_cast<double>(ranks);
  return prediction;
}

Prediction predict_weak(const StepModel& model, int64_t ranks, const Compute& compute) {
  return predict(model, ranks, compute);
}

}  // namespace hs::bench::measure
