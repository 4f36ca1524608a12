// Resuming a training run on the device: the same bits, with and without a captured step. The matrix of techniques runs
// on the CPU (tests/models/resume.cpp).
#include <doctest/doctest.h>

#include "tests/support/sanitized.h"
#include "tests/support/tiny_run.h"

namespace {

using namespace hs;
using namespace hs::test;

// Under AddressSanitizer the emulator is many times slower: fewer places to resume from, of the same kinds.
const std::vector<size_t> places = with_address_sanitizer ? std::vector<size_t>{3} : std::vector<size_t>{0, 2, 3};
const int64_t stride = with_address_sanitizer ? 14 : 7, fewest = with_address_sanitizer ? 2 : 4;

TEST_CASE("a run on the device resumes with the same bits, captured or not") {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    for (const bool graph : {false, true}) {
      INFO(name(precision), ", graph ", graph);
      TinyRun run;
      run.workers = 1;
      run.config.device = Device::cuda;
      run.config.graph = graph;
      run.config.precision = precision;
      run.config.accumulate = 2;
      run.config.epochs = 2;
      const TinyRun::Outcome straight = run.train(nullptr, true);
      REQUIRE(straight.states.size() == 6);
      CHECK((straight.result.skipped_steps > 0) == (precision == Precision::f16));
      for (const size_t i : places) check_resumes(run, straight.states[i], straight);
      CHECK(check_every_interruption(run, straight, stride) >= fewest);
      // The state knows nothing of graphs.
      run.config.graph = !graph;
      check_resumes(run, straight.states[3], straight);
    }
  }
}

}  // namespace
