// halfstep-bench scale: the time of a step on 2 to 4,096 ranks, predicted by a model (bench/measure/scale_model.h) from
// what it measures here: messages between two ranks, additions, and the step. Its record has
//   link, gamma   the model's constants; link.times: what they were fitted to, if they were measured
//   step          bytes of gradients, buckets (bytes, ready), and by micro-batches the seconds of a rank's computing
//   rows          strong and weak: ranks, leaves, idle, compute_seconds, sum_seconds, exposed_seconds, overlap,
//   seconds,
//                 efficiency; measured: ranks, predicted_seconds and seconds without overlap
//   sums          the seconds of one sum of all gradients, by all-reduce and ranks
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "bench/cli/clock.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/statistics.h"
#include "bench/commands/commands.h"
#include "bench/measure/link.h"
#include "bench/measure/one_step.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "data/loader/loader.h"
#include "data/synthetic.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/ranks/exchange.h"

namespace hs::bench::commands {
namespace {

using namespace measure;

constexpr int64_t most_ranks = 4096, eager_bytes = 4096;  // where Open MPI's shared memory changes its protocol
constexpr double rank_timeout = 60, turn_timeout = 600;   // seconds

class ScaleCommand : public cli::Command {
 public:
  std::string name() const override { return "scale"; }
  std::string summary() const override { return "Predict the time of a step on 2 to 4,096 processes, by a model"; }
  std::string footnote() const override {
    return R"(Examples:
  mpirun -n 2 --bind-to none halfstep-bench scale --threads 1 --html scale.html
  halfstep-bench scale --alpha 1e-3 --beta 8e-9

The second line is for a network of 1 ms and 1 Gbit/s. docs/techniques/data_parallel.md says what the model leaves out.
)";
  }
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  void check_flags(const cli::Flags& flags) const;
  // Of a step with so many micro-batches.
  Compute time_step(int64_t leaves);
  std::vector<double> time_ranks(Transport& transport, int ranks);
  std::vector<std::vector<double>> time_all_ranks(Transport& transport);
  int64_t leaves_of_each(int64_t ranks) const { return (accumulate_ + ranks - 1) / ranks; }
  StepModel fit_model(const cli::Flags& flags, const std::vector<MessageTime>& times);
  Json new_record(const cli::Flags& flags, const StepModel& model, const std::vector<MessageTime>& times);
  std::vector<report::Table> model_tables(const StepModel& model, Json& record);
  report::Table measured_table(Transport& transport, const StepModel& model, Json& record);

  std::string model_ = "mnist_cnn";
  Precision precision_ = Precision::f32;
  int64_t blocks_ = 0, batch_ = 16, accumulate_ = 64, bucket_ = 256, halving_ = ExchangeOptions{}.halving_bytes >> 10,
          threads_ = 0, rounds_ = 5;
  double alpha_ = 0, beta_ = 0, gamma_ = 0;
  report::Outputs outputs_;

  std::unique_ptr<OneStep> step_;
  std::vector<Batch> batches_;
  double gradient_bytes_ = 0;
  std::map<int64_t, Compute> compute_;  // by micro-batches of a rank
};

void ScaleCommand::declare(cli::Flags& flags) {
  flags.model(model_).record();
  flags.blocks(blocks_, model_).record();
  flags.batch(batch_, 8192).record();
  flags.integer("--accumulate", accumulate_, 1, 4096, "Micro-batches of a step, to be divided among ranks").record();
  flags.integer("--bucket-kib", bucket_, 1, 1 << 20, "Gradients that are summed at once, KiB").record();
  flags.integer("--halving-kib", halving_, 0, 1 << 20, "Buckets of so many KiB or more are halved, not doubled")
      .record();
  flags.precision(precision_).record();
  flags.real("--alpha", alpha_, 0, 10, "Seconds of a message, in place of measuring under mpirun; with --beta");
  flags.real("--beta", beta_, 0, 1, "Seconds of a byte");
  flags.real("--gamma", gamma_, 0, 1, "Seconds of adding a byte, in place of measuring");
  flags.integer("--rounds", rounds_, 1, 1000, "Measurements of each step and of large messages").record();
  flags.threads(threads_);
  outputs_.declare(flags);
}

void ScaleCommand::check_flags(const cli::Flags& flags) const {
  const bool by_hand = flags.given("--alpha") && flags.given("--beta");
  const int ranks = launched_ranks();
  if (by_hand && ranks > 1) {
    fail(ExitCode::usage,
         "--alpha: is measured by the {} ranks of mpirun; leave it and --beta out, or start one process", ranks);
  }
  if (!by_hand && ranks < 2) {
    fail(ExitCode::usage,
         "scale: {} to measure messages between; start it with mpirun -n 2 --bind-to none, or give --alpha and --beta",
         ranks == 1 ? "one rank, and two are needed" : "no ranks");
  }
}

Compute ScaleCommand::time_step(int64_t leaves) {
  const std::vector<Batch> own(batches_.begin(), batches_.begin() + leaves);
  std::vector<double> seconds, backwards;
  for (int64_t i = -1; i < rounds_; ++i) {
    cli::check_signals("while measuring; no results were written");
    Clock::time_point backward;
    double of_backward = 0;
    const Clock::time_point start = Clock::now();
    step_->run(own, [&](std::string_view phase) {
      if (phase == "forward") backward = Clock::now();
      if (phase == "backward") of_backward = seconds_since(backward);
    });
    if (i < 0) continue;  // warm-up
    seconds.push_back(seconds_since(start));
    backwards.push_back(of_backward);
  }
  return {median(seconds), median(backwards)};
}

// The same with a real sum, after backward instead of beside it. The step updates the weights before the sum and not
// after it, which takes as long.
std::vector<double> ScaleCommand::time_ranks(Transport& transport, int ranks) {
  const int64_t leaves = leaves_of_each(ranks);
  const std::vector<Batch> own(batches_.begin(), batches_.begin() + leaves);
  std::vector<float> received, barrier(1), gradients(static_cast<size_t>(step_->arena().values.size()));
  std::vector<double> seconds;
  for (int64_t i = -1; i < rounds_; ++i) {
    cli::check_signals("while measuring; no results were written");
    sum_by_doubling(transport, ranks, barrier, received, rank_timeout);
    const Clock::time_point start = Clock::now();
    step_->run(own);
    sum_by_doubling(transport, ranks, gradients, received, rank_timeout);
    if (i >= 0) seconds.push_back(seconds_since(start));
  }
  return seconds;
}

// On 1, 2, 4, ... ranks, the others asleep. Every rank must call it.
std::vector<std::vector<double>> ScaleCommand::time_all_ranks(Transport& transport) {
  std::vector<std::vector<double>> all;
  for (int ranks = 1; ranks <= transport.size(); ranks *= 2) {
    if (transport.rank() == 0) {
      for (int rank = 1; rank < transport.size(); ++rank) release(transport, rank, rank_timeout);
    } else {
      await(transport, 0, turn_timeout);
    }
    if (transport.rank() < ranks) all.push_back(time_ranks(transport, ranks));
  }
  return all;
}

std::string ms(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }
std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }
std::string micro(double seconds) { return fmt::format("{:.2f}", seconds * 1e6); }

Json to_json(const Line& line) { return {{"alpha", line.alpha}, {"beta", line.beta}}; }

Json to_json(const char* kind, const Prediction& p) {
  return {{"kind", kind},
          {"ranks", p.ranks},
          {"leaves", p.leaves},
          {"idle", p.idle},
          {"compute_seconds", p.compute},
          {"sum_seconds", p.sum.total},
          {"exposed_seconds", p.sum.exposed},
          {"overlap", p.sum.hidden_share()},
          {"seconds", p.seconds},
          {"efficiency", p.efficiency}};
}

report::Table link_table(const Link& link) {
  report::Table table = {.heads = {"messages", "alpha us", "beta ns a byte", "GB/s"},
                         .lines = {},
                         .title = "Between two ranks, both sending at once"};
  const auto add = [&](const std::string& messages, const Line& line) {
    table.lines.push_back(
        {messages, micro(line.alpha), fmt::format("{:.4f}", line.beta * 1e9), fmt::format("{:.2f}", 1e-9 / line.beta)});
  };
  if (link.border == 0) {
    add("all", link.large);
  } else {
    add(fmt::format("up to {} bytes", link.border), link.small);
    add("larger", link.large);
  }
  return table;
}

// Of the line that holds where it crosses.
std::string crossover_text(const StepModel& model) {
  const Link& link = model.link;
  const double small = halving_crossover(4, link.small, model.gamma),
               large = halving_crossover(4, link.large, model.gamma);
  const double bytes = small <= static_cast<double>(link.border) ? small : large;
  return std::isfinite(bytes) ? fmt::format("{:.1f} KiB", bytes / 1024) : "no size";
}

// Buckets and times of the step, and the link; without the measured parts of other ranks.
StepModel ScaleCommand::fit_model(const cli::Flags& flags, const std::vector<MessageTime>& times) {
  StepModel model;
  model.link = times.empty() ? Link{{alpha_, beta_}, {alpha_, beta_}} : fit_link(times, eager_bytes);
  model.gamma = flags.given("--gamma") ? gamma_ : addition_seconds_per_byte();
  std::vector<int64_t> sizes;
  for (const NamedParameter& each : step_->arena().parameters()) {
    sizes.push_back(each.value->size() * static_cast<int64_t>(sizeof(float)));
    gradient_bytes_ += static_cast<double>(sizes.back());
  }
  model.buckets = cut_buckets(sizes, bucket_ << 10);
  model.leaves = accumulate_;
  model.halving_bytes = static_cast<double>(halving_ << 10);
  for (int64_t ranks = 1; ranks <= most_ranks; ranks *= 2) {
    const int64_t leaves = leaves_of_each(ranks);
    if (!compute_.contains(leaves)) compute_[leaves] = time_step(leaves);
  }
  model.one_rank = compute_[accumulate_].seconds;
  return model;
}

// What was measured and given.
Json ScaleCommand::new_record(const cli::Flags& flags, const StepModel& model, const std::vector<MessageTime>& times) {
  Json record = report::new_record(name(), Device::cpu);
  record["config"] = flags.config();
  record["link"] = {{"measured", !times.empty()},
                    {"border", model.link.border},
                    {"small", to_json(model.link.small)},
                    {"large", to_json(model.link.large)},
                    {"largest_error", model.link.largest_error}};
  record["link"]["times"] = Json::array();
  for (const MessageTime& time : times) {
    record["link"]["times"].push_back({{"bytes", time.bytes}, {"seconds", time.seconds}});
  }
  record["gamma"] = model.gamma;
  record["step"] = {{"gradient_bytes", gradient_bytes_}};
  record["step"]["buckets"] = record["step"]["compute"] = record["rows"] = record["sums"] = Json::array();
  for (const Bucket& bucket : model.buckets) {
    record["step"]["buckets"].push_back({{"bytes", bucket.bytes}, {"ready", bucket.ready}});
  }
  for (const auto& [leaves, time] : compute_) {
    record["step"]["compute"].push_back(
        {{"leaves", leaves}, {"seconds", time.seconds}, {"backward_seconds", time.backward}});
  }
  return record;
}

// Strong, weak, and one sum by each algorithm; in the record too.
std::vector<report::Table> ScaleCommand::model_tables(const StepModel& model, Json& record) {
  const std::vector<std::string> heads = {"ranks",      "idle",    "micro-batches", "compute ms", "sum ms",
                                          "exposed ms", "step ms", "overlap",       "efficiency"};
  report::Table strong = {.heads = heads, .lines = {}, .title = "Model, strong: the same step on more ranks"};
  report::Table weak = {.heads = heads, .lines = {}, .title = "Model, weak: a step that grows with the ranks"};
  report::Table sums = {.heads = {"ranks", "doubling ms", "halving ms", "ring ms"},
                        .lines = {},
                        .title = fmt::format("Model, one sum of {:.2f} MiB", gradient_bytes_ / (1 << 20))};
  for (int64_t ranks = 1; ranks <= most_ranks; ranks *= 2) {
    const auto add = [&](report::Table& table, const char* kind, const Prediction& p) {
      const bool is_one = ranks == 1;
      table.lines.push_back({std::to_string(ranks), std::to_string(p.idle), std::to_string(p.leaves), ms(p.compute),
                             is_one ? "-" : ms(p.sum.total), is_one ? "-" : ms(p.sum.exposed), ms(p.seconds),
                             is_one ? "-" : percent(p.sum.hidden_share()), percent(p.efficiency)});
      record["rows"].push_back(to_json(kind, p));
    };
    add(strong, "strong", predict_strong(model, ranks, compute_[leaves_of_each(ranks)]));
    add(weak, "weak", predict_weak(model, ranks, compute_[accumulate_]));
    if (ranks == 1) continue;
    const double doubling = doubling_seconds(gradient_bytes_, ranks, model.link, model.gamma),
                 halving = halving_seconds(gradient_bytes_, ranks, model.link, model.gamma),
                 ring = ring_seconds(gradient_bytes_, ranks, model.link, model.gamma);
    sums.lines.push_back({std::to_string(ranks), ms(doubling), ms(halving), ms(ring)});
    record["sums"].push_back(
        {{"ranks", ranks}, {"doubling_seconds", doubling}, {"halving_seconds", halving}, {"ring_seconds", ring}});
  }
  return {strong, weak, sums};
}

// Steps on the ranks that there are, beside what the model says of them; in the record too.
report::Table ScaleCommand::measured_table(Transport& transport, const StepModel& model, Json& record) {
  report::Table table = {.heads = {"ranks", "predicted ms", "measured ms", "fastest", "slowest", "measured/predicted"},
                         .lines = {},
                         .title = "On this machine, the sum by doubling, after backward and not beside it"};
  int64_t ranks = 1;
  for (const std::vector<double>& seconds : time_all_ranks(transport)) {
    const double predicted =
        compute_[leaves_of_each(ranks)].seconds + doubling_seconds(gradient_bytes_, ranks, model.link, model.gamma);
    const auto [low, high] = std::ranges::minmax(seconds);
    table.lines.push_back({std::to_string(ranks), ms(predicted), ms(median(seconds)), ms(low), ms(high),
                           fmt::format("{:.2f}", median(seconds) / predicted)});
    record["rows"].push_back({{"kind", "measured"},
                              {"ranks", ranks},
                              {"predicted_seconds", predicted},
                              {"seconds", median(seconds)},
                              {"seconds_low", low},
                              {"seconds_high", high}});
    ranks *= 2;
  }
  return table;
}

void ScaleCommand::run(const cli::Flags& flags) {
  check_flags(flags);
  const std::unique_ptr<Transport> transport = launched_ranks() > 1 ? open_mpi() : nullptr;
  const bool reports = !transport || transport->rank() == 0;
  if (reports) outputs_.open();
  cli::use_threads(threads_);
  const int64_t distinct = std::min(accumulate_, std::max<int64_t>(1, 1024 / batch_));
  const MemorySource digits = synthetic_digits(synthetic_train_seed, batch_ * distinct);
  Loader loader(digits, {.batch = batch_});
  step_ = std::make_unique<OneStep>(model_, blocks_, digits.info(), precision_, Device::cpu);
  for (int64_t i = 0; i < accumulate_; ++i) {
    batches_.push_back(i < distinct ? loader.next() : batches_[static_cast<size_t>(i - distinct)]);
  }

  std::vector<MessageTime> times;
  if (transport && transport->rank() < 2) {
    times = time_messages(*transport, 1 - transport->rank(), message_sizes(), static_cast<int>(4 * rounds_),
                          rank_timeout, [] { cli::check_signals("while measuring; no results were written"); });
  }
  if (!reports) {
    time_all_ranks(*transport);
    return transport->close();
  }

  const StepModel model = fit_model(flags, times);
  Json record = new_record(flags, model, times);
  std::vector<report::Table> tables = model_tables(model, record);
  if (transport) {
    tables.insert(tables.begin(), measured_table(*transport, model, record));
    transport->close();
  }
  tables.insert(tables.begin(), link_table(model.link));
  report::present(
      record,
      fmt::format(
          "A model, not a measurement: {}, steps of {} micro-batches of {}, {}, threads {}, {:.2f} MiB of "
          "gradients in {} bucket{}, link {}",
          model_, accumulate_, batch_, hs::name(precision_), threads(), gradient_bytes_ / (1 << 20),
          model.buckets.size(), model.buckets.size() == 1 ? "" : "s",
          transport ? fmt::format("measured between 2 of {} ranks", transport->size()) : "given by --alpha and --beta"),
      tables,
      {fmt::format("sum of n bytes on p ranks by doubling: log2(p) (alpha + n beta + n gamma), gamma {:.4f} ns a byte; "
                   "bucket i ends at f_i = max(r_i, f_i-1) + c_i, and exposed is what ends after backward",
                   model.gamma * 1e9),
       fmt::format("buckets of {} KiB or more are halved from 4 ranks on; by this model that pays from {} on 4 ranks",
                   halving_, crossover_text(model)),
       "computing was measured on one rank, with nothing beside it; gradients are taken to be ready evenly over "
       "backward; every rank is taken to have the same link to every other one"});
  outputs_.finish(record);
}

}  // namespace

std::unique_ptr<cli::Command> make_scale_command() { return std::make_unique<ScaleCommand>(); }

}  // namespace hs::bench::commands
