// The tables of bench/experiment: from made-up records, and from records of the program.
#include <tuple>

#include "tests/support/bench_experiments.h"

namespace {

using namespace hs::test;

constexpr const char* begin_mark = "<!-- experiment:s begin -->\n";
constexpr const char* end_mark = "<!-- experiment:s end -->\n";

TEST_CASE("a table has medians, ranges, ratios by seed, the target and the claim, and names what is missing") {
  if (!has_python3()) return;
  const Workshop shop;
  const fs::path page = shop.folder / "page.md";
  const std::string tables = "--tables " + page.string();
  shop.write("page.md", std::string("before\n") + begin_mark + "old\n" + end_mark + "after\n");
  REQUIRE(shop.run(tables).code == 0);
  CHECK(read_text(page) == std::string("before\n") + begin_mark +
                               "**A title**\n\nNot measured yet: `base`, `half`, `peer`.\n" + end_mark + "after\n");

  // Seconds 4, 8, 6 and 2, 2, 1: the median of the ratios 2, 4, 6 is not the ratio of the medians, 3.
  for (const auto& [seed, base, half, accuracy] :
       {std::tuple(1, 4.0, 2.0, 0.5), {2, 8.0, 2.0, 0.25}, {3, 6.0, 1.0, 1.0}}) {
    shop.record("base", seed, record_with(seed, "f32", base, 0.25));
    shop.record("half", seed, record_with(seed, "bf16", half, accuracy));
  }
  json peer = record_with(2, "f32", 4, 0.5);
  peer["schema"] = "halfstep-peer-1";
  peer["environment"] = {{"cpu", "C"}, {"cores", 2}, {"torch", "2.9"}};
  peer["rows"][0].update({{"train", 64}, {"test", 16}, {"epochs", 2}, {"context", 10}});
  peer["rows"][0].erase("peak_bytes");
  shop.record("peer", 2, peer);
  const std::string expected =
      "**A title**\n\n"
      "| row | what | s per epoch | times as fast | % test accuracy | epochs to the target | s of training to the "
      "target | tokens/s | peak MiB | times less memory | nats validation loss | ms per step |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
      "| base | the recipe, but precision f32, lr 0.1 | 3.00 (2.00 .. 4.00) | 1 | 25.00 | not reached | not reached | "
      "213 (160 .. 320) | 4.0 | 1 | 1.500 | 750.0 (500.0 .. 1000.0) |\n"
      "| half | `base`, but precision bf16 | 1.00 (0.50 .. 1.00) | 4.00 (2.00 .. 6.00) | 50.00 (25.00 .. 100.00) | "
      "2 (1 .. 2), 2 of 3 runs | 1.2 (0.5 .. 2.0), 2 of 3 runs | 640 (640 .. 1280) | 2.0 | 2.00 | 1.500 | "
      "250.0 (125.0 .. 250.0) |\n"
      "| peer | the recipe in PyTorch, but channels-last | 2.00 | 0.50 | 50.00 | 2 | 4.0 | 320 | - | - | 1.500 | "
      "500.0 |\n\nAll rows: epochs 2, train 64, test 16. Compared seed by seed: half with `base`; peer with `half`. "
      "The target is a test accuracy of 50 %.\n"
      "On 2 cores of C; halfstep abc, GCC 1; PyTorch 2.9.\n\n"
      "| the article | here |\n|---|---|\n| 3 times | `half`: 4.00 (2.00 .. 6.00) times as fast |\n\n"
      "Not measured yet: `peer` (seeds 1, 3).\n";
  check_refused(shop.run(tables + " --check"), 1, "page.md: the table of s is not that of the records");
  REQUIRE(shop.run(tables).code == 0);
  CHECK(read_text(page) == std::string("before\n") + begin_mark + expected + end_mark + "after\n");
  CHECK(shop.run(tables + " --check").code == 0);
  CHECK(shop.folder.names() == std::set<std::string>{"page.md", "program", "python", "records", "sheets"});
}

TEST_CASE("a table refuses records that are not of its sheet, and pages without its place") {
  if (!has_python3()) return;
  const Workshop shop;
  const std::string tables = "--tables " + (shop.folder / "page.md").string(), mark = begin_mark;
  const auto refused = [&](const std::string& text, int code, const std::string& part) {
    shop.write("page.md", text);
    check_refused(shop.run(tables), code, part);
    CHECK(read_text(shop.folder / "page.md") == text);
  };
  check_refused(shop.run(tables), 4, "page.md: No such file");
  refused("nothing\n", 3, "has no line <!-- experiment:NAME begin -->");
  refused(mark, 3, "expected once <!-- experiment:s begin -->, and once <!-- experiment:s end --> after it");
  refused(end_mark + mark, 3, "after it");
  refused(mark + end_mark + mark + end_mark, 3, "expected once");
  refused("<!-- experiment:none begin -->\n<!-- experiment:none end -->\n", 2, "none: no sheet of this name");

  const std::pair<void (*)(json&), const char*> damages[] = {
      {[](json& r) { r["config"]["precision"] = "f16"; }, "precision is f16, expected f32 as in the sheet; delete it"},
      {[](json& r) { r["config"]["learning_rate"] = 0.2; }, "learning-rate is 0.2, expected 0.1"},
      {[](json& r) { r["config"]["epochs"] = 3; }, "epochs is 3, expected 2"},
      {[](json& r) { r["data"]["train"] = 640; }, "train is 640, expected 64"},
      {[](json& r) { r["rows"][0]["runs"][0]["seed"] = 2; }, "seed is 2, expected 1"},
      {[](json& r) { r["rows"] = json::array(); }, "is not the record of one run of train"},
      {[](json& r) { r["rows"][0].erase("runs"); }, "is not the record of one run of train"},
      {[](json& r) { r = json::array(); }, "is not a JSON object"},
  };
  for (const auto& [damage, message] : damages) {
    json record = record_with(1, "f32", 1, 0.5);
    damage(record);
    shop.record("base", 1, record);
    refused(mark + end_mark, 3, message);
  }
  fs::remove(shop.records / "s/base-seed1.json");
  shop.record("other", 1, record_with(1, "f32", 1, 0.5));
  refused(mark + end_mark, 3, "other-seed1.json: is the record of no row of the sheet");
}

TEST_CASE("a table reads what the program records") {
  if (!has_python3()) return;
  const Workshop shop;
  fs::create_directories(shop.folder / "set");
  std::ofstream text(shop.folder / "set/input.txt");
  for (int i = 0; i < 60; ++i) text << "to be, or not to be, that is the question: ";
  text.close();
  shop.write("sheets/s.json",
             R"({"title": "Text", "recipe": "bench/recipes/tinyshakespeare.json", "data": "set", "seeds": 1,
    "flags": {"epochs": 2, "train": 64, "test": 4, "context": 16, "batch": 16, "warmup": 1}, "baseline": "a",
    "columns": ["tokens_per_second", "ratio peak_mib", "test_loss"],
    "rows": [{"name": "a"}, {"name": "b", "flags": {"accumulate": 2, "scale-lr": 16, "checkpoint": "all"}}]})");
  run_successfully(
      fmt::format("experiment {} s --data {} --program {}", shop.flags(), shop.folder.path.string(), bench_program()));
  shop.write("page.md", std::string(begin_mark) + end_mark);
  const Ended made = shop.run("--tables " + (shop.folder / "page.md").string());
  REQUIRE_MESSAGE(made.code == 0, made.err);
  const std::string page = read_text(shop.folder / "page.md");
  CHECK_FALSE(contains(page, "Not measured yet"));
  CHECK(contains(page, "| b | the recipe, but accumulate 2, scale-lr 16, checkpoint all | "));
}

}  // namespace
