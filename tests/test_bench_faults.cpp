// Faults of processes, signals, threads, outputs and resources: one row each. Those of records are in
// test_bench_faults_records.cpp.
#include <doctest/doctest.h>

#include "tests/support/bench_faults.h"

namespace {

using namespace hs::test;

const Words endless = {"train",   "--data", "synthetic", "--train",  "64",  "--test",   "16",
                       "--model", "mlp",    "--quiet",   "--device", "cpu", "--epochs", "10000"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("outputs that cannot be written are refused before the work") {
  const Fault faults[] = {
      {.name = "no such folder",
       .arguments = with(endless, {"--json", "no/r.json"}),
       .exit_code = 4,
       .line = "no/r.json"},
      {.name = "a folder", .arguments = with(endless, {"--json", "."}), .exit_code = 4, .line = "is a directory"},
  };
  for (const Fault& fault : faults) check_fault(fault);
}

}  // namespace
