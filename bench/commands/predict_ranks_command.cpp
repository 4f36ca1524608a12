// halfstep-bench scaling ranks: the time of a step on 1 to 4,096 ranks, by a model (bench/measure/rank_model.h). Its
// record has the model's constants ("link": alpha, the seconds of a message; beta and gamma, those to send and to add a
// byte), and "gradient_bytes". "rows" has the model's step by ranks: "strong", the same step divided among them, and
// "weak", one that grows with them; under mpirun also "measured", a step of the ranks that there are. "sums" has one
// sum of all gradients, by ranks and all-reduce.
#include <chrono>
#include <map>
#include <thread>

#include "bench/commands/commands.h"
#include "bench/measure/one_step.h"
#include "bench/measure/rank_model.h"
#include "data/synthetic.h"

namespace hs::bench::commands {
namespace {

using namespace measure;

struct StepTimes {  // seconds of each round
  std::vector<double> all, backward;
};

class PredictRanksCommand : public RecordingCommand {
  Experiment what_;  // is trained
  std::optional<Precision> precision_ = Precision::f32;
  int64_t threads_ = 0, rounds_ = 5;
  Link link_;
  GradientSizes gradients_;
  std::unique_ptr<OneStep> step_;
  Batch micro_batch_;
  double gradient_bytes_ = 0;
  std::map<int64_t, StepTimes> computing_;  // of one rank, by its micro-batches

  void declare(cli::Flags& flags) override {
    flags.examples({"scaling ranks --threads 1 --html ranks.html    # by mpirun -n 2 --bind-to none",
                    "scaling ranks --alpha 1e-3 --beta 8e-9         # a network of 1 ms and 1 Gbit/s"},
                   "docs/chapters/14_data_parallel.md says what the model leaves out.");
    what_.batch = 16;
    what_.accumulate = 64;
    flags.model(what_.model);
    flags.blocks(what_.blocks, what_.model);
    flags.batch(what_.batch, 8192);
    flags.integer("--accumulate", common(Group::memory), what_.accumulate, 1, 4096,
                  "Micro-batches of a step, divided among ranks");
    flags.integer("--bucket-kib", rare(Group::processes), gradients_.bucket_kib, 1, 1 << 20,
                  "Gradients summed at once, KiB");
    flags.integer("--halving-kib", rare(Group::processes), gradients_.halving_kib, 0, 1 << 20,
                  "Buckets that are halved, from KiB");
    flags.precision(precision_).record("precision", [this] { return hs::name(what_.precision); });
    flags.real("--alpha", own().unrecorded(), link_.alpha, 0, 10,
               "Seconds of a message, in place of measuring under mpirun; with --beta");
    flags.real("--beta", own().unrecorded(), link_.beta, 0, 1, "Seconds of a byte");
    flags.integer("--rounds", own(), rounds_, 1, 1000, "Measurements of each step; four times as many of a message");
    flags.threads(threads_).unrecorded();
  }

  int64_t micro_batches_of_each(int64_t ranks) const { return (what_.accumulate + ranks - 1) / ranks; }

  // With a transport: of all its ranks at once, and with MPI's sum of all gradients after backward.
  StepTimes time_step(int64_t micro_batches, Transport* transport = nullptr) {
    const std::vector<Batch> batches(static_cast<size_t>(micro_batches), micro_batch_);
    std::vector<float> zeros(static_cast<size_t>(gradient_bytes_) / sizeof(float));
    if (transport) {
      const TransferPtr all_are_here = transport->all_reduce(zeros);
      // Asleep in between: waiting must not take the core from rank 0, which measures alone.
      while (!all_are_here->done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const int any_rank = transport && transport->rank() == 0 ? 1 : 0;  // but this one, for messages
    StepTimes times;
    for (int64_t i = -1; i < rounds_; ++i) {
      check_signals();
      const double start = steady_seconds(), backward = step_->run(batches).backward;
      if (transport) wait(*transport->all_reduce(zeros), any_rank, ExchangeOptions{}.timeout);
      if (i < 0) continue;  // warm-up
      times.all.push_back(steady_seconds() - start);
      times.backward.push_back(backward / static_cast<double>(micro_batches));
    }
    return times;
  }

  Json predict(bool is_strong, int64_t ranks) {
    // The first call is of one rank, which the efficiency is relative to.
    const int64_t micro_batches = is_strong ? micro_batches_of_each(ranks) : what_.accumulate;
    if (!computing_.contains(micro_batches)) computing_[micro_batches] = time_step(micro_batches);
    const double computing = median(computing_[micro_batches].all);
    gradients_.backward = median(computing_[micro_batches].backward);
    const auto [total, exposed] = sum_buckets(gradients_, ranks, link_);
    return {{"kind", is_strong ? "strong" : "weak"},
            {"ranks", ranks},
            {"leaves", micro_batches},
            {"compute_ms", computing * 1e3},
            {"sum_ms", total * 1e3},
            {"exposed_ms", exposed * 1e3},
            {"step_ms", (computing + exposed) * 1e3},
            {"overlap", std::max(0.0, 1 - std::round(exposed / total * 1e3) / 1e3)},
            {"efficiency", median(computing_[what_.accumulate].all) / (computing + exposed) / (is_strong ? ranks : 1)}};
  }

  // A step of all ranks, beside what the model says of it. For rank 0; the others wait for it in time_step().
  Json measure(Transport& transport) {
    const int ranks = transport.size();
    const double computing = predict(true, ranks)["compute_ms"].get<double>() / 1e3;
    const std::vector<double> seconds = time_step(micro_batches_of_each(ranks), &transport).all;
    transport.close();
    return {{"kind", "measured"},
            {"ranks", ranks},
            {"predicted_seconds", computing + doubling_seconds(gradient_bytes_, ranks, link_)},
            {"seconds", median(seconds)},
            {"seconds_low", std::ranges::min(seconds)},
            {"seconds_high", std::ranges::max(seconds)}};
  }

  void show(Json& record, Transport* transport) {
    std::vector<report::Table> tables;
    const auto add = [&](const char* list, const char* title, const Json& rows) {
      tables.emplace_back(report::tables_of({{"rows", rows}}).front()).title = title;
      for (const Json& row : rows) record[list].push_back(row);
    };
    Json strong, weak, sums;
    for (int64_t ranks = 1; ranks <= 4096; ranks *= 2) {
      strong.push_back(predict(true, ranks));
      weak.push_back(predict(false, ranks));
      sums.push_back({{"ranks", ranks},
                      {"doubling_ms", doubling_seconds(gradient_bytes_, ranks, link_) * 1e3},
                      {"halving_ms", halving_seconds(gradient_bytes_, ranks, link_) * 1e3},
                      {"ring_ms", ring_seconds(gradient_bytes_, ranks, link_) * 1e3}});
    }
    if (transport) add("rows", "On this machine, MPI's sum after backward", Json::array({measure(*transport)}));
    add("rows", "Model, strong: the same step on more ranks", strong);
    add("rows", "Model, weak: a step that grows with the ranks", weak);
    add("sums", "Model, one sum of all gradients", sums);
    outputs_.finish(
        record,
        fmt::format("A model, not a measurement: {}, steps of {} micro-batches of {}, {}, threads {}, {:.2f} MiB of "
                    "gradients; link {}: alpha {:.2f} us, beta {:.4f} and gamma {:.4f} ns a byte",
                    what_.model, what_.accumulate, what_.batch, hs::name(what_.precision), threads(),
                    gradient_bytes_ / (1 << 20), transport ? "measured" : "given", link_.alpha * 1e6, link_.beta * 1e9,
                    link_.gamma * 1e9),
        tables,
        {fmt::format("buckets of {} KiB or more are halved from 4 ranks on; by this model that pays from {:.1f} KiB on",
                     gradients_.halving_kib, halving_pays_from(link_) / 1024),
         "computing is that of one rank alone; gradients are taken to be ready evenly, and each pair of ranks to have "
         "a link"});
  }

  void run(const cli::Flags& flags) override {
    const bool by_hand = flags.given("--alpha") && flags.given("--beta");
    if (by_hand == (launched_ranks() > 1)) {
      fail(ExitCode::usage,
           "scaling ranks: either mpirun -n 2 --bind-to none, to measure a link, or --alpha and --beta");
    }
    const std::unique_ptr<Transport> transport = by_hand ? nullptr : open_mpi();
    const int rank = by_hand ? 0 : transport->rank();
    if (rank == 0) outputs_.open();
    cli::use_threads(threads_);
    what_.precision = cli::resolve_precision(precision_, Device::cpu);
    const MemorySource digits = synthetic_digits(synthetic_train_seed, what_.batch);
    micro_batch_ = Loader(digits, {.batch = what_.batch}).next();
    step_ = std::make_unique<OneStep>(what_, digits.info());
    for (const NamedParameter& each : step_->arena().parameters()) {
      gradients_.bytes.push_back(each.value->size() * static_cast<int64_t>(sizeof(float)));
      gradient_bytes_ += static_cast<double>(gradients_.bytes.back());
    }
    if (!by_hand && rank < 2) link_ = measure_link(*transport, 1 - rank, 4 * rounds_);
    if (rank > 0) {
      time_step(micro_batches_of_each(transport->size()), transport.get());
      return transport->close();
    }
    link_.gamma = measure_gamma();
    Json record = report::new_record(name(), Device::cpu, flags.config());
    record["link"] = {{"measured", !by_hand}, {"alpha", link_.alpha}, {"beta", link_.beta}, {"gamma", link_.gamma}};
    record["gradient_bytes"] = gradient_bytes_;
    show(record, transport.get());
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_predict_ranks_command() { return std::make_unique<PredictRanksCommand>(); }

}  // namespace hs::bench::commands
