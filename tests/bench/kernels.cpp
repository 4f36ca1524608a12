// halfstep-bench bench gemm, conv and ops as their users meet them, on sizes that take no time.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/conv2d/conv2d.h"
#include "kernels/examples/checks.h"
#include "kernels/gemm/gemm.h"
#include "source_dir.h"
#include "tests/support/bench_outputs.h"

namespace {

using namespace hs;
using namespace hs::test;

const std::string brief = " --device cpu --batch 1 --rounds 3 --seconds 0";
Ended bench(const std::string& line, const Surroundings& around = {}) { return run_bench_line(line + brief, around); }

std::set<std::string> variants_on_cpu(const KernelSlot& slot) {
  std::set<std::string> names;
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (v->device == Device::cpu) names.insert(v->name);
  }
  return names;
}

// Each kernel whose chosen variant is over 5 % slower than the fastest has a line at the end.
void check_slower_choices(const json& record) {
  std::vector<json> slower;
  for (const json& kernel : record["kernels"]) {
    double chosen = 0, fastest = INFINITY;
    for (const json& variant : kernel["variants"]) {
      const double warm = variant["warm_seconds"];
      fastest = std::min(fastest, warm);
      if (variant["variant"] == kernel["chosen"]) chosen = warm;
    }
    if (chosen > 1.05 * fastest) slower.push_back(kernel["sizes"]);
  }
  REQUIRE(record["slower_choices"].size() == slower.size());
  REQUIRE(record["remarks"].size() == slower.size());
  for (size_t i = 0; i < slower.size(); ++i) {
    const json& choice = record["slower_choices"][i];
    const auto text = [&](const char* member) { return choice[member].get<std::string>(); };
    CHECK(choice["sizes"] == slower[i]);
    CHECK(choice["ratio"] > 1.05);
    const std::string line = fmt::format("{} {} {}: {} was chosen, {} is ", text("slot"), text("type"), text("sizes"),
                                         text("chosen"), text("fastest"));
    CHECK(record["remarks"][i].get<std::string>().starts_with(line));
    CHECK(record["remarks"][i].get<std::string>().ends_with(" times as fast; see halfstep-bench tune kernels"));
  }
}

TEST_CASE("every variant is verified and timed, and shares are of measured peaks") {
  for (const std::string command : {"gemm", "conv", "ops"}) {
    CAPTURE(command);
    const json record = record_of("bench " + command + brief);
    CHECK(record["command"] == "bench " + command);
    CHECK(record["peaks"]["flops_per_second"] > 0);
    CHECK(record["peaks"]["bytes_per_second"] > 0);
    std::set<std::string> seen;
    for (const json& kernel : record["kernels"]) {
      CAPTURE(kernel["sizes"].get<std::string>());
      REQUIRE(!kernel["variants"].empty());
      bool has_chosen = false;
      for (const json& variant : kernel["variants"]) {
        seen.insert(variant["variant"]);
        has_chosen = has_chosen || variant["variant"] == kernel["chosen"];
        CHECK(variant["wrong"] == false);
        CHECK(variant["rounds"] == 3);
        const double warm = variant["warm_seconds"];
        CHECK(variant["warm_seconds_range"][0] <= warm);
        CHECK(variant["warm_seconds_range"][1] >= warm);
        CHECK(variant["cold_seconds"] > 0);
        const double flops = kernel["flops"], peak = record["peaks"]["flops_per_second"];
        CHECK(variant["share_of_peak_flops"].get<double>() == doctest::Approx(flops / warm / peak));
      }
      CHECK(has_chosen);
    }
    if (command == "gemm") {  // AMX is not on every machine
      for (const char* name : {"eigen", "blocked"}) CHECK(seen.contains(name));
      for (const std::string& name : seen) CHECK(variants_on_cpu(gemm).contains(name));
    }
    if (command == "conv") {
      for (const char* name : {"im2col", "direct"}) CHECK(seen.contains(name));
      for (const std::string& name : seen) CHECK(variants_on_cpu(conv2d_forward).contains(name));
      const auto layer =
          std::ranges::find(record["kernels"], "1x26x26x32 3x3 -> 64", [](const json& k) { return k["sizes"]; });
      REQUIRE(layer != record["kernels"].end());
      CHECK((*layer)["flops"] == 2.0 * 24 * 24 * 64 * 9 * 32);  // two for each product
      CHECK((*layer)["bytes"] == 4.0 * (26 * 26 * 32 + 9 * 32 * 64 + 64 + 24 * 24 * 64));
    }
    check_slower_choices(record);
  }
}

// The block of docs/add_a_kernel.md that is this file.
std::string block(const std::string& path) {
  const std::string page = read_text(std::filesystem::path(HALFSTEP_SOURCE_DIR) / "docs/add_a_kernel.md");
  const std::string head = "<!-- file: " + path + " -->\n```cpp\n";
  const size_t begin = page.find(head);
  REQUIRE(begin != std::string::npos);
  return page.substr(begin + head.size(), page.find("```\n", begin + head.size()) - begin - head.size());
}

// A folder with my_relu.cpp, the page's plug-in, and others that a test makes of it.
struct Plugins {
  const TemporaryFolder folder;
  const std::string source = block("my_relu.cpp");
  Plugins() { write("my_relu.cpp", source); }
  void write(const std::string& name, const std::string& text) const { write_text(folder / name, text); }
  // The text, or that of a file, with one place changed.
  static std::string changed(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  }
  Surroundings around() const { return {.folder = folder.path, .variables = {"TMPDIR=" + folder.path.string()}}; }
  Ended run(const std::string& line) const { return run_bench_line(line, around()); }
};

const std::string short_training = "train --fuse off --train 64 --test 8 --epochs 1 --quiet --device cpu";

TEST_CASE("a plug-in is built from one file, verified, timed, trained with, and named by the records") {
  const Plugins plugins;
  const Ended built = plugins.run("kernel build my_relu.cpp");
  REQUIRE_MESSAGE(built.code == 0, built.err);
  CHECK(built.out.starts_with("my_relu.so: built in "));
  const json timed = record_of("bench ops --type f32 --plugin my_relu.so" + brief, plugins.around());
  REQUIRE(timed["plugins"].size() == 1);
  CHECK(timed["plugins"][0]["file"] == "my_relu.so");
  CHECK(timed["plugins"][0]["sha256"].get<std::string>().size() == 64);
  CHECK(timed["plugins"][0]["variants"] == json({"relu_forward=my_relu (cpu)"}));
  const auto relu = std::ranges::find(timed["kernels"], "relu_forward", [](const json& k) { return k["slot"]; });
  REQUIRE(relu != timed["kernels"].end());
  CHECK((*relu)["chosen"] == "my_relu");
  CHECK((*relu)["variants"].size() == 2);
  const json with = record_of(short_training + " --plugin my_relu.so", plugins.around());
  CHECK(with["kernels"]["relu_forward"] == "my_relu");
  // A source is built first, which leaves nothing behind, and gives the same bytes.
  const json forced =
      record_of(short_training + " --plugin my_relu.cpp --kernel relu_forward=my_relu", plugins.around());
  CHECK(forced["plugins"] == with["plugins"]);
  const json without = record_of(short_training, plugins.around());
  CHECK_FALSE(without.contains("plugins"));
  for (const json* one : {&with, &forced}) {
    CHECK((*one)["rows"][0]["weights_sha256"] == without["rows"][0]["weights_sha256"]);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(plugins.folder.path), {}) == 2);
}

TEST_CASE("a wrong variant is reported and not timed") {
  const Plugins plugins;
  plugins.write("my_relu.cpp", Plugins::changed(plugins.source, "x <= 0", "x <= 1"));
  const Ended ended = bench("bench ops --type f32 --plugin my_relu.cpp", plugins.around());
  CHECK(ended.code == 70);
  CHECK(contains(ended.out, "WRONG: cpu f32 "));
  CHECK(contains(ended.out, " with relu_forward=my_relu, "));
  CHECK(contains(ended.err, "1 results are wrong"));
}

// Products of which one adds in another order than the project's, and one rounds its sums to 18 bits, which the rows'
// bounds see and the norm of a call may not.
const std::string sums = R"(#include <halfstep/kernel.h>
namespace hs {
namespace {
bool is_plain(const Gemm& call) {
  const GemmOptions& o = call.options;
  return !o.transpose_a && !o.transpose_b && o.beta == 0 && o.epilogue == Epilogue::none && is_f32(call.a) &&
         is_f32(call.c) && call.a.size() * call.c.shape()[1] < 2'000'000;
}
template <class Add>
void multiply(const Gemm& call, const Add& add) {
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[1];
  for (int64_t i = 0; i < M * N; ++i) {
    float sum = 0;
    for (int64_t k = K - 1; k >= 0; --k) {
      sum = add(sum, call.a.data<float>()[i / N * K + k] * call.b.data<float>()[k * N + i % N]);
    }
    call.c.mutable_data<float>()[i] =
        call.options.alpha * sum + (call.bias.defined() ? call.bias.data<float>()[i % N] : 0);
  }
}
void backwards(const Gemm& call) {
  multiply(call, [](float sum, float product) { return sum + product; });
}
REGISTER_KERNEL(gemm, cpu, "backwards", {.run = backwards, .supported = is_plain, .rank = -1, .layout = "rows"});
void eighteen_bits(const Gemm& call) {
  multiply(call, [](float sum, float product) { return (sum + product) * 64 - (sum + product) * 63; });
}
REGISTER_KERNEL(gemm, cpu, "eighteen_bits", {.run = eighteen_bits, .supported = is_plain, .rank = -1, .layout = "rows"});
}  // namespace
}  // namespace hs
)";

TEST_CASE("tests, bench, tune and judge call the same variant right, and the same one wrong, by the bounds of rows") {
  const Plugins plugins;
  plugins.write("sums.cpp", sums);
  plugins.write("right.cpp", sums.substr(0, sums.find("void eighteen_bits")) + "}\n}\n");
  for (const char* source : {"sums.cpp", "right.cpp"}) {
    REQUIRE(plugins.run(std::string("kernel build ") + source).code == 0);
  }
  const Ended timed = bench("bench gemm --type f32 --json - --plugin sums.so", plugins.around());
  CHECK(timed.code == 70);
  for (const json& kernel : json::parse(timed.out)["kernels"]) {
    for (const json& variant : kernel["variants"]) CHECK(variant["wrong"] == (variant["variant"] == "eighteen_bits"));
  }
  const std::string tune = "tune kernels --fuse off --device cpu --model mlp --batch 4 --rounds 3 --seconds 0 --out ";
  const Ended tuned = plugins.run(tune + "a.tuning --plugin sums.so");
  CHECK(tuned.code == 70);
  CHECK_MESSAGE(contains(tuned.err, "gemm=eighteen_bits (f32 "), tuned.err);
  CHECK(contains(tuned.err, " with gemm=eighteen_bits, output: "));
  const Ended right = plugins.run(tune + "b.tuning --plugin right.so");
  CHECK_MESSAGE(right.code == 0, right.err);

  const Ended judged = plugins.run("judge sums.so --quick --json -");
  const json verdicts = json::parse(judged.out)["verdicts"];
  for (const json& verdict : verdicts) {
    const bool is_right = verdict["variant"] == "backwards";
    CHECK_MESSAGE(verdict["refused_by"].is_null() == is_right, verdict["text"].get<std::string>());
  }
  REQUIRE(::dlopen((plugins.folder / "sums.so").c_str(), RTLD_NOW) != nullptr);
  const examples::RowFailures& failures = examples::row_failures(gemm, Device::cpu, DType::f32);
  REQUIRE(failures.size() == 1);
  CHECK(contains(failures.at("eighteen_bits"), " with gemm=eighteen_bits, output: "));
}

TEST_CASE("a whole op in a plug-in brings its rows and its sizes to time: the page's, in one file") {
  const Plugins plugins;
  std::string text = "#include <halfstep/kernel.h>\n";
  for (const char* file : {"leaky_relu.h", "leaky_relu.cpp", "rows.cpp"}) {
    for (const std::string& line : lines_of(block(std::string("kernels/leaky_relu/") + file))) {
      if (!line.starts_with("#") && !contains(line, "check(")) text += line + "\n";
    }
  }
  plugins.write("leaky_relu.cpp", text);
  const Ended ended = bench("bench ops --type f32 --plugin leaky_relu.cpp", plugins.around());
  CHECK_MESSAGE(ended.code == 0, ended.err);
  for (const char* slot : {"leaky_relu_forward", "leaky_relu_backward"}) CHECK(contains(ended.out, slot));
}

TEST_CASE("a .cu file is built by nvcc or for the emulator, and refused by a program that has neither") {
  const Plugins plugins;
  std::string text = "#include <halfstep/kernel.h>\n";
  for (std::string line : lines_of(read_text(std::filesystem::path(HALFSTEP_SOURCE_DIR) / "kernels/relu/relu.cu"))) {
    if (contains(line, "\"simple\""))
      line = Plugins::changed(line, "simple", "mine");  // of the same rank, and before it
    if (!line.starts_with("#")) text += line + "\n";
  }
  plugins.write("mine.cu", text);
  const Ended built = plugins.run("kernel build mine.cu");
  const std::string cuda = record_of("info")["environment"]["cuda"];
  if (cuda == "OFF")
    return check_one_line(built, 2, "mine.cu: this build has no CUDA; one with -D HALFSTEP_CUDA=ON or ");
  REQUIRE_MESSAGE(built.code == 0, built.err);
  if (cuda.starts_with("ON")) {  // for what the library is compiled for, where nvcc finds no device
    const std::string code = read_text(plugins.folder / "mine.so");
    if (!is_available(Device::cuda)) CHECK((contains(code, "sm_80") && contains(code, "sm_90")));
    return;  // there may be no device
  }
  const std::string training =
      "train --device cuda --fuse off --train 8 --test 8 --batch 8 --epochs 1 --quiet --plugin ";
  const json kernels = record_of(training + "mine.so", plugins.around())["kernels"];
  CHECK(kernels["relu_forward"] == "mine");
  CHECK(kernels["relu_backward"] == "mine");
}

TEST_CASE("what is no plug-in for this program is refused in one line, with the exit code of its kind") {
  const Plugins plugins;
  REQUIRE(plugins.run("kernel build my_relu.cpp").code == 0);
  const std::string good = read_text(plugins.folder / "my_relu.so"), stamp = "halfstep plug-in for ";
  const std::string version = good.substr(good.find(stamp) + stamp.size(), 22);
  plugins.write("none.cpp", "#include <halfstep/kernel.h>\n");
  plugins.write("exists.cpp", Plugins::changed(plugins.source, "\"my_relu\"", "\"simple\""));
  plugins.write("header.cpp", Plugins::changed(plugins.source, "REGISTER_KERNEL(", "REGISTER_KERNEL(hs::"));
  plugins.write("unknown.cpp", Plugins::changed(plugins.source, "relu_forward", "relu_forwards"));
  plugins.write("own.cpp", Plugins::changed(plugins.source, "namespace hs {",
                                            "namespace own {\nusing namespace hs;\n"
                                            "Kernel<ReluForward> relu_forward{\"relu_forward\"};"));
  const auto with = [&](const std::string& name, const std::string& more) {
    plugins.write(name, "#include <cstdlib>\n" + plugins.source + more);
  };
  with("throws.cpp", "static const int thrown = [] { return throw 1, 0; }();\n");
  with("ends.cpp", "static const int none = [] { return std::_Exit(0), 0; }();\n");
  with("null.cpp",
       "namespace hs { REGISTER_KERNEL(relu_forward, cpu, nullptr, {.run = [](const ReluForward&) {}}); }\n");
  with("line.cpp",
       "namespace hs { REGISTER_KERNEL(relu_forward, cpu, \"a\\nb\", {.run = [](const ReluForward&) {}}); }\n");
  std::string many;
  for (int i = 0; i < 100; ++i) {
    many += fmt::format("namespace hs {{\nREGISTER_KERNEL(relu_forward, cpu, \"n{}\", {{.run = my_relu}});\n}}\n", i);
  }
  with("many.cpp", many);
  plugins.write("fails.cpp",
                Plugins::changed(plugins.source, "call) {\n", "call) {\n  if (call.x.size() > 0) throw 1;\n"));
  plugins.write("@name.cpp", plugins.source);
  plugins.write("cut.so", good.substr(0, good.size() - 1));
  plugins.write("text.so", plugins.source);
  plugins.write("version.so", Plugins::changed(good, stamp, "halfstep plug-in for 9"));
  plugins.write("abi.so", Plugins::changed(good, version, version.substr(0, version.size() - 1) + "x"));
  plugins.write("stampless.so", Plugins::changed(good, stamp, "halfstep plug-ins for"));
  plugins.write("folder.cu", plugins.source);
  std::filesystem::create_directory(plugins.folder / "folder.so");
  const std::string train = "train --plugin ";
  check_mistakes(
      {{train + "nowhere.so", 4, "nowhere.so: cannot be opened: No such file"},
       {train + "nowhere.cpp", 4, "nowhere.cpp: cannot be opened: No such file"},
       {train + "folder.so", 3, "folder.so: a folder, expected a regular file"},
       {train + "text.so", 3, "text.so: is no whole shared object; halfstep-bench kernel build makes one"},
       {train + "cut.so", 3, "cut.so: is no whole shared object"},
       {train + "stampless.so", 3, "stampless.so: is no plug-in; expected what halfstep-bench kernel build makes"},
       {train + "version.so", 3, "version.so: was built for version and ABI 90"},
       {train + "abi.so", 3, "x, and this program has "},
       {train + "my_relu.so --plugin my_relu.so", 2, "my_relu.so: is loaded already; give it once"},
       {train + "none.cpp", 2, "none.cpp: registers no kernel; expected REGISTER_KERNEL("},
       {train + "exists.cpp", 2, "exists.cpp: relu_forward has a variant simple for cpu already"},
       {train + "own.cpp", 2, "own.cpp: declares a slot relu_forward, and there is one"},
       {train + "throws.cpp", 2, "throws.cpp: its static objects ended the program while it was loaded, by signal 6"},
       {train + "ends.cpp", 2, "ends.cpp: its static objects ended the program while it was loaded, by exit(0)"},
       {train + "null.cpp", 2, "null.cpp: registers a name \"\"; expected a to z, 0 to 9 and _"},
       {train + "line.cpp", 2, "line.cpp: registers a name \"a\\x0ab\"; expected a to z, 0 to 9 and _"},
       {train + "many.cpp", 2, "many.cpp: registers 101 variants, at most 100"},
       {short_training + " --plugin fails.cpp", 70, "; a plug-in is loaded, fails.so: report it to its author first"},
       {"kernel build unknown.cpp", 2, "unknown.cpp:11:17: error: "},
       {"kernel build header.cpp", 2, "header.cpp:11"},
       {"kernel build my_relu.so", 2, "my_relu.so: expected a .cpp or a .cu file"},
       {"kernel build my_relu.cpp --output nowhere/my_relu.so", 4, "nowhere/my_relu.so: cannot be written"}},
      plugins.around());
  CHECK(plugins.run("kernel build @name.cpp").code == 0);
  for (const std::string& variable : {std::string("CXX=nowhere"), std::string("PATH=/nowhere")}) {
    check_mistakes({{"kernel build my_relu.cpp", 2, "my_relu.cpp: no compiler was found, of "}},
                   {.folder = plugins.folder.path, .variables = {variable}});
  }
  check_mistakes({{"kernel build my_relu.cpp", 2, "cannot find -lnowhere"}},
                 {.folder = plugins.folder.path, .variables = {"LDLIBS=-lnowhere"}});
}

TEST_CASE("a run that was saved with a plug-in continues with the same one, and its recipe asks for it") {
  const Plugins plugins;
  record_of(short_training + " --save run --plugin my_relu.cpp", plugins.around());
  check_mistakes(
      {{"train --resume run --epochs 2", 2, "its run had code of its own, which is run only if it is named"}},
      plugins.around());
  const std::string resume = "train --resume run --plugin my_relu.cpp --epochs ";
  CHECK(record_of(resume + "2 --quiet", plugins.around())["plugins"][0]["file"] == "my_relu.so");
  plugins.write("record.json", record_of(short_training + " --plugin my_relu.cpp", plugins.around()).dump());
  record_of(short_training + " --save other", plugins.around());
  plugins.write("my_relu.cpp", Plugins::changed(plugins.source, ".rank = 10", ".rank = 11"));
  check_mistakes({{resume + "3", 5, "is another run: plugins was my_relu.so "},
                  {"train --resume other --plugin my_relu.cpp", 5, "plugins was not saved, now my_relu.so "},
                  {"train --recipe record.json", 2, "had kernels of plug-ins, which its plugins name; give --plugin"}},
                 plugins.around());
}

}  // namespace
