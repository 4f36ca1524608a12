// The verdicts of `profile` on four runs that are bound by one thing each, and `profile` and `profile kernels` as
// programs.
// Before that, the device that they and all others run on.
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/cli/inputs.h"
#include "bench/measure/doctor.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/techniques.h"
#include "engine/autograd.h"
#include "engine/slots.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/optimizer/steps.h"
#include "kernels/relu/relu.h"
#include "models/models.h"
#include "tests/support/bench_outputs.h"

namespace {

using namespace hs;
using namespace hs::bench;
using namespace hs::bench::cli;
using namespace hs::bench::measure;
using namespace hs::test;

TEST_CASE("--device: auto is the GPU if there is one; an emulated one it leaves to those who ask for it, and says so") {
  const std::string missing = "no usable CUDA device", absent = "this build has no cuda";
  struct Choice {
    const char *wanted, *built;
    std::string why_not;
    Device device;
    const char* notice;
  };
  const Choice choices[] = {
      {"auto", "ON (toolkit 13)", "", Device::cuda, ""},
      {"auto", "ON (toolkit 13)", missing, Device::cpu, "no usable CUDA device: using the CPU"},
      {"auto", "OFF", absent, Device::cpu, ""},
      {"auto", "EMULATED (slowly)", "", Device::cpu,
       "cuda is emulated in this build, slowly: using the CPU; --device cuda runs the emulator"},
      {"cuda", "EMULATED (slowly)", "", Device::cuda, ""},
      {"cuda", "ON (toolkit 13)", "", Device::cuda, ""},
      {"cpu", "EMULATED (slowly)", "", Device::cpu, ""},
      {"cpu", "OFF", absent, Device::cpu, ""},
  };
  for (const auto& [wanted, built, why_not, device, notice] : choices) {
    INFO("--device ", std::string(wanted), ", ", std::string(built));
    const DeviceChoice choice = choose_device(wanted, built, why_not);
    CHECK(choice.device == device);
    CHECK(choice.notice == notice);
  }
  CHECK_THROWS_WITH_AS(choose_device("cuda", "OFF", absent),
                       "--device cuda: this build has no cuda; use --device cpu or auto", Error);
}

// Of no machine: what a call makes of its peak does not matter to a run that is bound by one thing alone.
const Peaks peaks{1e11, 1e10, "a test"};

void nothing() {}

// Another program on the machine can make any run look bound by something else: five tries.
Verdict verdict_on(Bound expected, const std::function<void()>& step, const std::function<void()>& load = nothing) {
  Verdict verdict{};
  for (int i = 0; i < 5; ++i) {
    verdict = diagnose(measure_step_times(load, step, 5, Device::cpu, peaks), Device::cpu);
    if (verdict.bound == expected) break;
  }
  CHECK(verdict.bound == expected);
  return verdict;
}

std::vector<std::string> flags_of(Bound bound, const Experiment& experiment) {
  return mapped(switches_for(bound, experiment), &Switch::flags);
}

TEST_CASE("a slow loader, tiny kernels, moving bytes and a matrix product: what bounds each, and the switches for it") {
  using Flags = std::vector<std::string>;
  const Tensor x = Tensor::zeros({1000}, DType::f32), tiny = Tensor::zeros({4}, DType::f32);
  const Tensor large = Tensor::zeros({int64_t{1} << 24}, DType::f32), a = Tensor::zeros({768, 768}, DType::f32);
  Tensor sum = large.clone();
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  CHECK(verdict_on(
            Bound::data, [&] { relu(x); }, nap)
            .name == "data-bound");
  verdict_on(Bound::launch, [&] {
    for (int i = 0; i < 2000; ++i) relu(tiny);
  });
  verdict_on(Bound::memory, [&] { accumulate(large, sum); });  // no allocation, which would be a gap
  verdict_on(Bound::compute, [&] { matmul(a, a); });

  Experiment slow;
  slow.loading.cache = CacheMode::none;
  slow.loading.prefetch = 0;
  slow.fuse = false;
  slow.precision = Precision::bf16;
  CHECK(flags_of(Bound::data, slow) == Flags{"--cache ram", "--prefetch 2 --workers 1"});
  CHECK(flags_of(Bound::data, Experiment()).empty());
  CHECK(flags_of(Bound::launch, Experiment()) == Flags{"--batch 256"});
  CHECK(flags_of(Bound::memory, slow) == Flags{"--fuse on", "--precision f32"});
}

TEST_CASE("the advice of techniques: what to add, what is on, what saves memory, what to leave out") {
  Json rows = Json::array();
  const auto add = [&](const char* name, const char* flags, double seconds, double bytes, bool for_memory) {
    const bool is_first = rows.size() < 2, is_default = flags == std::string("on by default");
    rows.push_back({{"name", name},
                    {"group", is_first ? "alone" : "cumulative"},
                    {"train_flags", flags},
                    {"on_by_default", is_default},
                    {"for_memory", for_memory},
                    {"seconds_all", {seconds, seconds * 1.01, seconds * 1.02}},
                    {"peak_bytes", bytes},
                    {"test_accuracy", 0.97}});
  };
  add("baseline", "", 8, 100, false);
  add("cache", "on by default", 4, 100, false);
  rows.push_back({{"name", "checkpointing"}, {"group", "alone"}, {"seconds_all", {1, 1, 1}}});  // not of the chain
  add("fast kernels", "on by default", 2, 100, false);
  add("mixed precision", "--precision bf16", 1, 60, false);
  add("accumulation", "--batch 16 --accumulate 4", 1.25, 30, true);
  add("checkpointing", "--checkpoint all", 1.5, 33, true);
  using Lines = std::vector<std::string>;
  CHECK(
      advice(rows, "train --model mlp") ==
      Lines{
          "On this machine: train --model mlp --precision bf16 (2.00 times as fast, 2.00 to 2.00; -40 % bytes).",
          "On by default: cache, fast kernels (together 4.00 times as fast, 4.00 to 4.00).",
          "To save memory: --precision bf16 --batch 16 --accumulate 4 (-70 % bytes, 1.60 times as fast, 1.60 to 1.60).",
          "Leave out: --checkpoint all (+10 % bytes), which saves no memory here."});
  rows[4]["seconds_all"] = {3, 3.03, 3.06};
  const Lines slower = advice(rows, "train");
  CHECK(slower[0] == "On this machine: train. No technique that it leaves off is faster here.");
  CHECK(slower.back().starts_with(
      "Leave out: --precision bf16 (0.67 times as fast, 0.67 to 0.67; -40 % bytes), which is slower; --checkpoint"));
  for (Json& row : rows) row["seconds_all"] = {1};
  CHECK(advice(rows, "train")[0] == "On this machine: train. None of what it leaves off is known to be faster here.");
  CHECK(advice(rows, "train")[2] ==
        "Not decided: --precision bf16 (1.00 times as fast; -40 % bytes), cannot tell: 3 runs or more would do.");
  Json busy = {{"environment", {{"load_average", 19.4}, {"cores", 2}}}}, idle = busy;
  idle["environment"]["load_average"] = 0.6;
  for (Json* record : {&busy, &idle}) put_answer(*record, {"first"});
  CHECK(busy["answer"][1].get<std::string>().starts_with("The machine was busy: a load of 19.4 on 2 cores"));
  CHECK(idle["answer"].get<Lines>() == Lines{"first"});
}

TEST_CASE("ranks: bound by communication from a tenth of training on, and the share of it that is hidden") {
  const Verdict bound = diagnose_ranks({.training = 10, .waiting = 2, .active = 8, .exposed = 2});
  CHECK(bound.bound == Bound::communication);
  CHECK(bound.name == "communication-bound");
  CHECK(bound.reason == "20.0 % of training is waiting for sums over ranks; 75 % of communication is hidden behind it");
  CHECK(bound.advice.find("--bucket-kib") != std::string::npos);
  const Verdict hidden = diagnose_ranks({.training = 10, .waiting = 0.9, .active = 9, .exposed = 0.9});
  CHECK(hidden.bound == Bound::compute);
  CHECK(hidden.name == "not communication-bound");
  CHECK(hidden.reason == "9.0 % of training is waiting for sums over ranks; 90 % of communication is hidden behind it");
  // One rank has no sums, and noise may make more of waiting than there was.
  CHECK(diagnose_ranks({.training = 10, .waiting = 0, .active = 0, .exposed = 0}).reason.starts_with("0.0 %"));
  CHECK(diagnose_ranks({.training = 10, .waiting = 2, .active = 1, .exposed = 2}).reason.find("; 0 % of") !=
        std::string::npos);
}

TEST_CASE("the work of a kernel follows from its shapes") {
  const KernelTrace trace(KernelTrace::timed);
  const Tensor a = Tensor::zeros({5, 7}, DType::f32), b = Tensor::zeros({11, 7}, DType::f32);
  matmul(a, b, {}, {.transpose_b = true});
  matmul(a, a, {}, {.transpose_a = true});
  conv2d(Tensor::zeros({2, 6, 6, 3}, DType::f32), Tensor::zeros({27, 4}, DType::f32), {});
  relu(a);
  std::vector<double> flops;
  for (const TimedCall& call : trace.timed_calls()) {
    flops.push_back(flops_of(call));
    CHECK(call.begin <= call.end);
    CHECK(call.bytes > 0);
  }
  CHECK(flops == std::vector<double>{2.0 * 5 * 11 * 7, 2.0 * 7 * 7 * 5, 2.0 * (2 * 4 * 4 * 4) * 27, 0});
}

Ended bench(const std::string& line) { return run_bench_line(line + " --device cpu"); }

TEST_CASE("profile: parts that add up to the step, and a verdict") {
  const Json record = record_of("profile --device cpu --steps 5 --batch 8 --train 200");
  const Json& profile = record["profile"];
  double parts = 0;
  for (const char* part : {"wait_ms", "gaps_ms", "tiny_ms", "memory_ms", "compute_ms"}) {
    CHECK(profile[part] >= 0);
    parts += profile[part].get<double>();
  }
  CHECK(parts == doctest::Approx(profile["step_ms"].get<double>()));
  CHECK(profile["flops"] > 0);
  CHECK(std::set<std::string>{"data-bound", "launch-bound", "memory-bound", "compute-bound"}.contains(
      record["verdict"]["name"]));
  // What it proposes it has timed.
  const std::string verdict = record["verdict"]["name"];
  CHECK(record["answer"][0].get<std::string>().starts_with(verdict + ": "));
  CHECK(record["switches"].empty() == (verdict == "data-bound"));
  for (const Json& one : record["switches"]) {
    CHECK(one["ratio"] > 0);
    CHECK(one["ratio_low"] <= one["ratio"]);
    const std::string verdict = one["verdict"], answer = record["answer"].dump();
    const char* does = verdict == "faster"   ? "Switch on: --"
                       : verdict == "slower" ? "Leave as it is: --"
                                             : "Not decided: --";
    CHECK(answer.find(does) != std::string::npos);
  }
  CHECK(bench("profile --preprocess host").code == 2);
  check_mistakes({{"profile", 2, "profile: looks at one process"}}, {.variables = {"OMPI_COMM_WORLD_SIZE=2"}});
}

TEST_CASE("profile kernels --guess: scores what is said of each call, as the shapes have it") {
  const TemporaryFolder folder;
  const std::string answers = (folder / "answers").string();
  // Pixels as floats; the first layer's pooled values with a byte each; the second's; the tensor that dropout replaces.
  write_text(answers, "196\n1690\n\n17 KiB\nab\n0\nc\n");
  const auto by_stdin = [&answers] { dup2(open(answers.c_str(), O_RDONLY), STDIN_FILENO); };
  const std::string guess =
      "profile kernels --device cpu --batch 64 --threads 1 --kernel conv2d_pool_relu_forward=direct --guess";
  const auto said = run_bench_line(guess, {.prepare = by_stdin});
  CHECK(said.code == 0);
  CHECK(said.out.find("right: +1690.0 KiB\n    + 1352.0 KiB, f32 (64, 13, 13, 32) of conv2d_pool_relu\n") !=
        std::string::npos);
  CHECK(said.out.find("no: +500.0 KiB") != std::string::npos);
  CHECK(said.out.find("right: c\n    + 400.0 KiB, f32 (64, 5, 5, 64) of dropout\n    - 400.0 KiB,") !=
        std::string::npos);
  CHECK(said.out.find("5 of 7 answers right") != std::string::npos);
  CHECK(bench(guess + " --json -").code == 2);
}

TEST_CASE("profile kernels: the step of each model from the first kernel to the update") {
  for (const std::string& model : model_names(InputKind::images)) {
    CAPTURE(model);
    const TemporaryFolder folder;
    const std::string dot = (folder / "step.dot").string();
    const Json record = record_of("profile kernels --device cpu --batch 4 --model " + model + " --dot " + dot);
    std::vector<std::string> phases;
    double flops = 0;
    for (const Json& call : record["calls"]) {
      if (phases.empty() || phases.back() != call["phase"]) phases.push_back(call["phase"]);
      CHECK(call["milliseconds"] >= 0);
      CHECK(call["live_bytes"] > 0);
      flops += call["flops"].get<double>();
    }
    CHECK(phases == std::vector<std::string>{"forward", "backward", "update"});
    CHECK(record["calls"].front()["kernel"] == "normalize_image_forward");
    const bool folds = make_model(model, 1)->parameter_count(true) > 0;
    CHECK(record["calls"].back()["kernel"] == (folds ? "fold_statistics" : "adam_step"));
    CHECK(flops > 0);
    CHECK(record["phases"].size() == 3);
    for (const Json& phase : record["phases"]) {
      double bytes = 0, by_memory = 0, by_arithmetic = 0;
      for (const Json& call : record["calls"]) {
        if (call["phase"] != phase["phase"]) continue;
        bytes += call["bytes"].get<double>();
        const double seconds_of_flops = call["flops"].get<double>() / record["peaks"]["flops_per_second"].get<double>();
        const double seconds_of_bytes = call["bytes"].get<double>() / record["peaks"]["bytes_per_second"].get<double>();
        (seconds_of_flops > seconds_of_bytes ? by_arithmetic : by_memory) += call["milliseconds"].get<double>();
      }
      CHECK(phase["bytes"] == doctest::Approx(bytes));
      CHECK(phase["milliseconds_memory_bound"] == doctest::Approx(by_memory));
      CHECK(phase["milliseconds_compute_bound"] == doctest::Approx(by_arithmetic));
      CHECK(phase["milliseconds"] >= phase["milliseconds_in_kernels"]);
    }
    const std::string graph = read_text(dot);
    CHECK(graph.starts_with("digraph step {"));
    CHECK(graph.find("softmax_cross_entropy") != std::string::npos);
    CHECK(graph.ends_with("}\n"));
  }
  CHECK(bench("profile kernels --dot /nonexistent/x.dot").code == 4);
  for (const char* command : {"profile kernels", "profile"}) {
    check_one_line(bench(std::string(command) + " --model mlp --blocks 3"), 2,
                   "--blocks 3: mlp has none; models with blocks: char_gpt, deep_cnn");
  }
}

TEST_CASE("profile kernels: what each kernel keeps, and what a checkpoint computes again") {
  const auto calls_of = [](const std::string& checkpoint) {
    return record_of("profile kernels --device cpu --batch 4 --model mnist_cnn --checkpoint " + checkpoint)["calls"];
  };
  const auto again = [](const json& call) { return call["recomputed"] == true; };
  const json plain = calls_of("off"), all = calls_of("all");
  CHECK(std::ranges::none_of(plain, again));
  for (size_t i = 1; i < plain.size(); ++i) {
    CHECK(plain[i]["kept_bytes"] == plain[i]["live_bytes"].get<int64_t>() - plain[i - 1]["live_bytes"].get<int64_t>());
  }
  // The kernels of forward, each once more, and no other.
  std::multiset<std::string> forward, repeated;
  for (const json& call : all) {
    if (call["phase"] == "forward") forward.insert(call["kernel"]);
    if (again(call)) {
      CHECK(call["phase"] == "backward");
      repeated.insert(call["kernel"]);
    }
  }
  CHECK(repeated.count("conv2d_pool_relu_forward") == 2);
  for (const std::string& kernel : repeated) CHECK(repeated.count(kernel) <= forward.count(kernel));
  CHECK(all.size() == plain.size() + repeated.size());
  CHECK(bench("profile kernels --checkpoint half").code == 2);
}

TEST_CASE("profile kernels --kernel: the forced variants ran, and the record says that they were forced") {
  const json record = record_of(
      "profile kernels --batch 4 --device cpu --kernel conv2d_forward=im2col --kernel conv2d_backward=im2col");
  CHECK(record["config"]["kernels"] == json({"conv2d_forward=im2col", "conv2d_backward=im2col"}));
  int convolutions = 0;
  for (const json& call : record["calls"]) {
    if (!call["kernel"].get<std::string>().starts_with("conv2d_")) continue;
    CHECK(call["variant"] == "im2col");
    ++convolutions;
  }
  CHECK(convolutions == 4);
  CHECK(record_of("profile kernels --batch 4 --device cpu --model mlp")["config"]["kernels"].empty());
  const std::string mlp = "profile kernels --batch 4 --device cpu --model mlp --kernel ";
  check_mistakes({{mlp + "gemm=eigen --kernel gemm=eigen", 2, "--kernel gemm=eigen: gemm was given a variant before"},
                  {mlp + "conv2d_forward=im2col", 2,
                   "--kernel conv2d_forward=im2col: a step of mlp never calls conv2d_forward; it calls "}});
}

}  // namespace
