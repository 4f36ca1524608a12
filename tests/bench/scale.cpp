// scale: the formulas against values worked by hand, the measurement of a link whose constants are known, and the
// command with a given link and with the one between two ranks of mpirun.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/link.h"
#include "bench/measure/scale_model.h"
#include "tests/support/bench_program.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::bench::measure;
using namespace hs::test;
using nlohmann::json;

// Relative: doctest's own adds 1 to the values before it takes a share of them, and these are microseconds.
doctest::Approx Approx(double value) { return doctest::Approx(value).scale(0); }

Link same(double alpha, double beta) { return {{alpha, beta}, {alpha, beta}}; }
double rounded_ms(double seconds) { return std::round(seconds * 1e4) / 10; }

// 1 ms and 1 Gbit/s, four ranks.
TEST_CASE("the time of a sum: recursive doubling, halving, ring") {
  const Link slow = same(1e-3, 8e-9);
  CHECK(rounded_ms(doubling_seconds(0.313e6, 4, slow, 0)) == 7);
  CHECK(rounded_ms(halving_seconds(0.313e6, 4, slow, 0)) == 7.8);
  CHECK(rounded_ms(ring_seconds(0.313e6, 4, slow, 0)) == 9.8);
  CHECK(std::round(doubling_seconds(3.25e6, 4, slow, 0) * 1e3) == 54);
  CHECK(std::round(halving_seconds(3.25e6, 4, slow, 0) * 1e3) == 43);
  CHECK(std::round(ring_seconds(3.25e6, 4, slow, 0) * 1e3) == 45);

  const Link none = same(0, 0);
  CHECK(doubling_seconds(1000, 8, none, 1e-9) == Approx(3 * 1000e-9));
  CHECK(halving_seconds(1000, 8, none, 1e-9) == Approx(875e-9));  // n (p - 1) / p
  CHECK(ring_seconds(1000, 8, none, 1e-9) == Approx(875e-9));
  CHECK(halving_seconds(1 << 20, 8, slow, 0) == Approx(6e-3 + 2 * 7.0 / 8 * (1 << 20) * 8e-9));

  // Doubling and halving meet at n = 4 alpha / (beta + 2.5 gamma) on four ranks.
  const double gamma = 1e-9, crossing = 4e-3 / (8e-9 + 2.5 * gamma);
  CHECK(doubling_seconds(crossing, 4, slow, gamma) == Approx(halving_seconds(crossing, 4, slow, gamma)));

  CHECK(halving_crossover(4, slow.large, gamma) == Approx(crossing));
  // On eight ranks: 3 alpha over (3 - 7/4) beta + (3 - 7/8) gamma.
  CHECK(halving_crossover(8, slow.large, gamma) == Approx(3e-3 / (1.25 * 8e-9 + 2.125 * gamma)));

  CHECK(doubling_seconds(1000, 1, slow, 1) == 0);
  // Three ranks are two, and a message there and back.
  CHECK(doubling_seconds(1000, 3, slow, 0) == Approx(3 * (1e-3 + 8e-6)));
}

TEST_CASE("a sum of a step: halving where it is used, and doubling elsewhere") {
  const Link slow = same(1e-3, 8e-9);
  for (const int64_t ranks : {1, 2, 3, 4, 6, 8}) {
    for (const double bytes : {999.0, 1000.0, 1e6}) {
      CAPTURE(ranks);
      CAPTURE(bytes);
      const bool halves = bytes >= 1000 && (ranks == 4 || ranks == 8);
      CHECK(sum_seconds(bytes, ranks, slow, 1e-9, 1000) ==
            (halves ? halving_seconds(bytes, ranks, slow, 1e-9) : doubling_seconds(bytes, ranks, slow, 1e-9)));
    }
  }
  const StepModel model = {slow, 0, {{1e6, 1}}, 8, 8, 1000};
  CHECK(predict_strong(model, 4, {2, 0}).sum.total == halving_seconds(1e6, 4, slow, 0));
}

TEST_CASE("two regimes: messages up to the border have their own line") {
  const Link link = {{1e-6, 1e-9}, {5e-6, 1e-10}, 4096};
  CHECK(link.seconds(4096) == Approx(1e-6 + 4096e-9));
  CHECK(link.seconds(4097) == Approx(5e-6 + 4097e-10));
  std::vector<MessageTime> times;
  for (const int64_t size : message_sizes()) times.push_back({size, link.seconds(static_cast<double>(size))});
  CHECK(times.front().bytes == 8);
  CHECK(times.back().bytes == 8 << 20);
  const Link fitted = fit_link(times, 4096);
  CHECK(fitted.small.alpha == Approx(1e-6));
  CHECK(fitted.small.beta == Approx(1e-9));
  CHECK(fitted.large.alpha == Approx(5e-6));
  CHECK(fitted.large.beta == Approx(1e-10));
  CHECK(fitted.largest_error < 1e-9);
}

TEST_CASE("a fit weights relative errors, and has no negative constant") {
  // 5 % more for the largest message shifts an unweighted line's alpha far from 1.
  std::vector<MessageTime> times;
  for (int64_t size = 8; size <= 8 << 20; size *= 2) times.push_back({size, 1e-6 + static_cast<double>(size) * 1e-9});
  times.back().seconds *= 1.05;
  CHECK(fit_line(times).alpha == Approx(1e-6).epsilon(0.01));
  CHECK(fit_line(times).beta == Approx(1e-9).epsilon(0.02));

  const std::vector<MessageTime> falling = {{8, 3e-6}, {16, 2e-6}, {32, 1e-6}};
  CHECK(fit_line(falling).beta == 0);
  CHECK(fit_line(falling).alpha > 0);
  const std::vector<MessageTime> steep = {{1000, 1e-6}, {2000, 3e-6}};
  CHECK(fit_line(steep).alpha == 0);
  CHECK(fit_line(steep).beta > 0);
  CHECK(fit_line(std::vector<MessageTime>{{8, 1e-6}}).alpha == Approx(1e-6));
}

// A rank whose only peer answers after alpha + beta * bytes, by a clock of its own.
class SlowPeer : public Transport {
 public:
  SlowPeer(double alpha, double beta) : alpha_(alpha), beta_(beta) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string host() const override { return "here"; }
  TransferPtr send(int, int, std::span<const std::byte>) override { return std::make_unique<Done>(time, 0); }
  TransferPtr receive(int, int, std::span<std::byte> bytes) override {
    return std::make_unique<Done>(time, alpha_ + beta_ * static_cast<double>(bytes.size()));
  }
  TransferPtr all_reduce(std::span<float>) override { return nullptr; }
  void close() override {}

  double time = 0;

 private:
  class Done : public Transfer {
   public:
    Done(double& time, double seconds) : time_(time), seconds_(seconds) {}
    bool done() override {
      time_ += std::exchange(seconds_, 0);
      return true;
    }

   private:
    double& time_;
    double seconds_;
  };
  const double alpha_, beta_;
};

TEST_CASE("alpha and beta of a link that has known ones are found") {
  SlowPeer peer(200e-6, 10e-9);
  const Line line = fit_line(time_messages(peer, 1, message_sizes(1 << 20), 5, 10, {}, [&] { return peer.time; }));
  CHECK(line.alpha == Approx(200e-6));
  CHECK(line.beta == Approx(10e-9));
}

TEST_CASE("buckets: from the last parameter to the first, none divided") {
  const std::vector<Bucket> buckets = cut_buckets({100, 400, 50, 1000, 60, 60}, 300);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].bytes == 1120);
  CHECK(buckets[0].ready == 0.5);
  CHECK(buckets[1].bytes == 450);
  CHECK(buckets[1].ready == Approx(5.0 / 6));
  CHECK(buckets[2].bytes == 100);  // what is left
  CHECK(buckets[2].ready == 1);
  CHECK(cut_buckets({4, 4}, 1 << 20).size() == 1);
}

TEST_CASE("overlap: a bucket waits for its gradients and for the bucket before it") {
  // f: 2 + 3 = 5, max(4, 5) + 3 = 8, max(10, 8) + 1 = 11.
  const std::vector<double> ready = {2, 4, 10}, cost = {3, 3, 1};
  const Overlap sums = overlap(ready, cost, 10);
  CHECK(sums.total == 7);
  CHECK(sums.exposed == 1);  // the last bucket is never hidden
  CHECK(sums.hidden_share() == Approx(6.0 / 7));
  CHECK(overlap(std::vector<double>{10}, std::vector<double>{7}, 10).hidden_share() == 0);
  CHECK(overlap(std::vector<double>{1, 2}, std::vector<double>{20, 20}, 10).exposed == 31);
  CHECK(overlap({}, {}, 10).hidden_share() == 0);
}

TEST_CASE("predictions: strong and weak, with ranks that have nothing to do") {
  const StepModel model = {same(1e-3, 0), 0, {{1000, 1}}, 8, 8, 1e9};
  const Prediction one = predict_strong(model, 1, {8, 0.5});
  CHECK(one.seconds == 8);
  CHECK(one.efficiency == 1);
  const Prediction four = predict_strong(model, 4, {2, 0.5});
  CHECK(four.leaves == 2);
  CHECK(four.idle == 0);
  CHECK(four.seconds == Approx(2.002));
  CHECK(four.efficiency == Approx(8 / (4 * 2.002)));
  CHECK(predict_strong(model, 3, {3, 0.5}).leaves == 3);
  const Prediction many = predict_strong(model, 16, {1, 0.5});
  CHECK(many.leaves == 1);
  CHECK(many.idle == 8);
  CHECK(many.efficiency == Approx(8 / (16 * 1.004)));
  const Prediction weak = predict_weak(model, 4, {8, 0.5});
  CHECK(weak.leaves == 8);
  CHECK(weak.efficiency == Approx(8 / 8.002));
}

TEST_CASE("scale: with a given link, up to 4,096 ranks") {
  const json record = record_of(
      "scale --model mlp --batch 2 --accumulate 4 --rounds 1 --threads 1 --alpha 1e-3 --beta 8e-9 --gamma 1e-10");
  CHECK(record["link"]["measured"] == false);
  CHECK(record["link"]["large"]["alpha"] == 1e-3);
  CHECK(record["gamma"] == 1e-10);
  REQUIRE(record["rows"].size() == 26);
  const json& last = record["rows"][24];
  CHECK(last["kind"] == "strong");
  CHECK(last["ranks"] == 4096);
  CHECK(last["idle"] == 4092);
  CHECK(last["efficiency"] < 0.01);
  for (const json& row : record["rows"]) {
    CHECK(row["seconds"].get<double>() ==
          Approx(row["compute_seconds"].get<double>() + row["exposed_seconds"].get<double>()));
  }
  double bytes = 0;
  for (const json& bucket : record["step"]["buckets"]) bytes += bucket["bytes"].get<double>();
  CHECK(bytes == record["step"]["gradient_bytes"].get<double>());
  CHECK(record["sums"][0]["doubling_seconds"].get<double>() == Approx(1e-3 + bytes * 8.1e-9));
  CHECK(contains(record["headline"].get<std::string>(), "A model, not a measurement"));
}

TEST_CASE("scale: one line where there is no link") {
  check_mistakes({{"scale", 2, "scale: no ranks to measure messages between; start it with mpirun -n 2"},
                  {"scale --alpha 1e-3", 2, "or give --alpha and --beta"},
                  {"scale --alpha 1 --beta -1", 2, "--beta"}});
  check_mistakes({{"scale", 2, "one rank, and two are needed"}}, {.variables = {"OMPI_COMM_WORLD_SIZE=1"}});
  check_mistakes({{"scale --alpha 1 --beta 1", 2, "is measured by the 2 ranks of mpirun"}},
                 {.variables = {"OMPI_COMM_WORLD_SIZE=2"}});
}

TEST_CASE("scale: between two of three ranks of mpirun, with a report") {
  if (run_shell("command -v mpirun").status != 0) {
    MESSAGE("skipped: no mpirun");
    return;
  }
  const TemporaryFolder folder;
  const std::string json_file = (folder / "r.json").string(), html_file = (folder / "r.html").string();
  const ChildResult ended = run_shell(fmt::format(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 3 --oversubscribe --bind-to none '{}' scale "
      "--model mlp --batch 2 --accumulate 4 --rounds 2 --threads 1 --json '{}' --html '{}' 2>&1",
      bench_program(), json_file, html_file));
  INFO(ended.output);
  REQUIRE(ended.status == 0);
  // By one rank alone.
  const size_t first = ended.output.find("A model, not a measurement");
  CHECK(first != std::string::npos);
  CHECK(ended.output.find("A model, not a measurement", first + 1) == std::string::npos);
  const json record = json::parse(read_text(json_file));
  CHECK(record["link"]["measured"] == true);
  CHECK(record["link"]["times"].size() == message_sizes().size());
  CHECK(record["link"]["large"]["beta"] > 0);
  CHECK(record["gamma"] > 0);
  std::vector<int> measured;
  for (const json& row : record["rows"]) {
    if (row["kind"] != "measured") continue;
    measured.push_back(row["ranks"]);
    CHECK(row["seconds"] > 0);
    CHECK(row["predicted_seconds"] > 0);
  }
  CHECK(measured == std::vector<int>{1, 2});
}

}  // namespace
