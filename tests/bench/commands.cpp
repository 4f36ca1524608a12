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
      "bench gemm --device cpu --dry-run",  // the code of `bench ops`, on larger tensors
      "bench ops --device cpu --batch 4 --rounds 3 --seconds 0 --type bf16" + files,
      "scaling --device cpu --batch 2 --largest 4 --rounds 3 --seconds 0" + files,
      "scaling ranks --model mlp --batch 2 --accumulate 2 --rounds 1 --alpha 1e-3 --beta 8e-9" + files,
      "tune kernels --device cpu --batch 4 --rounds 3 --seconds 0 --out " + path("tuning") + files,
      "train" + small + " --quiet --tuning " + path("tuning") + files,
      "train" + small + " --save " + path("run") + " --save-every 1st --validation 0.25 --patience 2",
      "train" + small + " --resume " + path("run") + " --validation 0.25 --patience 3",
      "tune lr --device cpu --batch 8 --steps 20" + files,
      "bench peers --dry-run",
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

TEST_CASE("--list and --dry-run say what a command would do, and write no file") {
  const std::pair<const char*, std::vector<const char*>> lists[] = {
      {"techniques --list", {"mixed precision", "accumulation", "fast kernels", "graph"}},
      {"bench conv --device cpu --batch 1 --list", {"1x26x26x32 3x3 -> 64"}},
      {"bench loader --device cpu --list", {"memory", "record_zlib", "png", "none, ram, device", "0 and 0, 1 and 1"}}};
  for (const auto& [line, parts] : lists) {
    const std::string out = run_successfully(line).out;
    for (const char* part : parts) CHECK_MESSAGE(contains(out, part), std::string(line), ": ", std::string(part));
  }
  const std::string small = "--device cpu --train 96 --test 32 --epochs 2 --repeat 3 --quiet";
  const std::pair<std::string, std::vector<const char*>> plans[] = {
      {"techniques " + small, {" minutes\n", "seconds of a run", "peak MiB", "3 runs of each"}},
      {"bench conv --device cpu --type f32 --rounds 3 --seconds 0",
       {"conv: 15 kernels in 1 types on cpu, 3 rounds", " minutes", " MiB"}},
      {"bench f16 --device cpu --train 64 --test 10 --scale 4294967296", {"synthetic digits: about ", "peak MiB"}},
      {"bench loader --device cpu --samples 500",
       {"synthetic digits: 7 formats: about ", " minutes; the set takes 0.4 MiB"}}};
  for (const auto& [line, parts] : plans) {
    const std::string plan = plan_of(line);
    for (const char* part : parts) CHECK_MESSAGE(contains(plan, part), line, ": ", std::string(part));
  }
}

}  // namespace
