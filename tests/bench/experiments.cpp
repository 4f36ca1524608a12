// bench/experiment with stand-ins for the program and for Python; and the committed sheets, whose flags the program
// must know.
#include <signal.h>

#include <sstream>
#include <tuple>

#include "kernels/optimizer/steps.h"
#include "source_dir.h"
#include "tests/support/bench_experiments.h"
#include "tests/support/child_process.h"

namespace {

using namespace hs::test;
using Lines = std::vector<std::string>;

const std::string top = HALFSTEP_SOURCE_DIR;

TEST_CASE("rows run in turns by seed, records are what was written, and what is recorded does not run again") {
  if (!has_python3()) return;
  const Workshop shop;
  const Ended dry = shop.run("s --dry-run --seeds 1");
  CHECK(dry.code == 0);
  REQUIRE(lines_of(dry.out).size() == 3);
  CHECK(lines_of(dry.out)[1].starts_with(
      (shop.folder / "program").string() +
      " train --quiet --data build/set --device cpu --seed 1 --epochs 2 --train 64 --test 16 --precision bf16 --lr 0.1 "
      "--json "));
  CHECK(contains(dry.out,
                 "bench/peers/torch_models.py --data build/set --device cpu --seed 1 --epochs 2 --train 64 --test "
                 "16 --channels-last --json "));
  CHECK(shop.ran().empty());

  const Ended ended = shop.run("s --seeds 2");
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  CHECK(shop.ran() == Lines{"base-seed1", "half-seed1", "peer-seed1", "base-seed2", "half-seed2", "peer-seed2"});
  CHECK(lines_of(ended.err).size() == 6);
  CHECK(contains(ended.err, "s: run 5 of 6, half, seed 2: 0.2 s of training, "));
  CHECK(shop.recorded() == std::set<std::string>{"base-seed1.json", "base-seed2.json", "half-seed1.json",
                                                 "half-seed2.json", "peer-seed1.json", "peer-seed2.json"});
  CHECK(read_text(shop.records / "s/half-seed2.json") == record_with(2, "bf16", 0.25, 0.5).dump() + "\n");

  CHECK(shop.run("s --seeds 2").err == "s: 6 of 6 runs are recorded already\n");
  CHECK(shop.ran().empty());
  fs::remove(shop.records / "s/half-seed1.json");
  CHECK(shop.run("s --seeds 2").code == 0);
  CHECK(shop.ran() == Lines{"half-seed1"});
  CHECK(shop.run("s --only peer,base").code == 0);  // three seeds, as the sheet says
  CHECK(shop.ran() == Lines{"base-seed3", "peer-seed3"});
}

TEST_CASE("--quick trains on little, with one seed; --data names another folder") {
  if (!has_python3()) return;
  const Workshop shop;
  CHECK(contains(shop.run("s --quick --dry-run --only base --data /x").out,
                 "--data /x/set --device cpu --seed 1 --epochs 1 --train 512 --test 64 --precision f32"));
  CHECK(shop.run("s --quick").code == 0);
  CHECK(shop.ran() == Lines{"base-seed1", "half-seed1", "peer-seed1"});
}

TEST_CASE("a row that fails has no record and does not run again, the others go on, and the exit code is its own") {
  if (!has_python3()) return;
  const struct {
    const char* body;  // of the run in bf16; the others are as they should be
    int code;
    const char* message;
  } failures[] = {
      {"echo 'halfstep-bench: the loss is nan' >&2; exit 6", 6, "exit code 6: the loss is nan"},
      {"echo x >\"$file\"; exit 1", 4, "exit code 1"},
      {"kill -9 $$", 4, "ended by signal 9"},
      {"exit 0", 4, "No such file"},
      {"echo hello >\"$file\"; exit 0", 3, "is not JSON"},
      {"echo '{\"rows\": []}' >\"$file\"; exit 0", 3, "its record has no row with a time"},
      {"sleep 1000", 1, "did not end within 10 s (--timeout)"},
      {"echo 'halfstep-bench: not here' >&2; exit 7", 7, "exit code 7: not here"},
  };
  for (const auto& failure : failures) {
    CAPTURE(failure.body);
    const Workshop shop;
    shop.stand_in("program", fmt::format("if [ $precision = bf16 ]; then\n{}\nfi", failure.body));
    const Ended ended = shop.run("s --seeds 2 --timeout 10");
    CHECK(ended.code == failure.code);
    CHECK_MESSAGE(contains(ended.err, std::string("s: run 2 of 6, half, seed 1: no record: ")), ended.err);
    CHECK_MESSAGE(contains(ended.err, failure.message), ended.err);
    CHECK(shop.ran() == Lines{"base-seed1", "half-seed1", "peer-seed1", "base-seed2", "peer-seed2"});
    CHECK(shop.recorded() ==
          std::set<std::string>{"base-seed1.json", "base-seed2.json", "peer-seed1.json", "peer-seed2.json"});
  }
}

TEST_CASE("without PyTorch, or without what a row of it needs, that is said and is no failure") {
  if (!has_python3()) return;
  const Workshop shop;
  shop.write("no_torch", "");
  const Ended none = shop.run("s --seeds 1");
  CHECK(none.code == 0);
  CHECK(contains(none.err, "s: no rows of PyTorch: none here\n"));
  CHECK(shop.ran() == Lines{"base-seed1", "half-seed1"});
  const Ended no_python = shop.run("s --seeds 1 --python /nonexistent/python");
  CHECK(no_python.code == 0);
  CHECK(contains(no_python.err, "/nonexistent/python: cannot be started: No such file"));

  fs::remove(shop.folder / "no_torch");
  shop.stand_in("python", "echo 'torch_models: does not compile here' >&2; exit 7");
  const Ended not_here = shop.run("s --seeds 2 --only peer");
  CHECK(not_here.code == 0);
  CHECK(contains(not_here.err, "peer, seed 1: no record: exit code 7: does not compile here"));
  CHECK(shop.ran() == Lines{"peer-seed1"});
}

TEST_CASE("a signal ends the run too and leaves whole records alone; the same command continues") {
  if (!has_python3()) return;
  for (const auto& [signal, code, name] : {std::tuple(SIGINT, 130, "SIGINT"), {SIGTERM, 143, "SIGTERM"}}) {
    CAPTURE(name);
    const Workshop shop;
    // It has begun to write, and does not listen when it is asked to end.
    const std::string process = (shop.folder / "process").string();
    shop.stand_in("program",
                  fmt::format("if [ $precision = bf16 ] && [ ! -e {0} ]; then\ntrap '' TERM\necho x >\"$file\"\n"
                              "echo $$ >{0}.new; mv {0}.new {0}\nsleep 1000\nfi",
                              process));
    Surroundings around;
    around.ask = [&, signal = signal](const std::string&) { return fs::exists(process) ? signal : 0; };
    const Ended ended = shop.run("s --seeds 1", around);
    CHECK(ended.code == code);
    CHECK(lines_of(ended.err).back() == fmt::format("experiment: stopped by {}; the same command continues", name));
    CHECK(are_gone(lines_of(read_text(process))));
    CHECK(shop.recorded() == std::set<std::string>{"base-seed1.json"});
    shop.ran();
    CHECK(shop.run("s --seeds 1").code == 0);
    CHECK(shop.ran() == Lines{"half-seed1", "peer-seed1"});
  }
}

TEST_CASE("a signal that comes while a run is being started ends it, too") {
  if (!has_python3()) return;
  const TemporaryFolder folder;
  std::ofstream(folder / "check.py") << R"(
import os, runpy, signal, subprocess, sys
run = runpy.run_path(sys.argv[1] + "/bench/experiment")["run"]

class Stopped(Exception): pass
def stop(number, frame): raise Stopped
signal.signal(signal.SIGTERM, stop)

class Slow(subprocess.Popen):  # as on a busy machine: the signal comes before anybody knows the process
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Slow

try: run(["sleep", "1000"], 60)
except Stopped: print("stopped")
)";
  const ChildResult result = hs::test::run_shell("python3 '" + (folder / "check.py").string() + "' '" + top + "'");
  const Lines lines = lines_of(result.output);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] == "stopped");
  CHECK(are_gone({lines[0]}));
}

TEST_CASE("mistakes are one line and an exit code") {
  if (!has_python3()) return;
  const Workshop shop;
  check_refused(shop.run("none"), 2, "none: no sheet of this name in " + (shop.folder / "sheets").string());
  check_refused(shop.run("s --only half,none"), 2,
                "--only half,none: s has no row none, expected some of base, half, peer");
  check_refused(shop.run("s --program /nonexistent/program"), 4, "--program /nonexistent/program: not found");
  shop.write("file", "");
  const Ended no_folder = shop.run("s --only base --out " + (shop.folder / "file").string());
  CHECK(no_folder.code == 4);
  CHECK(contains(no_folder.err, "base, seed 1: no record: " + (shop.folder / "file/s").string()));
  for (const char* words : {"", "s --tables", "s --check", "s --seeds 0", "s --seeds x"}) {
    CAPTURE(words);
    CHECK(shop.run(words).code == 2);
  }
  CHECK(run_bench_line("experiment vision --quick").code == 2);  // not among the committed ones
  CHECK(shop.ran().empty());

  const std::string head = R"({"title": "T", "columns": ["step_ms"], "seeds": 1, )",
                    rows = head + R"("data": "d", "rows": )";
  const std::pair<std::string, const char*> sheets[] = {
      {"[]", "is not a JSON object"},
      {"{", "is not JSON"},
      {head + R"("data": "d"})", "rows is missing"},
      {head + R"("row": []})", "unknown members ['row']"},
      {head + R"("rows": [{"name": "a"}]})", "row 'a': data is missing"},
      {rows + R"([{"name": "a/b"}]})", "row 'a/b': expected a name of letters"},
      {rows + R"([{"name": "a", "like": "b"}]})", "row 'a': like: no row 'b' above it"},
      {rows + R"([{"name": "a"}, {"name": "a"}]})", "row 'a': is there twice"},
      {rows + R"([{"name": "a", "engine": "x"}]})", "row 'a': engine: expected halfstep or torch"},
      {rows + R"([{"name": "a"}]})", "row 'a': is compared with None, which is no row"},
  };
  for (const auto& [text, message] : sheets) {
    shop.write("sheets/bad.json", text);
    check_refused(shop.run("bad"), 3, message);
  }
}

TEST_CASE("the program takes the flags of every committed sheet") {
  if (!has_python3()) return;
  int commands = 0;
  for (const auto& entry : fs::directory_iterator(top + "/bench/experiments")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const Ended dry =
        run_successfully("experiment " + name + " --dry-run --seeds 1 --data /nonexistent --out /nonexistent");
    for (const std::string& line : lines_of(dry.out)) {
      if (contains(line, "torch_models.py")) continue;
      Surroundings around;
      around.folder = top;
      const size_t words = line.find(" train "), json_flag = line.find(" --json "), start = line.find(" --start ");
      // The first thing that is not there: the model to start with, unless the experiment has run here; or the data.
      std::string missing = "/nonexistent/";
      if (start != std::string::npos) {
        std::string model;
        std::istringstream(line.substr(start + 9)) >> model;
        if (!fs::exists(fs::path(top) / model)) missing = model;
      }
      check_one_line(run_bench_line(line.substr(words, json_flag - words), around), 4, missing.c_str());
      ++commands;
    }
  }
  CHECK(commands >= 20);
}

TEST_CASE("the peers' schedule is halfstep's, step by step") {
  if (!has_python3()) return;
  using hs::ScheduleKind;
  const ChildResult result = run_shell("cd '" + top + R"py(/bench/peers' && python3 -B -c "
import json, peer
print(json.dumps([[kind, warmup, total, [peer.schedule_factor(kind, warmup, total, step) for step in range(total + 3)]]
                  for kind in peer.SCHEDULES
                  for warmup, total in ((0, 1), (0, 2), (0, 10), (7, 100), (5, 5), (100, 2455))]))")py");
  REQUIRE(result.status == 0);
  for (const json& row : json::parse(result.output)) {
    CAPTURE(row[0]);
    CAPTURE(row[2]);
    const auto warmup = row[1].get<int32_t>();
    const ScheduleKind kind = hs::parse_schedule(row[0].get<std::string>());
    if (warmup > 0 && kind == ScheduleKind::one_cycle) continue;  // it has its own
    for (size_t step = 0; step < row[3].size(); ++step) {
      const double ours = hs::schedule_factor(
          {.kind = kind, .warmup_steps = warmup, .total_steps = row[2].get<int32_t>()}, static_cast<int>(step));
      CAPTURE(step);
      CHECK(std::abs(row[3][step].get<double>() - ours) < 1e-6);
    }
  }
}

}  // namespace
