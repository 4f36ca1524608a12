// halfstep-bench bench gemm, conv and ops as their users meet them, on sizes that take no time.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/bench_program.h"

namespace {

using namespace hs;
using namespace hs::test;
using nlohmann::json;

Ended bench(const std::string& line, const Surroundings& around = {}) {
  return run_bench_line(line + " --device cpu --batch 1 --rounds 3 --seconds 0", around);
}

std::set<std::string> variants_on_cpu(const KernelSlot& slot) {
  std::set<std::string> names;
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (v->device == Device::cpu) names.insert(v->name);
  }
  return names;
}

TEST_CASE("every variant is verified and timed, and shares are of measured peaks") {
  for (const std::string command : {"gemm", "conv", "ops"}) {
    CAPTURE(command);
    const Ended ended = bench("bench " + command + " --json -");
    REQUIRE_MESSAGE(ended.code == 0, ended.err);
    const json record = json::parse(ended.out);
    CHECK(record["command"] == command);
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
    }
  }
}

TEST_CASE("the commands end with a line for each kernel whose chosen variant is over 5 % slower than the fastest") {
  for (const std::string command : {"gemm", "conv", "ops"}) {
    CAPTURE(command);
    const json record = json::parse(bench("bench " + command + " --type f32 --json -").out);
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
    CHECK(record["remarks"].size() == slower.size());
    for (size_t i = 0; i < slower.size(); ++i) {
      const json& choice = record["slower_choices"][i];
      CHECK(choice["sizes"] == slower[i]);
      CHECK(choice["ratio"] > 1.05);
      const std::string line = fmt::format("{} f32 {}: {} was chosen, {} is ", choice["slot"].get<std::string>(),
                                           choice["sizes"].get<std::string>(), choice["chosen"].get<std::string>(),
                                           choice["fastest"].get<std::string>());
      CHECK(record["remarks"][i].get<std::string>().starts_with(line));
      CHECK(record["remarks"][i].get<std::string>().ends_with(" times as fast; see halfstep-bench tune kernels"));
    }
  }
}

TEST_CASE("operations are counted as two for each product") {
  const json record = json::parse(bench("bench conv --type f32 --json -").out);
  for (const json& kernel : record["kernels"]) {
    if (kernel["sizes"] != "1x26x26x32 3x3 -> 64") continue;
    CHECK(kernel["flops"] == 2.0 * 24 * 24 * 64 * 9 * 32);
    CHECK(kernel["bytes"] == 4.0 * (26 * 26 * 32 + 9 * 32 * 64 + 64 + 24 * 24 * 64));
    return;
  }
  FAIL("the layer 32 -> 64 is missing");
}

TEST_CASE("--type takes one type, and the table has a line for each variant") {
  const Ended ended = bench("bench ops --type bf16");
  REQUIRE(ended.code == 0);
  CHECK(ended.out.find("bf16") != std::string::npos);
  CHECK(ended.out.find("f32  ") == std::string::npos);
}

TEST_CASE("a wrong variant is reported and not timed") {
  const std::string library = std::string(HALFSTEP_WRONG_KERNEL);
  const Ended ended =
      bench("bench gemm --type f32", {.variables = {"ASAN_OPTIONS=verify_asan_link_order=0", "LD_PRELOAD=" + library}});
  CHECK(ended.code == 70);
  CHECK(ended.out.find("WRONG: the largest accepted is 2.0e-06; not timed") != std::string::npos);
  CHECK(ended.err.find("12 results are wrong") != std::string::npos);
}

TEST_CASE("--list and --dry-run time nothing") {
  const Ended list = bench("bench conv --list");
  REQUIRE(list.code == 0);
  for (const std::string& name : variants_on_cpu(conv2d_forward)) CHECK(contains(list.out, name));
  CHECK(contains(list.out, "1x26x26x32 3x3 -> 64"));
  const Ended plan = bench("bench conv --dry-run --type f32 --json /dev/full");
  REQUIRE_MESSAGE(plan.code == 0, plan.err);
  CHECK(contains(plan.out, "conv: 15 kernels in 1 types on cpu, 3 rounds"));
  CHECK(contains(plan.out, " minutes"));
  CHECK(contains(plan.out, " MiB"));
}

}  // namespace
