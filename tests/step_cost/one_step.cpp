// Two warmed-up training steps under valgrind's callgrind, for tests/step_cost/run, which says what it counts: from
// counted_step() the whole of the first, and the second cut into its kernels. Prints `step`, and then for each cut who
// ran before it: a kernel as slot=variant, or `rest`.
//
//   one_step MODEL PRECISION
#include <cstdio>
#include <string>
#include <vector>

#include "engine/check.h"
#include "engine/observe.h"
#include "engine/parallel.h"
#include "tests/support/one_step.h"

// Callgrind counts only while this runs, and writes down what it has counted, from zero, whenever cut_here() begins. C
// names, because it is told by name.
extern "C" {
[[gnu::noinline]] void cut_here() { __asm__ volatile(""); }
[[gnu::noinline]] void counted_step(hs::test::OneStep& step) {
  step.run();
  __asm__ volatile("");  // a call, not a jump: callgrind sees the return
}
}

namespace {

struct Ran {
  const char *slot, *variant;
};

// Kernels may call kernels: what runs is the innermost. It costs little between the cuts: nothing is allocated.
struct CutAtKernels : hs::Observer {
  CutAtKernels() : Observer(hs::Event::work, Watch::this_thread) {
    cuts.reserve(10000);
    running.reserve(100);
  }
  void work_begins(const hs::DeviceWork& work) override {
    cut();
    running.push_back({work.name, work.variant});
  }
  void work_ends(const hs::DeviceWork&, bool) override {
    cut();
    running.pop_back();
  }
  void cut() {
    cuts.push_back(running.empty() ? Ran{} : running.back());
    cut_here();
  }
  std::vector<Ran> running, cuts;
  const hs::Attached attached{*this};
};

hs::Precision precision_named(const std::string& name) {
  for (const hs::Precision precision : {hs::Precision::f32, hs::Precision::f16, hs::Precision::bf16}) {
    if (name == hs::name(precision)) return precision;
  }
  hs::fail(hs::ExitCode::usage, "precision {}: expected one of f32, f16, bf16", name);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) hs::fail(hs::ExitCode::usage, "expected MODEL PRECISION, got {} arguments", argc - 1);
  hs::set_threads(1);
  hs::TrainConfig config;
  config.precision = precision_named(argv[2]);
  hs::test::OneStep step(argv[1], config, 4);
  step.run();
  counted_step(step);
  cut_here();
  std::puts("step");
  CutAtKernels kernels;
  counted_step(step);
  for (const Ran& ran : kernels.cuts) {
    ran.slot ? std::printf("%s=%s\n", ran.slot, ran.variant) : std::puts("rest");
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "one_step: %s\n", error.what());
  return 1;
}
