// halfstep-bench judge: every variant of the plug-ins in tests/judge is refused, and the project's own are not.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>

#include "bench/judge/judge.h"
#include "source_dir.h"
#include "tests/support/bench_program.h"

namespace {

using namespace hs;
using namespace hs::bench::judge;
using namespace hs::test;

TEST_CASE("the text of a verdict: the mean ratio of all calls, or the check and its reason") {
  bench::Json verdict = {{"refused_by", nullptr}, {"device", "cpu"}, {"timed", bench::Json::array()}};
  CHECK(text_of(verdict) == "right");  // nothing of it is timed
  verdict["untimed"] = "no row of gemm says at which size";
  CHECK(text_of(verdict) == "right; not timed: no row of gemm says at which size");
  verdict.erase("untimed");
  verdict["timed"] = {{{"against", "blocked"}, {"ratio", 2}, {"ratio_low", 1.21}, {"ratio_high", 8}},
                      {{"against", "eigen"}, {"ratio", 8}, {"ratio_low", 4}, {"ratio_high", nullptr}}};
  CHECK(text_of(verdict) == "right and 4.00 times as fast as the variants that run now (2.20 to inf)");  // 2 and 8
  verdict["timed"].erase(1);
  CHECK(text_of(verdict) == "right and 2.00 times as fast as blocked (1.21 to 8.00)");
  verdict["refused_by"] = "rows";
  verdict["reason"] = "f32 gemm: off by 1";
  CHECK(text_of(verdict) == "refused by rows: f32 gemm: off by 1");
}

// The verdicts on files or SLOT=VARIANTs. Two are judged at a time, each in a session of its own.
std::vector<Ended> judged(const std::vector<std::string>& subjects, const std::string& flags) {
  std::vector<Ended> all(subjects.size());
  std::atomic<size_t> next = 0;
  const Surroundings around{.prepare =
                                [] {
                                  setsid();
                                  prctl(PR_SET_PDEATHSIG, SIGKILL);
                                },
                            .patience = 300};
  const auto work = [&] {
    for (size_t i = next++; i < subjects.size(); i = next++) {
      all[i] = run_bench_line("judge " + subjects[i] + " --quick --json - " + flags, around);
    }
  };
  std::future<void> other = std::async(std::launch::async, work);
  work();
  other.get();
  return all;
}

// The first verdict that is a refusal, or else the first one.
json verdict_of(const Ended& ended) {
  const json record = json::parse(ended.out, nullptr, false);
  REQUIRE_MESSAGE(!record.is_discarded(), ended.err);
  const json& all = record["verdicts"];
  const auto refused = std::ranges::find_if(all, [](const json& one) { return !one["refused_by"].is_null(); });
  REQUIRE(ended.code == (refused == all.end() ? 0 : 1));
  if (refused == all.end()) return all.at(0);
  CHECK(contains(ended.err, (*refused)["text"].get<std::string>()));
  return *refused;
}

// The checks that may refuse each variant of a file: "// nan_lost: NaN becomes 0. Refused by: nan|rows."
std::map<std::string, std::string> checks_of(const fs::path& file) {
  std::map<std::string, std::string> checks;
  const std::string mark = " Refused by: ";
  for (const std::string& line : lines_of(read_text(file))) {
    const size_t at = line.find(mark), begin = at + mark.size();
    if (at == std::string::npos) continue;
    checks[line.substr(3, line.find(':') - 3)] = "|" + line.substr(begin, line.rfind('.') - begin) + "|";
  }
  return checks;
}

TEST_CASE("every cheat is refused, by a check that the line before it names") {
  std::vector<std::string> plugins;
  std::map<std::string, std::string> wanted;
  for (const auto& entry : fs::directory_iterator(HALFSTEP_SOURCE_DIR "/tests/judge/cheats")) {
    plugins.push_back(fmt::format("{}/{}.so", HALFSTEP_CHEATS, entry.path().stem().string()));
    wanted.merge(checks_of(entry.path()));
  }
  CHECK(wanted.size() >= 22);
  for (const Ended& ended : judged(plugins, "--seed 44")) {
    const json record = json::parse(ended.out, nullptr, false);
    REQUIRE_MESSAGE(!record.is_discarded(), ended.err);
    CHECK(ended.code == 1);
    for (const json& verdict : record["verdicts"]) {
      const std::string name = verdict["variant"], text = verdict["text"];
      const std::string check = verdict["refused_by"].is_null() ? "nothing" : verdict["refused_by"].get<std::string>();
      CHECK_MESSAGE(contains(wanted[name], "|" + check + "|"), name, ": ", text);
      CHECK(contains(ended.err, text) == !verdict["refused_by"].is_null());
      wanted.erase(name);
    }
  }
  CHECK(wanted.empty());
}

// Of this CPU: those that are named as an instruction set need it.
std::vector<std::string> own_variants() {
  const json info = record_of("info");
  std::vector<std::string> names;
  for (const auto& [slot, variants] : info["kernels"].items()) {
    for (const json& variant : variants) {
      const std::string name = variant["variant"];
      const bool is_unit = name == "amx" || name.starts_with("avx512_") || name.starts_with("neon_");
      const auto has = [&](const json& feature) { return feature.get<std::string>().starts_with(name); };
      if (variant["device"] != "cpu" || (is_unit && std::ranges::none_of(info["environment"]["cpu_features"], has)))
        continue;
      names.push_back(slot + "=" + name);
    }
  }
  return names;
}

// A sixth of them. HALFSTEP_JUDGE_ALL=3 judges all of them three times, with other numbers each time.
TEST_CASE("the project's own variants are right") {
  constexpr size_t groups = 6;
  const std::vector<std::string> names = own_variants();
  CHECK(names.size() >= 60);
  const char* times = std::getenv("HALFSTEP_JUDGE_ALL");
  std::vector<std::string> some;
  for (size_t i = 0; !times && i < names.size(); i += groups) {
    some.push_back(names[i]);
  }
  for (int i = 0; times && i < std::stoi(times); ++i) some.insert(some.end(), names.begin(), names.end());
  const std::vector<Ended> all = judged(some, times ? "" : "--seed 44");
  for (size_t i = 0; i < all.size(); ++i) {
    const json verdict = verdict_of(all[i]);
    CHECK_MESSAGE(verdict["refused_by"].is_null(), some[i], ": ", verdict["text"].get<std::string>(), "; ", all[i].err);
  }
}

TEST_CASE("a record of the judge is shown again, whatever the verdict") {
  const TemporaryFolder folder;
  const Surroundings around{.folder = folder.path};
  fs::copy_file(HALFSTEP_CHEATS "/softmax.so", folder / "softmax.so");
  CHECK(run_bench_line("judge softmax.so --quick --json refused.json", around).code == 1);  // a relative name
  const json refused = json::parse(read_text(folder / "refused.json"));
  REQUIRE(refused["plugins"].size() == 1);
  CHECK(refused["plugins"][0]["file"] == "softmax.so");
  CHECK(refused["plugins"][0]["sha256"].get<std::string>().size() == 64);
  CHECK(contains(refused["plugins"][0]["variants"].dump(), "\"softmax_forward=overflow (cpu)\""));
  run_successfully("judge begin_step=simple --quick --json right.json", around);
  CHECK_FALSE(json::parse(read_text(folder / "right.json")).contains("plugins"));
  for (const std::string file : {"refused.json", "right.json"}) {
    const std::string text = json::parse(read_text(folder / file))["verdicts"][0]["text"];
    CHECK(contains(run_bench_line("report " + file, around).out, text));
    run_successfully("report " + file + " --csv verdict.csv --html page.html", around);
    CHECK(contains(read_text(folder / "page.html"), text));
  }
}

TEST_CASE("what cannot be judged is refused in one line, with the exit code of its kind") {
  const TemporaryFolder folder;
  const std::string good = read_text(HALFSTEP_CHEATS "/relu.so"), stamp = "halfstep plug-in for ";
  write_text(folder / "exists.cpp",
             "#include <halfstep/kernel.h>\nnamespace hs {\nvoid run(const ReluForward&) {}\n"
             "REGISTER_KERNEL(relu_forward, cpu, \"simple\", {.run = run});\n}\n");
  write_text(folder / "version.so",
             std::string(good).replace(good.find(stamp), stamp.size(), "halfstep plug-in for 9"));
  check_mistakes({{"judge nowhere.so", 4, " nowhere.so: cannot be opened: No such file"},
                  {"judge version.so", 3, " version.so: was built for version and ABI 90"},
                  {"judge exists.cpp", 2, " exists.cpp: relu_forward has a variant simple for cpu already"},
                  {"judge nonsense=nothing", 2, "judge nonsense=nothing: expected a plug-in's file, or SLOT=VARIANT"},
                  {"judge gemm=nothing", 2, "judge gemm=nothing: gemm has no variant of this name"},
                  {"judge relu_forward=simple --against nothing", 2,
                   "--against nothing: relu_forward has no variant of this name"}},
                 {.folder = folder.path, .variables = {"TMPDIR=" + folder.path.string()}});
  CHECK(folder.names().size() == 2);  // nothing was left behind
}

}  // namespace
