// `bench peers` with stand-ins for the peers, shell scripts that write what a test wants, so that nothing but a shell
// needs to be installed; and what the real scripts say without their engines.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>

#include "kernels/optimizer/steps.h"
#include "models/models.h"
#include "source_dir.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/child_process.h"

namespace {

using namespace hs::test;
using Lines = std::vector<std::string>;

// A line of shell, for other surroundings than the program's usual ones, and for the scripts themselves.
Ended shell(const std::string& line) {
  const TemporaryFolder folder;
  const std::string script = fmt::format(
      "exec 1>'{0}/out' 2>'{0}/err'\nexport HOME=/nonexistent OMP_WAIT_POLICY=passive\nunset HALFSTEP_DATA PYTHONPATH\n"
      "exec env {1}",
      folder.path.string(), line);
  const int status = std::system(script.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0, read_text(folder / "out"), read_text(folder / "err")};
}

// Once the file `started` is there, `signal` is sent to the program.
Ended run(const std::string& words, int signal = 0, const fs::path& started = {}) {
  Surroundings around;
  if (signal != 0) around.ask = [&](const std::string&) { return fs::exists(started) ? signal : 0; };
  return run_bench_line(words, around);
}

// A folder with stand-ins for the scripts, each a shell script, and a log of how they were called.
struct StandIns {
  TemporaryFolder folder;

  // `body` comes before it writes its record; it sees $seed, $precision and $words, and may change $seconds, $samples,
  // $accuracy and $rest (what follows the row).
  void write(const std::string& name, const std::string& body) const {
    write_raw(name, fmt::format(
                        R"(here='{}'
if [ "$1" = --version ]; then
  echo "{} 1.0"
  exit 0
fi
echo "{} $*" >>"$here/log"
words="$*" samples=96 accuracy=0.9 rest=
while [ $# -gt 0 ]; do
  case $1 in
    --seed) seed=$2 ;;
    --precision) precision=$2 ;;
  esac
  shift
done
seconds=$seed
{}
cat <<END
{{"schema": "halfstep-peer-1", "environment": {{"cpu": "C", "cores": 2, "threads": 1, "device": "cpu"}}, "rows": [
{{"name": "x", "seconds": $seconds, "seconds_all": [$seconds], "samples_per_second": $((samples / seed)),
"warmup_seconds": 0.5, "test_accuracy": $accuracy, "test_accuracy_all": [$accuracy], "final_loss": 0.1}} $rest ]}}
END
)",
                        folder.path.string(), name, name, body));
  }
  void write_raw(const std::string& name, const std::string& text) const {
    std::ofstream(folder / (name == "torch" ? "torch_models.py" : "jax_mnist.py")) << text;
  }

  std::string flags() const {
    return fmt::format(
        "bench peers --peers {} --python /bin/sh --device cpu --model mlp --train 96 --test 32 --epochs 1 "
        "--threads 1 ",
        folder.path.string());
  }
  Lines log() const { return lines_of(read_text(folder / "log")); }
};

json row_of(const json& record, const std::string& name) {
  for (const json& row : record["rows"]) {
    if (row["name"] == name) return row;
  }
  FAIL("no row " << name << " in " << record.dump());
  return {};
}

double median_of_three(const json& row) {
  std::vector<double> seconds = row["seconds_all"];
  REQUIRE(seconds.size() == 3);
  std::ranges::sort(seconds);
  return seconds[1];
}

const Lines all_rows = {"halfstep f32",         "halfstep bf16",   "torch f32", "torch f32 NHWC", "torch f32 compiled",
                        "torch f32 DataLoader", "torch bf16 NHWC", "jax f32",   "jax bf16"};

TEST_CASE("in turns, with ratios, an interval and every output") {
  const StandIns peers;
  peers.write("torch", "");
  peers.write("jax", "");
  const TemporaryFolder folder;
  const std::string file = (folder / "r.json").string();
  const Ended ended = run(peers.flags() + "--seed 1 --repeat 3 --json " + file);
  REQUIRE_MESSAGE(ended.code == 0, ended.err);

  const Lines progress = lines_of(ended.err);
  REQUIRE(progress.size() == 3 * all_rows.size() + 1);  // and what the data is
  for (size_t i = 0; i < 3 * all_rows.size(); ++i) {
    CHECK(progress[i + 1].starts_with(fmt::format("synthetic digits  pass {} of 3, ", i / all_rows.size() + 1)));
    CHECK(contains(progress[i + 1], ": " + all_rows[i % all_rows.size()] + "  "));
  }
  const Lines calls = peers.log();
  const Lines engines = {"torch", "torch", "torch", "torch", "torch", "jax", "jax"};
  const Lines flags = {"f32",
                       "f32 --channels-last",
                       "f32 --channels-last --mode compile",
                       "f32 --channels-last --loading dataloader",
                       "bf16 --channels-last",
                       "f32",
                       "bf16"};
  REQUIRE(calls.size() == 3 * engines.size());
  std::set<std::string> folders;
  for (size_t i = 0; i < calls.size(); ++i) {
    CHECK(calls[i].starts_with(engines[i % engines.size()] + " --data "));
    CHECK(contains(calls[i], "--model mlp --train 96 --test 32 --epochs 1 --batch 64 --lr 0.001 "));
    CHECK(contains(calls[i], fmt::format("--seed {} --threads 1 --device cpu --precision {} --json -",
                                         i / engines.size() + 1, flags[i % flags.size()])));
    folders.insert(calls[i].substr(calls[i].find("--data "), calls[i].find(" --model") - calls[i].find("--data ")));
  }
  REQUIRE(folders.size() == 1);  // the same samples for all
  CHECK_FALSE(fs::exists(folders.begin()->substr(7)));

  const json record = json::parse(read_text(file));
  CHECK(record["command"] == "bench peers");
  CHECK(record["absent"].empty());
  CHECK(record["data"]["train"] == 96);
  CHECK(record["data"]["synthetic"] == true);
  CHECK(record["engines"]["jax"]["version"] == "jax 1.0");
  CHECK(record["engines"]["torch"]["environment"]["cpu"] == "C");
  CHECK_FALSE(contains(record.dump(), "/tmp/"));  // nobody's folders
  REQUIRE(record["rows"].size() == all_rows.size());
  const double f32 = median_of_three(record["rows"][0]), bf16 = median_of_three(record["rows"][1]);
  for (size_t i = 0; i < all_rows.size(); ++i) {
    const json& row = record["rows"][i];
    CAPTURE(row);
    CHECK(row["name"] == all_rows[i]);
    if (i < 2) {
      CHECK(row["group"] == "halfstep");
      CHECK_FALSE(row.contains("ratio"));
      CHECK(row["peak_bytes"] > 0);
      CHECK(row["runs"].size() == 3);
      CHECK(row["runs"][2]["seed"] == 3);
      continue;
    }
    const bool is_bf16 = contains(all_rows[i], "bf16");
    const double ratio = 2 / (is_bf16 ? bf16 : f32), low = row["ratio_low"], high = row["ratio_high"];
    CHECK(row["group"] == "peer");
    CHECK(row["seconds_all"] == json({1, 2, 3}));
    CHECK(row["seconds"] == 2);
    CHECK(row["samples_per_second"] == 48);
    CHECK(row["warmup_seconds"] == 0.5);
    CHECK(row["ratio"].get<double>() == doctest::Approx(ratio).epsilon(1e-12));
    CHECK((low <= row["ratio"] && row["ratio"] <= high));
    const bool can_tell = low > 1 || high < 1;
    CHECK(row["verdict"].get<std::string>().starts_with(!can_tell ? "cannot tell: " : ratio > 1 ? "slower" : "faster"));
    CHECK(row["compared_with"] == (is_bf16 ? "halfstep bf16" : "halfstep f32"));
  }

  CHECK(contains(ended.out, "synthetic digits  torch f32 compiled       2.00    0.46 - 7.22       48.0"));
  CHECK(contains(ended.out, "compiling included"));
  CHECK(contains(ended.out, ", torch 1.0, jax 1.0.\n"));
  const Ended same = run("compare " + file + " " + file);
  CHECK(same.code == 0);
  CHECK(contains(same.out, "torch f32 compiled"));
}

TEST_CASE("engines that are missing are named and no failure; the first Python that has one is taken") {
  const StandIns peers;
  peers.write_raw("torch", "echo 'torch_models: no PyTorch here; install it: pip install torch' >&2\nexit 7\n");
  const Ended none = run(peers.flags() + "--repeat 1 --quiet --json -");
  REQUIRE_MESSAGE(none.code == 0, none.err);
  const json record = json::parse(none.out);
  CHECK(record["rows"].size() == 2);
  CHECK(record["absent"] == json({{{"name", "jax"}, {"reason", "--peers has no jax_mnist.py"}},
                                  {{"name", "torch"}, {"reason", "no PyTorch here; install it: pip install torch"}}}));
  CHECK(contains(none.err, "No row for torch: no PyTorch here; install it: pip install torch."));

  // Without any Python.
  std::string flags = peers.flags();
  flags.replace(flags.find("--python /bin/sh"), 16, "--repeat 1 --quiet");
  const Ended no_python = shell("PATH=/nonexistent '" + bench_program() + "' " + flags);
  CHECK(no_python.code == 0);
  CHECK(contains(no_python.out, "No row for torch: python3: cannot be started: No such file or directory; install"));
  check_one_line(run(peers.flags() + "--python /nonexistent/python"), 4,
                 "--python /nonexistent/python: cannot be started: No such file");

  // The second Python has it.
  const std::string second = (peers.folder / "second").string();
  std::ofstream(second) << "#!/bin/sh\n[ \"$2\" = --version ] || exit 77\necho second 2.0\n";
  fs::permissions(second, fs::perms::owner_all);
  const Ended found = run(peers.flags() + "--repeat 1 --quiet --python " + second);
  CHECK(found.code == 4);
  CHECK(contains(found.err, "torch f32: exit code 77"));
  CHECK_FALSE(contains(found.out, "No row for torch"));
}

TEST_CASE("a peer that fails is a row with an error, and the others go on") {
  const struct {
    const char* body;  // of the run in bf16; the others are as they should be
    int code;
    const char* message;
  } failures[] = {
      {"echo 'torch_models: the loss is nan' >&2; exit 6", 6, "exit code 6: the loss is nan"},
      {"printf 'Traceback:\\nValueError: boom\\n\\n' >&2; exit 1", 4, "exit code 1: ValueError: boom"},
      {"exit 77", 4, "exit code 77"},
      {"kill -9 $$", 4, "ended by signal 9"},
      {"echo hello; exit 0", 3, "its record: is not JSON, at byte 1 of 6"},
      {"exit 0", 3, "its record: is not JSON, at byte 1 of 0"},
      {"seconds=NaN", 3, "its record: is not JSON"},
      {"seconds=null", 3, "its record has 0 times above 0"},
      {"seconds=true", 3, "its record: rows[0].seconds is true, expected number"},
      {"seconds=0 seed=1", 3, "its record has 1 times above 0"},
      {"samples=192", 3, "trained on 192 samples by its record, expected 96"},
      {"rest=', {}'", 3, "its record: rows[1].name is missing"},
      {"echo '{\"schema\": \"halfstep-bench-1\", \"command\": \"info\"}'; exit 0", 3, "environment is missing"},
      {"echo '{\"schema\": \"x\"}'; exit 0", 3, "its record: schema is \"x\", expected"},
      {"echo '[1]'; exit 0", 3, "its record: schema is null, expected"},
  };
  for (const auto& failure : failures) {
    CAPTURE(failure.body);
    const StandIns peers;
    peers.write("torch", fmt::format("if [ $precision = bf16 ]; then\n{}\nfi", failure.body));
    const TemporaryFolder folder;
    const std::string file = (folder / "r.json").string();
    const Ended ended = run(peers.flags() + "--seed 1 --repeat 2 --quiet --json " + file);
    CHECK(ended.code == failure.code);
    CHECK_MESSAGE(contains(lines_of(ended.err).back(), std::string("halfstep-bench: torch bf16 NHWC: ")), ended.err);
    CHECK_MESSAGE(contains(ended.err, failure.message), ended.err);
    const json record = json::parse(read_text(file));
    REQUIRE(record["rows"].size() == 7);
    const json row = row_of(record, "torch bf16 NHWC");
    CHECK(row["seconds"].is_null());
    CHECK(contains(row["error"], failure.message));
    CHECK_FALSE(row.contains("ratio"));
    CHECK(row_of(record, "torch f32")["seconds_all"].size() == 2);
    CHECK(row_of(record, "torch f32")["verdict"] == "cannot tell: 3 runs or more would do");
    CHECK(peers.log().size() == 4 + 1 + 4);  // it does not run again
    CHECK(run("report " + file).code == 0);
  }
}

TEST_CASE("what a peer can not do here is no failure at first, and one later") {
  const StandIns peers;
  peers.write("torch", "if [ $precision = bf16 ]; then echo 'torch_models: no bf16 here' >&2; exit 7; fi");
  const json record = check_outputs(peers.flags() + "--repeat 1 --quiet");
  CHECK(record["rows"].size() == 2 + 4);
  CHECK(record["rows"][2]["ratio"] > 0);
  CHECK(record["rows"][2]["ratio_low"].is_null());  // of one run
  CHECK(record["absent"].back() == json({{"name", "torch bf16 NHWC"}, {"reason", "exit code 7: no bf16 here"}}));

  peers.write("torch", "if [ $precision = bf16 ] && [ $seed = 2 ]; then echo 'torch_models: gone' >&2; exit 7; fi");
  const Ended later = run(peers.flags() + "--seed 1 --repeat 3 --quiet --json -");
  CHECK(later.code == 7);
  const json row = row_of(json::parse(later.out), "torch bf16 NHWC");
  CHECK(row["seconds_all"] == json({1}));
  CHECK(row["error"] == "exit code 7: gone");
}

TEST_CASE("a peer that takes too long is ended with what it started, and what another leaves behind, too") {
  const StandIns peers;
  peers.write("torch", R"(sleep 1000 & echo $! >>"$here/ids"
if [ $precision = bf16 ]; then
  echo $$ >>"$here/ids"
  wait
fi)");
  const Ended ended = run(peers.flags() + "--repeat 1 --quiet --timeout 20 --json -");
  CHECK(ended.code == 1);
  CHECK(contains(ended.err, "halfstep-bench: torch bf16 NHWC: did not end within 20 s (--timeout)"));
  const Lines ids = lines_of(read_text(peers.folder / "ids"));
  CHECK(ids.size() == 5 + 1);
  CHECK(are_gone(ids));
  CHECK(row_of(json::parse(ended.out), "torch f32")["seconds"] == 1);
}

TEST_CASE("a signal ends the peer too, and no file is written") {
  for (const auto& [signal, code, name] : {std::tuple(SIGINT, 130, "SIGINT"), {SIGTERM, 143, "SIGTERM"}}) {
    CAPTURE(name);
    const StandIns peers;
    // It does not listen when it is asked to end.
    peers.write("torch", "trap '' TERM\necho $$ >\"$here/new\"; mv \"$here/new\" \"$here/ids\"\nsleep 1000");
    const TemporaryFolder folder;
    const Ended ended =
        run(peers.flags() + "--quiet --json " + (folder / "r.json").string(), signal, peers.folder / "ids");
    CHECK(ended.code == code);
    // By the command, or by the handler if a second went by first.
    CHECK((contains(ended.err, std::string("stopped by ") + name + " while measuring; no results were written") ||
           contains(ended.err, std::string("stopped by ") + name + " while running bench peers (")));
    CHECK(are_gone(lines_of(read_text(peers.folder / "ids"))));
    CHECK(folder.names().empty());
  }
}

TEST_CASE("the scripts are found wherever it is called; mistakes are one line and an exit code") {
  const StandIns peers;
  peers.write("torch", "");
  std::string flags = peers.flags();
  flags.replace(flags.find("--peers"), flags.find("--device") - flags.find("--peers"), "--python /bin/false ");
  const Ended anywhere = shell(fmt::format("-C / '{}' {} --repeat 1 --quiet", bench_program(), flags));
  CHECK(anywhere.code == 0);
  CHECK(contains(anywhere.out, "No row for torch: "));
  CHECK_FALSE(contains(anywhere.out, "--peers has no "));

  check_mistakes({
      {"bench peers --peers /nonexistent", 4, "--peers /nonexistent: has none of the peers' scripts"},
      {"bench peers --model deep_cnn", 2, "--model deep_cnn: expected one of mnist_cnn"},
      {peers.flags() + "--data /nonexistent", 4, "/nonexistent"},
  });
}

// mpirun in its place runs one process.
TEST_CASE("--ranks: one process, ranks of mpirun and DistributedDataParallel, with the same threads in all") {
  const StandIns peers;
  peers.write("torch", "");
  const TemporaryFolder bin;
  const fs::path mpirun = bin / "mpirun";
  std::ofstream(mpirun) << fmt::format(
      "#!/bin/sh\nshift 4\n[ $1 != --version ] || exit 0\necho \"mpirun $*\" >>'{}'\nexec \"$@\"\n",
      (peers.folder / "log").string());
  fs::permissions(mpirun, fs::perms::owner_all);
  Surroundings around;
  around.variables = {fmt::format("PATH={}:{}", bin.path.string(), std::getenv("PATH"))};
  std::string flags = peers.flags();
  flags.replace(flags.find("--threads 1"), 11, "--threads 2");
  const json record = record_of(flags + "--ranks 2 --seed 1 --repeat 2 --quiet", around);
  CHECK(record["absent"].empty());
  CHECK(record["config"]["ranks"] == 2);
  CHECK(contains(record["headline"], "threads 2 in all on 2 ranks"));
  const Lines names = {"halfstep f32", "halfstep f32 ranks", "torch DDP f32", "torch DDP f32 NHWC",
                       "torch DDP f32 small"};
  REQUIRE(record["rows"].size() == names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const json& row = record["rows"][i];
    CHECK(row["name"] == names[i]);
    CHECK(row["group"] == (i < 2 ? "halfstep" : "peer"));
    CHECK(row["seconds_all"].size() == 2);
    CHECK(row.contains("ratio") == (i >= 2));
  }
  CHECK(contains(record["engines"]["halfstep_mpi"]["version"], " on 2 ranks"));

  const Lines calls = peers.log();
  REQUIRE(calls.size() == 8);
  for (size_t turn = 0; turn < 2; ++turn) {
    const std::string* const call = &calls[4 * turn];
    CHECK(call[0].starts_with("mpirun " + bench_program() + " train --quiet "));
    CHECK(contains(call[0], " --batch 32 "));
    CHECK(contains(call[0], " --accumulate 2 "));
    CHECK(contains(call[0], " --threads 1 "));
    for (int i = 1; i < 4; ++i) {
      CHECK(call[i].starts_with("torch "));
      CHECK(contains(call[i], " --batch 64 "));
      CHECK(contains(call[i], " --threads 1 "));
      CHECK(contains(call[i], " --ranks 2 "));
    }
    CHECK(contains(call[3], " --bucket-cap-mb 0.25 "));
  }

  flags.replace(flags.find("--python /bin/sh"), 16, "");
  const Ended none =
      shell(fmt::format("PATH=/nonexistent '{}' {} --repeat 1 --quiet --ranks 2", bench_program(), flags));
  CHECK(none.code == 0);
  CHECK(contains(none.out,
                 "No row for halfstep_mpi: mpirun: cannot be started: No such file or directory; on Debian: apt"));
  check_mistakes({{"bench peers --ranks 3", 2, "--batch 64: expected a multiple of --ranks 3"},
                  {"bench peers --ranks 0", 2, "--ranks 0: expected a whole number from 1"}});
}

TEST_CASE("torch_models.py --ranks, where python3 has PyTorch: two processes train one model") {
  if (!has_python3() || shell("python3 -c 'import torch.distributed as d; assert d.is_gloo_available()'").code != 0) {
    MESSAGE("skipped: python3 has no PyTorch with gloo");
    return;
  }
  const TemporaryFolder folder;
  const std::string digits = (folder / "digits").string(), script = HALFSTEP_SOURCE_DIR "/bench/peers/torch_models.py";
  REQUIRE(run("data convert synthetic " + digits + " --format idx --train 500 --test 100").code == 0);
  const auto train = [&](const std::string& words) {
    return shell(
        fmt::format("python3 '{}' --data '{}' --model mlp --train 500 --test 100 --epochs 2 --batch 64 "
                    "--threads 1 --json - {}",
                    script, digits, words));
  };
  const Ended two = train("--ranks 2 --bucket-cap-mb 0.5");
  REQUIRE_MESSAGE(two.code == 0, two.err);
  const json record = json::parse(two.out), one = json::parse(train("--ranks 1").out);
  CHECK(record["schema"] == "halfstep-peer-1");
  CHECK(record["rows"][0]["ranks"] == 2);
  CHECK(record["rows"][0]["bucket_cap_mb"] == 0.5);
  // mlp has no dropout: two ranks train as one does, but for rounding.
  CHECK(record["rows"][0]["final_loss"].get<double>() ==
        doctest::Approx(one["rows"][0]["final_loss"].get<double>()).epsilon(1e-3));
  const Ended uneven = train("--ranks 3");
  CHECK(uneven.code == 2);
  CHECK(contains(uneven.err, "torch_models: a batch of 64 samples on 3 ranks: not as many on each"));
}

TEST_CASE("resnet8 of images of any size and char_gpt of a text have rows of their own, from the same samples") {
  const TemporaryFolder folder;
  const std::string text = (folder / "some.txt").string();
  for (std::ofstream file(text); file.tellp() < 6000;) file << "a line of " << file.tellp() << " bytes\n";
  const struct {
    const char* model;
    std::string data, files;
    Lines rows;
  } cases[] = {
      {"resnet8",
       "synthetic",
       "test.record-00000-of-00001\ntrain.record-00000-of-00001\n",
       {"halfstep f32", "halfstep bf16", "torch f32", "torch f32 NHWC", "torch f32 compiled", "torch bf16 NHWC"}},
      {"char_gpt",
       text,
       "input.txt\n",
       {"halfstep f32", "halfstep bf16", "torch f32", "torch f32 compiled", "torch bf16"}},
  };
  for (const auto& each : cases) {
    CAPTURE(each.model);
    const StandIns peers;
    peers.write("torch", "set -- $words; ls $2 >\"$here/files\"");
    std::string flags = peers.flags();
    flags.replace(flags.find("mlp"), 3, each.model).replace(flags.find("--test 32"), 9, "--test 4");
    const json record = record_of(flags + "--seed 1 --repeat 1 --quiet --data " + each.data);
    Lines rows;
    for (const json& row : record["rows"]) rows.push_back(row["name"]);
    CHECK(rows == each.rows);
    CHECK(record["absent"].empty());
    CHECK(contains(record["remarks"][0], ", torch f32 0.1000"));
    CHECK(read_text(peers.folder / "files") == each.files);
  }
  check_mistakes({{"bench peers --model char_gpt --data synthetic", 3, "and char_gpt is for the other kind"}});
}

TEST_CASE("the models that peers take are those of halfstep that PyTorch's script has, of digits JAX's too") {
  const fs::path scripts = fs::path(HALFSTEP_SOURCE_DIR) / "bench/peers";
  const std::string torch = read_text(scripts / "torch_models.py"), jax = read_text(scripts / "jax_mnist.py");
  std::set<std::string> of_torch, of_jax, models, of_digits;
  for (const std::string& model : hs::model_names()) {
    if (contains(torch, "\"" + model + "\": ")) of_torch.insert(model);
    if (contains(jax, "\"" + model + "\": ")) of_jax.insert(model);
  }
  const std::string command = read_text(fs::path(HALFSTEP_SOURCE_DIR) / "bench/commands/peers_command.cpp");
  for (const std::string& model : hs::model_names()) {
    const bool has_digits = contains(command, "{\"" + model + "\"}");
    if (has_digits || contains(command, "{\"" + model + "\", PeerData::")) models.insert(model);
    if (has_digits) of_digits.insert(model);
  }
  CHECK(models == of_torch);
  CHECK(of_digits == of_jax);
}

TEST_CASE("the real scripts compile, and say how to install what is missing") {
  if (!has_python3()) return;
  const TemporaryFolder folder;
  const std::string scripts = HALFSTEP_SOURCE_DIR "/bench/peers/";
  const std::string python = "PYTHONPYCACHEPREFIX='" + folder.path.string() + "' python3 ";
  for (const auto& entry : fs::directory_iterator(scripts)) {
    if (entry.path().extension() != ".py") continue;
    CAPTURE(entry.path().string());
    const Ended compiled = shell(python + "-m py_compile '" + entry.path().string() + "'");
    CHECK_MESSAGE(compiled.code == 0, compiled.err);
  }
  // -S: without what is installed.
  for (const auto& [script, package] : {std::pair("torch_models", "torch"), {"jax_mnist", "jax"}}) {
    CAPTURE(script);
    const Ended ended = shell(python + "-S '" + scripts + script + ".py' --version");
    CHECK(ended.code == 7);
    CHECK(ended.out == "");
    CHECK(lines_of(ended.err).size() == 1);
    CHECK_MESSAGE(ended.err.starts_with(std::string(script) + ": "), ended.err);
    CHECK_MESSAGE(contains(ended.err, std::string("python3 -m pip install ") + package), ended.err);
  }
}

TEST_CASE("the peers' schedule is halfstep's, step by step") {
  if (!has_python3()) return;
  using hs::ScheduleKind;
  const ChildResult result = run_shell("cd '" HALFSTEP_SOURCE_DIR R"py(/bench/peers' && python3 -B -c "
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
