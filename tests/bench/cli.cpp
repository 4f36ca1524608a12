// The command line of halfstep-bench, and `train` as its users meet it.
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "engine/device.h"
#include "engine/error.h"
#include "models/models.h"
#include "source_dir.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/child_process.h"

namespace {

using namespace hs::test;

// `train` runs on the CPU unless the words say otherwise, whatever this machine has.
Ended run(Words words, const Surroundings& around = {}) {
  const bool trains = !words.empty() && words[0] == "train";
  if (trains && std::ranges::find(words, "--device") == words.end())
    words.insert(words.begin() + 1, {"--device", "cpu"});
  return run_bench(words, around);
}

// A training run of a second or less on generated digits.
Words small_training(const Words& more = {}) {
  Words words = {"train", "--train", "96", "--test", "40", "--epochs", "2", "--batch", "32"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("every wrong flag is one line that names it, and exit code 2") {
  const std::pair<Words, const char*> mistakes[] = {
      {{}, "a command is missing; try halfstep-bench train"},
      {{"trian"}, "trian: unknown command; did you mean train?"},
      {{"dance"}, "dance: unknown command; there are train, evaluate, predict"},
      {{"--epochs", "3", "train"}, "--epochs: goes after a command"},
      {{"train", "--epoch", "3"}, "--epoch: unknown flag; did you mean --epochs?"},
      {{"train", "--bacth=3"}, "--bacth: unknown flag; did you mean --batch?"},
      {{"train", "-batch", "3"}, "-batch: unknown flag; did you mean --batch?"},
      {{"train", "--optim", "sgd"}, "--optim: unknown flag; did you mean --optimizer?"},
      {{"train", "--zzzzzzzz"}, "--zzzzzzzz: unknown flag; see halfstep-bench train --help"},
      {{"train", "5"}, "5: unexpected word"},
      {{"train", "synthetic"}, "synthetic: unexpected word; did you mean --data synthetic? see"},
      {{"evaluate", "m.safetensors"}, "did you mean --model m.safetensors? see"},
      {{"train", "--model", "cnn"}, "did you mean deep_cnn?"},
      {{"info", "--batch", "3"}, "--batch: unknown flag"},
      {{"tune"}, "tune: expected tune and one of kernels, lr"},
      {{"bench", "relu", "--batch", "3"}, "bench: relu: unknown; expected bench and one of gemm, conv, ops"},
      {{"profile", "kernel"}, "kernel: unexpected word"},
      {{"train", "--learning-rate", "0.1"}, "--learning-rate: unknown flag; did you mean --lr?"},
      {{"train", "--batch-size=8"}, "--batch-size: unknown flag; did you mean --batch?"},
      {{"train", "--gpu"}, "--gpu: unknown flag; did you mean --device?"},
      {{"train", "--precision", "half"}, "expected one of f32, tf32, f16, bf16, auto; did you mean f16?"},
      {{"train", "--batch", "0"}, "--batch 0: expected a whole number from 1 to 1000000"},
      {{"train", "--batch=0"}, "--batch 0: expected a whole number from 1 to 1000000"},
      {{"train", "--batch", "+8"}, "--batch +8: expected a whole number"},
      {{"train", "--seed", "-1"}, "--seed -1: expected a whole number"},
      {{"train", "--batch", "10x"}, "--batch 10x: expected a whole number"},
      {{"train", "--batch", "1e9"}, "--batch 1e9: expected a whole number"},
      {{"train", "--batch", "0x10"}, "--batch 0x10: expected a whole number"},
      {{"train", "--batch", " 5"}, "--batch  5: expected a whole number"},
      {{"train", "--batch", "1\n2"}, "--batch 1\\x0a2: expected a whole number"},
      {{"train", "--batch", "99999999999999999999"}, "--batch 99999999999999999999: expected a whole number"},
      {{"train", "--batch", ""}, "--batch: the value is empty"},
      {{"train", "--batch="}, "--batch: the value is empty"},
      {{"train", "--batch"}, "--batch: a value is missing"},
      {{"train", "--batch", "--epochs", "3"}, "--batch: a value is missing before --epochs"},
      {{"train", "--batch", "1", "--batch", "2"}, "--batch: given 2 times, with 1 and 2"},
      {{"train", "--train", "60001"}, "--train 60001: the set has 60000 samples"},
      {{"train", "--lr", "nan"}, "--lr nan: expected a number from"},
      {{"train", "--lr", "inf"}, "--lr inf: expected a number from"},
      {{"train", "--lr", "0,5"}, "--lr 0,5: expected a number from"},
      {{"train", "--lr", "0x1p-3"}, "--lr 0x1p-3: expected a number from"},
      {{"train", "--model", "cnn"}, "--model cnn: expected one of "},
      {{"train", "--optimizer", "rmsprop"}, "--optimizer rmsprop: expected one of sgd, nesterov, adam"},
      {{"train", "--device", "gpu"}, "--device gpu: expected one of auto, cpu, cuda"},
      {{"train", "--momentum", "0.5"}, "--momentum 0.5: adam has none"},
      {{"train", "--beta2", "0.5", "--optimizer", "sgd"}, "--beta2 0.5: sgd has none"},
      {{"train", "--context", "64"}, "--context 64: mnist_cnn reads images; models that read a text: char_gpt"},
      {{"train", "--step-every", "5"}, "--step-every 5: belongs to --schedule step; give that as well"},
      {{"train", "--schedule", "one-cycle", "--warmup", "5"}, "--warmup 5: --schedule one-cycle has its own"},
      {{"tune", "lr", "--from", "1", "--to", "0.5"}, "--to 0.5: expected more than --from 1"},
      {{"train", "--augment", "shift=9999"}, "--augment shift=9999: expected a whole number of pixels from 0 to 512"},
      {{"train", "--kernel", "gemm"}, "--kernel gemm: expected SLOT=VARIANT"},
      {{"train", "--kernel", "gem=x"}, "--kernel gem=x: no slot gem"},
      {{"train", "--kernel", "gemm=x"}, "--kernel gemm=x: no such variant"},
      {{"train", "--model", "mlp", "--train", "96", "--kernel", "conv2d_forward=im2col"},
       "--kernel conv2d_forward=im2col: training mlp with adam never calls conv2d_forward"},
      {{"train", "--quiet=1"}, "--quiet: takes no value"},
  };
  for (const auto& [words, part] : mistakes) check_one_line(run(words), 2, part);
}

TEST_CASE("every model is in the help and in the error of the commands that take one") {
  for (const std::string command :
       {"train", "techniques", "profile memory", "bench f16", "profile kernels", "profile"}) {
    CAPTURE(command);
    const Ended help = run_bench_line(command + " --help"), wrong = run_bench_line(command + " --model cnn");
    for (const std::string& model : hs::model_names()) {
      CHECK(contains(help.out, model));
      CHECK(contains(wrong.err, model));
    }
  }
  // What is profiled without --blocks is what is trained without it.
  for (const std::string command : {"train", "tune lr", "profile memory", "profile kernels", "profile", "tune kernels",
                                    "scaling", "scaling ranks"}) {
    CAPTURE(command);
    CHECK(contains(run_bench_line(command + " --help-all").out, "auto: as many as it usually has, 1 to 4096"));
  }
}

// The lowest instruction set, and the highest one that multiplies 16 bits no faster than f32.
#if defined(__aarch64__)
const std::string lowest_cap = "neon", f32_cap = "neon";
#else
const std::string lowest_cap = "x86-64", f32_cap = "avx512";
#endif

TEST_CASE("HALFSTEP_ISA caps the kernels and is in the record; a wrong one ends every command") {
  for (const std::string line : {"info", "bench gemm", "report /nonexistent.json"}) {
    check_one_line(run_bench_line(line, {.variables = {"HALFSTEP_ISA=avx3"}}), 2,
                   "HALFSTEP_ISA=avx3: expected " + lowest_cap);
  }
  const Surroundings capped = {.variables = {"HALFSTEP_ISA=" + f32_cap}};
  CHECK(contains(run_bench_line("info", capped).out, "HALFSTEP_ISA=" + f32_cap + ": "));
  const json record = record_of("bench gemm --type bf16 --device cpu --batch 1 --rounds 3 --seconds 0", capped);
  CHECK(record["environment"]["isa_cap"] == f32_cap);
  CHECK(record["environment"]["cpu_features"].is_array());
  for (const json& kernel : record["kernels"]) {
    CHECK(kernel["type"] == "bf16");
    CHECK(kernel["chosen"] == "blocked");
    CHECK(kernel["variants"].size() == 1);
  }
  CHECK(record_of("info")["environment"]["isa_cap"].is_null());
}

TEST_CASE("--precision auto takes the fastest type of this processor, and the record says which") {
  for (const std::string line : {"train --device cpu --data synthetic --epochs 1 --train 64 --test 16",
                                 "profile kernels --device cpu --data synthetic --batch 8"}) {
    const json record = record_of(line + " --precision auto", {.variables = {"HALFSTEP_ISA=" + f32_cap}});
    CHECK(record["config"]["precision"] == "f32");
  }
}

TEST_CASE("help, version and info") {
  const Ended help = run({"--help"});
  CHECK(help.code == 0);
  CHECK(help.err == "");
  for (const hs::ExitCodeRow& row : hs::exit_code_table) {
    CAPTURE(row.meaning);
    CHECK(contains(help.out, fmt::format(" {}  {}\n", static_cast<int>(row.code), row.meaning)));
  }
  CHECK(contains(help.out, "\nFind what makes a training fast, or small:\n  techniques "));
  CHECK(contains(run({"tune", "--help"}).out, "  tune lr "));
  for (const std::string command : {"train", "info", "profile kernels"}) {
    const Ended own = run_successfully("help " + command);
    CHECK(contains(own.out, "Examples:\n  halfstep-bench " + command));
    CHECK(run_bench_line(command + " --help").out == own.out);
  }
  const Ended all = run({"train", "--help-all"});
  CHECK(contains(all.out, "\nTraining:\n  --lr X "));
  CHECK(contains(all.out, "--skip-outliers X"));
  CHECK_FALSE(contains(run({"train", "--help"}).out, "--skip-outliers X"));
  const Ended version = run({"--version"});
  CHECK(version.code == 0);
  CHECK(lines_of(version.out).size() == 1);
  CHECK(version.out.starts_with("halfstep-bench 0."));

  const Ended info = run({"info"});
  CHECK(info.code == 0);
  CHECK(contains(info.out, "conv2d_forward"));
  const json object = record_of("info");
  CHECK(object["schema"] == "halfstep-bench-1");
  CHECK(object["devices"][0] == "cpu");
  CHECK(object["kernels"]["conv2d_forward"].size() >= 2);
}

TEST_CASE("bash completes commands, flags and values, and the page for man has all of them") {
  const TemporaryFolder folder;
  std::ofstream(folder / "script") << run({"completion", "bash"}).out;
  std::ofstream(folder / "page.1") << run({"man"}).out;
  const std::string here = "cd '" + folder.path.string() + "' && ";
  REQUIRE(run_shell(here + "bash -n script").status == 0);
  const std::tuple<std::string, int, std::string> lines[] = {
      {"tr", 1, "train"},
      {"train --mo", 2, "--model --momentum"},
      {"train --model ml", 3, "mlp"},
      {"train --model = ml", 4, "mlp"},
      {"train --data =", 3, "mnist fashion_mnist cifar10 tinyshakespeare synthetic"},
      {"train --json r", 3, ""},  // a file
      {"predict my", 2, ""},
      {"predict --inv", 2, "--invert"},
      {"tune ke", 2, "kernels"},
      {"bench l", 2, "loader"},
      {"profile memory --budg", 3, "--budget"},
      {"help ju", 2, "judge"},
  };
  for (const auto& [words, at, expected] : lines) {
    CAPTURE(words);
    const std::string script = fmt::format(
        "set -u; . ./script; COMP_WORDS=(halfstep-bench {}); COMP_CWORD={}; _halfstep_bench; echo ${{COMPREPLY[*]-}}",
        words, at);
    CHECK(run_shell(here + "bash -c '" + script + "' 2>&1").output == expected + "\n");
  }
  const std::string page = read_text(folder / "page.1");
  for (const std::string& line : lines_of(run({"train", "--help-all"}).out)) {
    if (!line.starts_with("  --")) continue;
    std::string flag = "\\fB" + line.substr(2, line.find(' ', 2) - 2) + "\\fR";
    for (size_t at = 0; (at = flag.find('-', at)) != std::string::npos; at += 2) flag.insert(at, "\\");
    CHECK_MESSAGE(contains(page, flag), flag);
  }
  const ChildResult shown =
      run_shell(here + "! command -v groff >/dev/null || groff -man -Tascii -ww page.1 2>&1 >shown");
  CHECK(shown.output == "");
}

TEST_CASE("results as JSON on stdout and as a table on stderr") {
  // The comma of this locale, where the machine has it, must not reach a number.
  const Ended outcome = run(small_training({"--json", "-", "--repeat", "2", "--kernel", "conv2d_forward=im2col"}),
                            {.variables = {"LC_ALL=de_DE.UTF-8"}});
  REQUIRE(outcome.code == 0);
  const json record = json::parse(outcome.out);
  CHECK(record["schema"] == "halfstep-bench-1");
  CHECK(record["command"] == "train");
  for (const char* key : {"cpu", "cores", "threads", "memory_bytes", "os", "compiler", "flags", "build_type", "commit",
                          "version", "device", "date"}) {
    CAPTURE(key);
    CHECK(record["environment"].contains(key));
  }
  CHECK(record["data"]["name"] == "synthetic digits");
  CHECK(record["data"]["synthetic"] == true);
  CHECK(record["data"]["train"] == 96);
  CHECK(record["data"]["test"] == 40);
  CHECK(record["config"]["batch"] == 32);
  CHECK(record["config"]["learning_rate"] == 0.001);
  CHECK(record["kernels"]["conv2d_forward"] == "im2col");
  CHECK(record["kernels"]["adam_step"].is_string());
  CHECK(!record["kernels"].contains("sgd_step"));

  REQUIRE(record["rows"].size() == 1);
  const json& row = record["rows"][0];
  CHECK(row["name"] == "mnist_cnn");
  for (const char* key :
       {"seconds", "samples_per_second", "test_accuracy", "final_loss", "peak_bytes", "peak_resident_bytes"}) {
    CAPTURE(key);
    CHECK(row[key].is_number());
    CHECK(row[key] > 0);
  }
  CHECK(row["test_accuracy"] <= 1);
  for (const char* key : {"seconds_all", "test_accuracy_all", "resident_bytes_by_epoch", "epochs"}) {
    CHECK(row[key].size() == 2);
  }
  CHECK(row["epochs"][0]["training_loss"] > row["epochs"][1]["training_loss"]);
  CHECK(!row.contains("error"));
  REQUIRE(row["weights_sha256_all"].size() == 2);
  CHECK(row["weights_sha256"] == row["weights_sha256_all"][0]);
  CHECK(row["weights_sha256_all"][0] != row["weights_sha256_all"][1]);
  CHECK(row["weights_sha256"].get<std::string>().size() == 64);

  // Every line with a figure says what the data was, and the reason stands there once.
  int notices = 0, figures = 0;
  for (const std::string& line : lines_of(outcome.err)) {
    notices += contains(line, "MNIST was not found");
    if (line.find_first_of("0123456789") == std::string::npos || contains(line, "not found")) continue;
    ++figures;
    CHECK(contains(line, "synthetic digits"));
  }
  CHECK(notices == 1);
  CHECK(figures == 1 + 1 + 2 + 1 + 4);  // what is trained, then the table's title, runs and summary; epochs
}

TEST_CASE("the record's config holds the flags, given or not, in one order") {
  const std::string small = "train --device cpu --train 32 --test 16 --epochs 1 --batch 16 --quiet ";
  using Config = nlohmann::ordered_json;
  const auto config = [&](const std::string& flags) {
    const Ended ended = run_successfully(small + flags + " --json -");
    return Config::parse(ended.out)["config"].dump();
  };
  Config expected = Config::parse(R"({
    "model": "mnist_cnn", "blocks": null, "context": null, "learning_rate": 0.001, "optimizer": "adam",
    "momentum": null, "beta2": 0.999, "weight_decay": 0.0, "decay": "all", "clip": 0.0, "skip_outliers": 0.0,
    "skip_loss_outliers": 0.0, "ema": 0.0, "batch": 16, "precision": "f32", "accumulate": 1, "augment": "",
    "checkpoint": "off", "label_smoothing": 0.0, "fuse": "on", "kernels": [], "tuning": null, "seed": 1, "threads": 0,
    "device": "cpu", "recipe": "", "epochs": 1, "repeat": 1, "reduce": "fast", "bucket_kib": null, "halving_kib": null,
    "wire": "f32", "rank_timeout": null, "schedule": "constant", "step_every": 1000, "step_factor": 0.1, "warmup": 0,
    "scale_lr": 0, "warmed_up": true, "prefetch": 2, "workers": "auto", "cache": "ram", "pin": "on",
    "preprocess": "device", "loader": "given", "graph": false, "graph_steps": 1, "target": null,
    "price_per_hour": null, "noise_scale": false, "validation": 0.0, "validate_every": "1ep", "test_every": "1ep",
    "patience": 0, "max_minutes": 0.0, "start_sha256": null, "head": null, "freeze": null, "lora": 0,
    "lora_alpha": null, "unknown": null, "memory_bytes": null, "save_every": null, "keep": null})");
  CHECK(config("") == expected.dump());
  expected.update(Config::parse(R"({
    "model": "deep_cnn", "optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.5, "beta2": null, "threads": 1,
    "precision": "bf16", "augment": "shift=1,flip", "checkpoint": "every=2", "blocks": 2,
    "kernels": ["relu_forward=simple"], "cache": "none", "pin": "off", "price_per_hour": 2.5, "prefetch": 3,
    "workers": 2})"));
  CHECK(config("--model deep_cnn --blocks 2 --optimizer sgd --lr 0.01 --momentum 0.5 --threads 1 --precision bf16 "
               "--augment shift=1,flip --checkpoint every=2 --kernel relu_forward=simple --cache none --pin off "
               "--price-per-hour 2.5 --prefetch 3 --workers 2") == expected.dump());
  CHECK(Config::parse(config("--preprocess host"))["preprocess"] == "host");
}

TEST_CASE("samples a second are those that were trained on, and none that was held out") {
  const Ended ended = run_successfully(
      "train --device cpu --model mlp --train 1280 --test 40 --epochs 1 --batch 16 --validation 0.8 --json -");
  const size_t end = ended.err.find(" samples/s"), begin = ended.err.rfind(' ', end - 1);
  const double rate = json::parse(ended.out)["rows"][0]["samples_per_second"];
  CHECK(std::stod(ended.err.substr(begin, end - begin)) == doctest::Approx(rate).epsilon(0.5));
}

TEST_CASE("train: four outputs that show the same, and a plan that writes none") {
  const std::string small = "train --device cpu --model mlp --train 96 --test 40 --epochs 2 --batch 32 --quiet ";
  const json record = check_outputs(small + "--repeat 2");
  CHECK(record["rows"][0]["seconds_all"].size() == 2);
  const std::string plan = plan_of(small + "--repeat 3");
  CHECK(contains(plan, "synthetic digits: 3 runs: about "));
  CHECK(contains(plan, "seconds of a run"));
  // All that a step needs, predicted from steps of the same size.
  const double measured = record["rows"][0]["peak_bytes"].get<double>() / (1 << 20);
  CHECK(contains(plan, fmt::format(" {:.1f}\n", measured)));
}

TEST_CASE("a JSON file appears whole, keeps its mode, and leaves nothing beside it") {
  const TemporaryFolder folder;
  const fs::path file = folder / "result.json";
  std::ofstream(file) << "old";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  const Ended outcome = run(small_training({"--json", file.string(), "--quiet", "--optimizer", "sgd"}));
  CHECK(outcome.code == 0);
  CHECK(lines_of(outcome.err).size() == 1);  // the notice
  const std::vector<std::string> table = lines_of(outcome.out);
  REQUIRE(table.size() == 4);
  CHECK(table[2].starts_with("synthetic digits"));
  CHECK(contains(table[3], "summary"));
  const json record = json::parse(read_text(file));
  CHECK(record["config"]["momentum"] == 0.9);
  CHECK(contains(table[2], record["rows"][0]["weights_sha256"].get<std::string>().substr(0, 12)));
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(folder.names() == std::set<std::string>{"result.json"});

  // A file that is mounted cannot be replaced: it is overwritten.
  const auto mounted = [&file] {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(125);
    if (mount(file.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0) _exit(125);
  };
  const Ended in_place = run_bench({"info", "--json", file.string()}, {.prepare = mounted});
  if (in_place.code != 125) {  // without the right to mount
    CHECK_MESSAGE(in_place.code == 0, in_place.err);
    CHECK(json::parse(read_text(file))["command"] == "info");
    CHECK(folder.names() == std::set<std::string>{"result.json"});
  }

  // A device is written to, not replaced.
  CHECK(run({"info", "--json", "/dev/null"}).code == 0);
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("stdout that takes nothing") {
  for (const std::string target : {"/dev/full", "closed"}) {
    CAPTURE(target);
    const Surroundings around{.stdout_file = target};
    check_one_line(run({"--help"}, around), 4, "stdout: ");
    check_one_line(run({"info"}, around), 4, "stdout: ");
    const Ended outcome = run(small_training({"--quiet"}), around);
    CHECK(outcome.code == 4);
    CHECK(contains(outcome.err, "halfstep-bench: stdout: "));
  }
  // A report that cannot be written does not take the table with it.
  for (const Words& words : {small_training({"--quiet"}), Words{"scaling", "ranks", "--alpha", "1", "--beta", "1"}}) {
    Words full = words;
    full.insert(full.end(), {"--json", "/dev/full"});
    const Ended outcome = run(full);
    CHECK(outcome.code == 4);
    CHECK(contains(outcome.err, "--json /dev/full: cannot be written"));
    CHECK(lines_of(outcome.out).size() > 2);
  }
}

TEST_CASE("a device that is not there is refused by name, and auto goes on without it, with one notice at most") {
  if (hs::is_available(hs::Device::cuda)) return;
  check_one_line(run({"train", "--device", "cuda"}), 7, "--device cuda: " + hs::why_unavailable(hs::Device::cuda));
  check_one_line(run(small_training({"--device", "cpu", "--graph", "on"})), 2, "--graph on: only cuda captures graphs");
  check_one_line(run(small_training({"--device", "cpu", "--graph-steps", "2"})), 2, "--graph-steps 2: needs a graph");
  const Ended automatic = run(small_training({"--device", "auto", "--quiet"}));
  CHECK(automatic.code == 0);
  CHECK(contains(automatic.out, "device cpu"));
  // Besides the notice about generated digits; a build without CUDA has nothing to say.
  CHECK(lines_of(automatic.err).size() <= 2);
}

// In a copy, on a machine of stand-ins: no package is installed, the user may not use sudo, and cmake writes down its
// configures.
TEST_CASE("bench/run goes on without sudo, says how far it is, and configures when something has changed") {
  const TemporaryFolder folder;
  std::ofstream(folder.path / "make") << R"(
mkdir bench bin && cp "$1"/bench/run "$1"/bench/setup.sh bench && cp "$1"/CMakePresets.json "$1"/CMakeLists.txt . && cd bin
stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
stand_in id 'echo 1000'
stand_in dpkg-query 'exit 1'
stand_in apt-get 'exit 1'
stand_in sudo 'echo "sorry, user" >&2; exit 1'
stand_in cmake 'case $1 in
  --version) echo cmake version 3.25.1 ;;
  --preset) echo "$@" >>configures; mkdir -p build/release/bench; touch build/release/CMakeCache.txt build/release/build.ninja
    cp bin/program build/release/bench/halfstep-bench ;;
  --build) for i in 1 10 20; do echo "[$i/20] Building"; done ;;
esac'
stand_in program 'echo "ran $*"'
)";
  const std::string here = "cd '" + folder.path.string() + "' && ";
  REQUIRE(run_shell(here + "bash make '" HALFSTEP_SOURCE_DIR "'").status == 0);
  const auto bench_run = [&](const std::string& arguments) {
    const ChildResult ran =
        run_shell(here + "PATH=$PWD/bin:$PATH HALFSTEP_CMAKE_ARGS='" + arguments + "' bench/run info 2>&1 </dev/null");
    INFO(ran.output);
    CHECK(ran.status == 0);
    CHECK(contains(ran.output, "ran info"));
    return ran.output;
  };
  const auto configures = [&] { return lines_of(read_text(folder.path / "configures")).size(); };
  const std::string first = bench_run("");
  CHECK(contains(first, "\nhalfstep:   sudo apt-get install --no-install-recommends g++ cmake "));
  CHECK(contains(first, "halfstep: built 10 of 20, 0:0"));
  CHECK_FALSE(contains(first, "sorry"));
  CHECK_FALSE(contains(first, "doctest"));  // only tests need it
  bench_run("");
  CHECK(configures() == 1);
  bench_run("-DHALFSTEP_MPI=OFF");
  CHECK(configures() == 2);
  bench_run("");
  CHECK(configures() == 3);
  const ChildResult ready = run_shell(here + "PATH=$PWD/bin:$PATH bench/run ready 2>&1");
  CHECK(contains(ready.output, "\nok  cmake: 3.25.1, needed: 3.25\n"));
  CHECK((ready.status == 1 && contains(ready.output, "\nNO  packages: 0, needed: 10\n")));
  CHECK(run_shell(here + "ln -s ../bench/run bin/hs && HALFSTEP_CMAKE_ARGS= PATH=$PWD/bin:$PATH bin/hs info").status ==
        0);
  fs::rename(folder.path / "build/release", folder.path / "build/built");
  const ChildResult help =
      run_shell(here + "PATH=$PWD/bin bench/run train --help 2>&1 || PATH=$PATH bench/run --version");
  CHECK(contains(help.output, "Nothing is built yet: the first build takes roughly "));
  CHECK(contains(help.output, "\nhalfstep 0."));
  CHECK(configures() == 3);
  fs::rename(folder.path / "build/built", folder.path / "build/release");
  fs::remove(folder.path / "build/release/configured");  // as if configured by hand
  bench_run("");
  CHECK(configures() == 3);
}

}  // namespace
