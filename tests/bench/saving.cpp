// train --save and --resume as a user meets them: signals, other settings, two runs on a folder, what is said. The bits
// under every technique are in tests/models/resume.cpp, faults of files in tests/models/run_folder.cpp.
#include <signal.h>
#include <unistd.h>

#include <cmath>

#include "tests/support/bench_program.h"

namespace {

using namespace hs::test;

std::string run_of(int samples, int batch, int epochs) {
  return "train --data synthetic --test 32 --device cpu --quiet --train " + std::to_string(samples) + " --batch " +
         std::to_string(batch) + " --epochs " + std::to_string(epochs) + " ";
}

json row_of(const std::string& line) { return record_of(line)["rows"][0]; }

// The files of states in a folder.
size_t states(const fs::path& folder) {
  size_t count = 0;
  if (!fs::exists(folder)) return 0;
  for (const auto& entry : fs::directory_iterator(folder)) count += entry.path().extension() == ".safetensors";
  return count;
}

TEST_CASE("a run that a signal stops is continued, elsewhere, to the same weights") {
  const TemporaryFolder folder;
  // Long enough that the signal comes first; every technique at once.
  const std::string run =
      "train --data synthetic --train 900 --test 100 --batch 16 --accumulate 3 --epochs 3 --device cpu --quiet "
      "--precision f16 --augment shift=2 --checkpoint all --schedule cosine --validation 0.1 --validate-every 7st ";
  const json straight = row_of(run + "--threads 2");
  int stop = 0;
  for (const auto& [signal, code] : {std::pair(SIGTERM, 143), {SIGINT, 130}, {SIGXCPU, 143}}) {
    const std::string place = (folder / std::to_string(++stop)).string();
    Surroundings around;
    around.ask = [&, signal = signal](const std::string&) { return states(place) == 0 ? 0 : signal; };
    const Ended ended = run_bench_line(
        run + "--save " + place + " --save-every 9st --threads 2 --save-model " + place + ".model", around);
    const std::string command = "train --resume " + place + " --save-model " + place + ".model";
    check_one_line(ended, code, "and saved; continue with halfstep-bench " + command);
    const json resumed = row_of(command + " --threads 1 --workers 0 --prefetch 0");
    CHECK(fs::exists(place + ".model"));
    CHECK(resumed["weights_sha256"] == straight["weights_sha256"]);
    CHECK(resumed["test_accuracy"] == straight["test_accuracy"]);
    CHECK(resumed["final_loss"] == straight["final_loss"]);
    CHECK(resumed["scale"] == straight["scale"]);
    CHECK(resumed["runs"][0]["steps"] == straight["runs"][0]["steps"]);
    CHECK(resumed["runs"][0]["validations"].size() == straight["runs"][0]["validations"].size());
    CHECK(resumed["saving"]["resumed_in_epoch"] >= 1);
    CHECK(straight["saving"].is_null());
  }
}

TEST_CASE("a second signal ends at once, and the folder is as good as before") {
  const TemporaryFolder folder;
  const fs::path place = folder / "run";
  const std::string run = run_of(4000, 16, 1);
  Surroundings around;
  around.prepare = [place] {
    const pid_t program = getpid();
    if (fork() != 0) return;
    while (getppid() == program && !fs::exists(place / "state-000003.safetensors")) usleep(1000);
    for (int i = 0; i < 2 && getppid() == program; ++i) {
      kill(program, SIGTERM);
      usleep(500);
    }
    _exit(0);
  };
  const Ended ended = run_bench_line(run + "--save " + place.string() + " --save-every 5st", around);
  check_one_line(ended, 143, "stopped by SIGTERM ");
  CHECK(row_of(run + "--resume " + place.string())["weights_sha256"] == row_of(run)["weights_sha256"]);
}

TEST_CASE(
    "a state is refused by a run with other settings, by name, and resumed by one with others that do not matter") {
  const TemporaryFolder folder;
  const std::string place = (folder / "run").string();
  const std::string run = run_of(96, 16, 2) + "--model mlp ";
  const json straight = row_of(run + "--save " + place + " --save-every 3st --keep 3");
  CHECK(straight["saving"]["saved"] == 4);  // after 3, 6 and 9 steps, and at the end, after 12
  CHECK(states(place) == 3);
  const std::string refused = "--resume " + place + ": is another run: ";
  const std::vector<Mistake> mistakes = {
      {"train --model mnist_cnn --resume " + place, 5, "model was \"mlp\", now \"mnist_cnn\";"},
      {run_of(96, 8, 2) + "--model mlp --resume " + place, 5, "batch was 16, now 8;"},
      {run + "--seed 2 --resume " + place, 5, "seed was 1, now 2;"},
      {run + "--lr 0.1 --accumulate 2 --resume " + place, 5,
       "accumulate was 1, now 2, learning_rate was 0.001, now 0.1;"},
      {run + "--precision bf16 --resume " + place, 5, "precision was \"f32\", now \"bf16\";"},
      {run + "--optimizer sgd --resume " + place, 5, "optimizer was \"adam\", now \"sgd\""},
      {run_of(95, 16, 2) + "--model mlp --resume " + place, 5,
       "training data was 96 samples of 28 x 28 x 1, 10 classes, checksum "},
      {run + "--save " + place, 2, "contains the states of a run; continue it with --resume"},
      {run + "--save x --resume " + place, 2, "saves the run in its own folder; leave out --save x"},
      {run + "--resume " + (folder / "none").string(), 5, "no state is saved there; start with --save"},
      {run + "--save-every 3st", 2, "--save-every 3st: nothing is saved; give --save DIR as well"},
      {run + "--keep 3", 2, "--keep 3: nothing is saved"},
      {run + "--repeat 2 --save x", 2, "--repeat 2: a folder holds one run"},
      {run + "--save-every 3 --save x", 2, "3: expected a number from 1 to 1000000000 with a unit"},
      {run + "--save-every 0st --save x", 2, "0st: expected a number"},
      {run + "--save-every 3h --save x", 2, "3h: expected a number"},
      {run + "--patience 3", 2, "--patience 3: there is nothing to validate on; give --validation 0.1 as well"},
      {run + "--validation 0.1 --validate-every 3s", 2, "--validate-every: expected steps or epochs"},
      {run + "--validation 0.001", 2, "--validation 0.001: is 0 of 96 training samples, expected 1 to 95"},
  };
  check_mistakes(mistakes);
  CHECK_FALSE(fs::exists(folder / "none"));
  CHECK(states(place) == 3);
  const std::string later = run_of(96, 16, 3) + "--model mlp ";
  const json longer = row_of(later + "--threads 1 --prefetch 0 --cache none --resume " + place);
  CHECK(longer["weights_sha256"] == row_of(later)["weights_sha256"]);
  CHECK(longer["epochs"].size() == 3);
  CHECK(longer["epochs"][1]["training_loss"] == straight["epochs"][1]["training_loss"]);
  const Ended complete = run_bench_line("train --json - --resume " + place);
  CHECK(contains(complete.err, "--resume " + place + ": the run is complete after 3 epochs; nothing is left to train"));
  CHECK(json::parse(complete.out)["rows"][0]["weights_sha256"] == longer["weights_sha256"]);
  const std::string recipe = (folder / "recipe.json").string(), second = (folder / "second").string();
  std::ofstream(recipe) << R"({"model": "mlp", "train": 96, "batch": 16, "epochs": 2})";
  row_of("train --data synthetic --test 32 --device cpu --recipe " + recipe + " --save " + second);
  CHECK(row_of("train --resume " + second)["weights_sha256"] == straight["weights_sha256"]);
}

TEST_CASE("a run that a damaged sample or a full disk has ended is continued to the same weights") {
  const TemporaryFolder folder;
  Surroundings around{.folder = folder.path};
  run_successfully("data convert synthetic set --format pgm --train 300 --test 20 --quiet", around);
  const std::string run =
      "train --model mlp --data set --train 300 --test 20 --batch 8 --epochs 2 --device cpu --quiet --cache none ";
  const json straight = record_of(run, around)["rows"][0];
  fs::path sample;  // any of them
  for (const auto& entry : fs::recursive_directory_iterator(folder / "set/train")) {
    if (entry.path().extension() == ".pgm") sample = entry.path();
  }
  const std::string good = read_text(sample);
  // Damaged after the first epoch, so that a worker meets it in the second.
  Surroundings damaging = around;
  damaging.ask = [&](const std::string&) {
    if (fs::exists(folder / "run/state-000040.safetensors")) std::ofstream(sample) << "P5";
    return 0;
  };
  const Ended damaged = run_bench_line(run + "--save run --save-every 1st --keep 50 --workers 3", damaging);
  CHECK(damaged.code == 3);
  CHECK(contains(damaged.err, sample.filename().string()));
  std::ofstream(sample) << good;
  Surroundings full = around;
  full.file_limit = 1'000'000;  // a state of mlp is larger
  const Ended unsaved = run_bench_line(run + "--resume run --save-every 20st", full);
  CHECK(unsaved.code == 4);
  CHECK(contains(unsaved.err, "File too large"));
  const json resumed = record_of(run + "--resume run", around)["rows"][0];
  CHECK(resumed["weights_sha256"] == straight["weights_sha256"]);
  CHECK(resumed["final_loss"] == straight["final_loss"]);
  CHECK(resumed["saving"]["resumed_in_epoch"] == 2);
  // From another working folder.
  CHECK(row_of("train --resume " + (folder / "run").string())["weights_sha256"] == straight["weights_sha256"]);
}

TEST_CASE("a run that is stopped and not saved leaves the model that it was to write, and says so") {
  const TemporaryFolder folder;
  Surroundings around{.folder = folder.path};
  around.ask = [](const std::string& err) { return contains(err, "epoch 1/") ? SIGINT : 0; };
  const std::string run = "train --model mlp --data synthetic --train 96 --test 32 --device cpu --epochs 10000 ";
  const Ended ended = run_bench_line(run + "--save-model m", around);
  CHECK(ended.code == 130);
  CHECK(contains(ended.err, "stopped by SIGINT after step "));
  CHECK(contains(ended.err, "; m has the model as it was then\n"));
  CHECK(contains(ended.err, "halfstep-bench: mlp on synthetic digits: 96 for training"));  // before the first epoch
  run_successfully("evaluate --model m --test 10", {.folder = folder.path});
  run_successfully("train --model mlp --data synthetic --train 96 --test 32 --device cpu --epochs 1 --save run",
                   {.folder = folder.path});
  for (const std::string command :
       {"predict --test --model ", "export --onnx o --model ", "generate --model ", "train --start "}) {
    for (const std::string state : {"run", "run/state-000001.safetensors"}) {
      check_one_line(run_bench_line(command + state, {.folder = folder.path}), 2,
                     "is the state of a run; halfstep-bench train --resume run --save-model FILE writes its model");
    }
  }
}

TEST_CASE("saving too often is said, and recorded") {
  const TemporaryFolder folder;
  const std::string run = run_of(320, 8, 1) + "--model mlp ";
  const Ended often = run_successfully(run + "--save " + (folder / "often").string() + " --save-every 1st");
  CHECK(contains(often.err, "--save-every 1st: saving held up training for "));
  const Ended seldom = run_bench_line(run + "--save " + (folder / "seldom").string());
  CHECK(!contains(seldom.err, "held up"));
  CHECK(states(folder / "seldom") == 1);
  const json saving = row_of(run + "--save " + (folder / "third").string() + " --save-every 10st")["saving"];
  CHECK(saving["saved"] == 4);
  CHECK(saving["failed"] == 0);
  CHECK(saving["share"] > 0);
  CHECK(saving["share"] < 1);
}

TEST_CASE("validation comes from the training set, ends a run, and is recorded") {
  const json record = record_of(
      "train --data synthetic --train 200 --test 20 --batch 20 --epochs 50 --device cpu --quiet --model mlp --lr 0.01 "
      "--validation 0.25 --validate-every 4st --patience 3");
  const json& run = record["rows"][0]["runs"][0];
  const json& all = run["validations"];
  REQUIRE(all.size() > 3);
  // 150 samples in 8 batches: a validation in the middle of each epoch and one at its end.
  CHECK(all[0]["step"] == 4);
  CHECK(all[1]["step"] == 8);
  CHECK(all[2]["epoch"] == 2);
  CHECK(contains(run["ended_early"].get<std::string>(), "3 validations without a better accuracy than "));
  CHECK(contains(run["kept"].get<std::string>(), " is the best"));
  CHECK(run["steps"] == 4 * static_cast<int64_t>(all.size()));
  CHECK(record["config"]["validation"] == 0.25);
  CHECK(record["config"]["patience"] == 3);
  for (const json& validation : all) {
    const double right = validation["accuracy"].get<double>() * 50;  // of 50 samples
    CHECK(right == doctest::Approx(std::round(right)));
  }
}

TEST_CASE("--max-minutes ends a run in time, with a result, and --save-every goes by the clock") {
  const TemporaryFolder folder;
  const json row =
      row_of(run_of(96, 16, 10000) + "--max-minutes 0.04 --save-every 1s --save " + (folder / "run").string());
  CHECK(row["seconds"] > 2.4);
  CHECK(row["seconds"] < 6);
  CHECK(contains(row["runs"][0]["ended_early"].get<std::string>(), " of at most 2.4 s of training"));
  CHECK(row["test_accuracy"].is_number());  // after however few epochs the machine has made
  CHECK(row["saving"]["saved"] >= 2);       // 3 on an idle machine
  CHECK(row["saving"]["saved"] <= 6);
  CHECK(row["saving"]["share"] < 0.05);  // written beside training
}

TEST_CASE("a state that cannot be written: training goes on, and says so; the last one is an error") {
  const TemporaryFolder folder;
  const std::string place = (folder / "run").string();
  const std::string run = run_of(96, 16, 1) + "--model mlp --save " + place;
  Surroundings around;
  around.file_limit = 1000000;  // a state of mlp is larger
  Ended once = run_bench_line(run, around);
  CHECK(contains(std::exchange(once.out, ""), "summary"));
  check_one_line(once, 4, "state-000001.safetensors: cannot be written: File too large");
  const Ended often = run_bench_line(run + " --save-every 2st", around);
  CHECK(often.code == 4);
  CHECK(contains(often.err, "File too large; training goes on, its last saved state is none\n"));
  CHECK(folder.names() == std::set<std::string>{"run"});
  CHECK(states(place) == 0);
  run_successfully(run);
}

}  // namespace
