// Every command of halfstep-bench once, as small as it goes. The tests of each command look closely and take their
// time; this one is quick enough for the builds with sanitizers, which then see all of the program's code.
#include "tests/support/bench_program.h"

namespace {

using namespace hs::test;

TEST_CASE("every command runs to its end, and writes its files") {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  const std::string files =
      " --json " + path("r.json") + " --csv " + path("r.csv") + " --md " + path("r.md") + " --html " + path("r.html");
  const std::string small = " --device cpu --train 64 --test 16 --epochs 1 --batch 16";
  const std::string lines[] = {
      "train" + small + " --trace " + path("trace.json") + files,
      "train --model deep_cnn --blocks 2 --checkpoint all --precision bf16 --accumulate 2 --augment shift=1" + small +
          files,
      "techniques --repeat 1 --quiet" + small + files,
      "bench f16" + small + files,
      "profile kernels --device cpu --batch 8" + files,
      "profile --device cpu --batch 8 --steps 4 --train 64" + files,
      "profile memory --device cpu --model mlp --batch 2 --steps 1 --budget 4M" + files,
      "bench loader --device cpu --samples 48 --batch 16" + files,
      "bench gemm --device cpu --batch 1 --rounds 3 --seconds 0 --type f32",
      "bench ops --device cpu --batch 4 --rounds 3 --seconds 0 --type bf16" + files,
      "scaling --device cpu --batch 2 --largest 4 --rounds 3 --seconds 0" + files,
      "scaling ranks --model mlp --batch 2 --accumulate 2 --rounds 1 --alpha 1e-3 --beta 8e-9" + files,
      "tune kernels --device cpu --batch 4 --rounds 3 --seconds 0 --out " + path("tuning") + files,
      "train" + small + " --quiet --tuning " + path("tuning") + files,
      "train" + small + " --save " + path("run") + " --save-every 1st --validation 0.25 --patience 2",
      "train" + small + " --resume " + path("run") + " --validation 0.25 --patience 3",
      "tune lr --device cpu --batch 8 --steps 20" + files,
      "bench peers --model mlp --repeat 1 --quiet" + small + files,
      "data convert synthetic " + path("pgm") + " --format pgm --train 20 --test 10",
      "info --json -",
      "train" + small + " --json " + path("second.json"),
      "report " + path("second.json") + " --html " + path("report.html"),
      "compare " + path("second.json") + " " + path("second.json") + " --md -",
  };
  for (const std::string& line : lines) {
    const Ended ended = run_bench_line(line);
    INFO(line, "\n", ended.err);
    CHECK(ended.code == 0);
  }
  const std::set<std::string> expected = {"tuning", "pgm",         "r.csv", "r.html",      "r.json",
                                          "r.md",   "report.html", "run",   "second.json", "trace.json"};
  CHECK(folder.names() == expected);
}

TEST_CASE("techniques --list and --dry-run say what it would do, and write no file") {
  const std::string list = run_successfully("techniques --list").out;
  for (const char* part : {"mixed precision", "accumulation", "fast kernels", "graph"}) CHECK(contains(list, part));
  const std::string plan = plan_of("techniques --device cpu --train 96 --test 32 --epochs 2 --repeat 3 --quiet");
  for (const char* part : {" minutes\n", "seconds of a run", "peak MiB", "3 runs of each"}) CHECK(contains(plan, part));
}

}  // namespace
