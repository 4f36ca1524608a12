// halfstep-bench tune kernels and --tuning as their users meet them, on sizes that take no time.
#include "tests/support/bench_outputs.h"

namespace {

using namespace hs::test;

const std::string quick = " --device cpu --batch 4 --rounds 3 --seconds 0 ";

// The variants of gemm in a step of mlp, in order.
std::vector<std::string> gemm_variants(const std::string& more) {
  std::vector<std::string> variants;
  const json record = record_of("profile kernels --device cpu --model mlp --batch 4 " + more);
  for (const json& call : record["calls"]) {
    if (call["kernel"] == "gemm") variants.push_back(call["variant"]);
  }
  return variants;
}

TEST_CASE("tune writes a line for each call with a choice, and later runs take the file's choices") {
  const TemporaryFolder folder;
  const std::string file = (folder / "t.tuning").string();
  for (const std::string model : {"mlp", "mnist_cnn"}) {
    for (const std::string precision : {"f32", "bf16"}) {
      const std::string of_model = " --model " + model + " --precision " + precision;
      const json record = record_of("tune kernels --out " + file + of_model + quick);
      const std::vector<std::string> lines = lines_of(read_text(file));
      CHECK(lines.front().starts_with("halfstep-tuning 1; "));
      CHECK(lines[1].starts_with("# " + model + " on synthetic digits, batch 4, " + precision + ", device cpu"));
      CHECK(lines.back() == "end");
      REQUIRE(record["calls"].size() == lines.size() - 3);
      // A product in bf16 has one variant on a CPU without AVX-512 and AMX.
      const bool has_choice = !record["calls"].empty();
      REQUIRE((has_choice || (model == "mlp" && precision == "bf16")));
      for (size_t i = 0; i < record["calls"].size(); ++i) {
        const json& call = record["calls"][i];
        CHECK(lines[i + 2] == call["call"].get<std::string>() + " = " + call["taken"].get<std::string>());
        CHECK((call["taken"] == call["chosen"] || call["taken"] == call["fastest"]));
        CHECK(call["chosen_seconds"] >= call["fastest_seconds"]);
      }
      const Ended ended = run_successfully("train --json - --device cpu --train 8 --test 4 --epochs 1 --batch 4" +
                                           of_model + " --tuning " + file);
      CHECK(contains(ended.err, "decided no call") != has_choice);
      const json run = json::parse(ended.out);
      CHECK(run["config"]["tuning"]["file"] == file);
      CHECK(run["config"]["tuning"]["sha256"].get<std::string>().size() == 64);
      CHECK(lines.front().find("; " + run["config"]["tuning"]["machine"].get<std::string>() + "; ") == 17);
    }
  }
  CHECK(folder.names() == std::set<std::string>{"t.tuning"});
}

TEST_CASE("a table changes which variants run, the same ones each time") {
  const TemporaryFolder folder;
  const std::string file = (folder / "t.tuning").string();
  const json record = record_of("tune kernels --model mlp --out " + file + quick);
  std::string text = "halfstep-tuning 1; any; a test\n";
  for (const json& call : record["calls"]) {
    const std::string name = call["call"];
    if (name.starts_with("gemm ")) text += name + " = naive\n";
  }
  write_text(file, text + "end\n");
  const std::vector<std::string> by_rank = gemm_variants(""), tuned = gemm_variants("--tuning " + file);
  REQUIRE(!by_rank.empty());
  CHECK(tuned == std::vector<std::string>(by_rank.size(), "naive"));
  CHECK(by_rank != tuned);
  CHECK(gemm_variants("--tuning " + file) == tuned);
  CHECK(gemm_variants("--tuning " + file + " --kernel gemm=" + by_rank[0])[0] == by_rank[0]);
}

TEST_CASE("every command with --tuning records the file, and says so if it decided no call") {
  const TemporaryFolder folder;
  const std::string file = (folder / "t.tuning").string();
  write_text(file, "halfstep-tuning 1; any; a test\nend\n");
  const std::string small = " --device cpu --model mlp --batch 4 ";
  for (const std::string& line :
       {"train --quiet --train 8 --test 4 --epochs 1" + small, "profile kernels" + small,
        "profile --train 8 --steps 2" + small, "techniques --quiet --train 8 --test 4 --epochs 1 --repeat 1" + small}) {
    CAPTURE(line);
    const Ended ended = run_successfully(line + "--json - --tuning " + file);
    const json tuning = json::parse(ended.out)["config"]["tuning"];
    CHECK(tuning == json{{"file", file},
                         {"sha256", "2a36d93a8c0db06982827b4707d937b1a417025e7781885da989f6906459b094"},
                         {"machine", "any"}});
    CHECK(contains(ended.err, "--tuning " + file + ": decided no call of this run; "));
    CHECK(record_of(line)["config"]["tuning"].is_null());
  }
}

TEST_CASE("mistakes") {
  const TemporaryFolder folder;
  write_text(folder / "t", "halfstep-tuning 1; any; x\ngemm cpu f32(1) = x\nend\n");  // others: tests/engine/tuning.cpp
  check_mistakes({{"train --tuning " + (folder / "t").string(), 3, "no kernel gemm=x on cpu"},
                  {"tune kernels", 2, "tune kernels: expected --out FILE"},
                  {"tune kernels --out /no/folder/t", 4, "--out"},
                  {"train --tuning /no/file", 4, "/no/file"},
                  {"profile --tuning /", 3, "/"},
                  {"profile kernels --tuning", 2, "--tuning"}});
}

}  // namespace
