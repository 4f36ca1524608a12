// predict-ranks: the formulas, the measurement of a link, and the command with a given link and under mpirun.
#include <fmt/format.h>

#include "bench/measure/rank_model.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/child_process.h"

namespace {

using namespace hs;
using namespace hs::bench::measure;
using namespace hs::test;
using doctest::Approx;

constexpr Link slow = {1e-3, 8e-9, 0};  // 1 ms and 1 Gbit/s

TEST_CASE("the time of a sum: recursive doubling, halving, ring") {
  CHECK(doubling_seconds(0.313e6, 4, slow) * 1e3 == Approx(7.0).epsilon(0.01));
  CHECK(halving_seconds(0.313e6, 4, slow) * 1e3 == Approx(7.8).epsilon(0.01));
  CHECK(ring_seconds(0.313e6, 4, slow) * 1e3 == Approx(9.8).epsilon(0.01));
  CHECK(ring_seconds(1000, 8, {0, 0, 1}) == Approx(875));  // n (p - 1) / p
  // Doubling and halving meet at n = 4 alpha / (beta + 2.5 gamma) on four ranks.
  const Link link = {1e-3, 8e-9, 1e-9};
  const double n = 4e-3 / 10.5e-9;
  CHECK(doubling_seconds(n, 4, link) / halving_seconds(n, 4, link) == Approx(1));
}

// A rank whose only peer answers after alpha + beta * bytes, by a clock of its own.
struct SlowPeer : Transport {
  struct Done : Transfer {
    bool done() override { return true; }
  };
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string host() const override { return "here"; }
  TransferPtr send(int, int, std::span<const std::byte>) override { return std::make_unique<Done>(); }
  TransferPtr receive(int, int, std::span<std::byte> bytes) override {
    time += 200e-6 + 10e-9 * static_cast<double>(bytes.size());
    return std::make_unique<Done>();
  }
  TransferPtr all_reduce(std::span<float>) override { return nullptr; }
  void close() override {}
  double time = 0;
};

TEST_CASE("alpha and beta of a link that has known ones are found") {
  SlowPeer peer;
  const Link link = measure_link(peer, 1, 5, [&] { return peer.time; });
  CHECK(link.alpha * 1e6 == Approx(200));
  CHECK(link.beta * 1e9 == Approx(10));
}

TEST_CASE("overlap: a bucket waits for its gradients and for the bucket before it, and no parameter is divided") {
  // Buckets of 3, 3 and 1 KiB are ready after 2, 4 and 10 s, and a KiB takes a second: 2 + 3 = 5, max(4, 5) + 3 = 8,
  // max(10, 8) + 1 = 11. The last one is what is left.
  const Link link = {0, 1.0 / 1024, 0};
  GradientSizes gradients = {.bucket_kib = 2, .halving_kib = 99, .bytes = {0, 0, 1024, 3072, 3072}, .backward = 10};
  CHECK(sum_buckets(gradients, 2, link) == std::pair{7.0, 1.0});
  gradients.backward = 0;  // all are ready, and each waits for the one before it
  CHECK(sum_buckets(gradients, 2, link) == std::pair{7.0, 7.0});
}

TEST_CASE("a sum of a step: buckets are halved from the given size and four ranks on") {
  const auto seconds = [](double ranks, int64_t bytes) {
    return sum_buckets({.halving_kib = 1, .bytes = {bytes}}, ranks, slow).first;
  };
  CHECK(seconds(2, 1024) == doubling_seconds(1024, 2, slow));
  CHECK(seconds(4, 1023) == doubling_seconds(1023, 4, slow));
  CHECK(seconds(4, 1024) == halving_seconds(1024, 4, slow));
}

TEST_CASE("with a given link, up to 4,096 ranks, in four outputs") {
  const json record =
      check_outputs("scaling ranks --model mlp --batch 2 --accumulate 4 --rounds 1 --alpha 1e-3 --beta 8e-9 ");
  const json &link = record["link"], &rows = record["rows"];
  CHECK(link["measured"] == false);
  REQUIRE(rows.size() == 26);
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_strong = i < 13;
    const double ranks = rows[i]["ranks"], step = rows[i]["step_ms"], alone = rows[0]["step_ms"];
    CHECK(ranks == 1 << i % 13);
    CHECK(rows[i]["leaves"] == (is_strong ? std::max(1.0, 4 / ranks) : 4));
    CHECK(step == Approx(rows[i]["compute_ms"].get<double>() + rows[i]["exposed_ms"].get<double>()));
    CHECK(rows[i]["efficiency"].get<double>() == Approx(alone / step / (is_strong ? ranks : 1)));
  }
  const double bytes = record["gradient_bytes"], gamma = link["gamma"];
  CHECK(record["sums"][1]["doubling_ms"].get<double>() == Approx(1e3 * (1e-3 + bytes * (8e-9 + gamma))));
  CHECK(contains(record["remarks"][0], fmt::format("from {:.1f} KiB on", 4e-3 / (8e-9 + 2.5 * gamma) / 1024)));
}

TEST_CASE("one line where there is no link, or two of them") {
  const char* const advice = "mpirun -n 2 --bind-to none, to measure a link, or --alpha and --beta";
  check_mistakes({{"scaling ranks --alpha 1", 2, advice}});
  check_mistakes({{"scaling ranks --alpha 1 --beta 1", 2, advice}}, {.variables = {"OMPI_COMM_WORLD_SIZE=2"}});
}

TEST_CASE("between two of three ranks of mpirun, and a record by one of them") {
  const fs::path library = fs::path(bench_program()).parent_path().parent_path() / "libhalfstep_mpi.so";
  if (run_shell("command -v mpirun").status != 0 || !fs::exists(library)) {
    MESSAGE("skipped: no mpirun, or a build without MPI");
    return;
  }
  const TemporaryFolder folder;
  const ChildResult ended = run_shell(fmt::format(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 3 --oversubscribe --bind-to none '{}' "
      "scaling ranks --model mlp --batch 2 --accumulate 4 --rounds 2 --threads 1 --json '{}' 2>&1",
      bench_program(), (folder / "r.json").string()));
  INFO(ended.output);
  REQUIRE(ended.status == 0);
  CHECK(ended.output.find("A model, not") == ended.output.rfind("A model, not"));
  const json record = json::parse(read_text(folder / "r.json")), &row = record["rows"][0];
  CHECK(record["link"]["alpha"] > 0);
  CHECK(record["link"]["beta"] >= 0);  // a byte is lost in the noise of a busy machine
  CHECK(row["ranks"] == 3);
  CHECK(row["seconds"] > 0);
  CHECK(row["predicted_seconds"] > 0);
}

}  // namespace
