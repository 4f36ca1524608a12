// Faults of records and of command lines: files that are no records, records that want to break what shows them, flags
// that are misspelt. Those of processes and outputs are in test_bench_faults.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "data/formats/idx.h"
#include "data/formats/image_file.h"
#include "source_dir.h"
#include "tests/support/bench_faults.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace hs::test;
using Json = nlohmann::ordered_json;

const std::string committed = HALFSTEP_SOURCE_DIR "/bench/results/cpu/";
Json record(const std::string& file) { return Json::parse(read_text(committed + file)); }
void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
// A file of 6 GiB that takes no room. False if the file system has none such.
bool make_sparse(const fs::path& path) {
  write(path, "{");
  std::error_code error;
  fs::resize_file(path, uintmax_t{6} << 30, error);
  return !error;
}

// How a record is read.
const Words report = {"report", "r.json"}, json = {"report", "r.json", "--json", "out"},
            html = {"report", "r.json", "--html", "out"}, md = {"report", "r.json", "--md", "out"},
            csv = {"report", "r.json", "--csv", "out"}, readme = {"report", "r.json", "--readme", "README.md"},
            before = {"compare", "r.json", "good.json"}, after = {"compare", "good.json", "r.json", "--json", "out"};
const std::vector<Words> everywhere = {report, json, html, md, csv, readme, before, after};

// Where AddressSanitizer keeps 256 MB of freed memory for a while, a bound on memory says less.
const int64_t some_megabytes = with_address_sanitizer ? 700 : 300,
              most_megabytes = with_address_sanitizer ? 2000 : 1000;

int cases = 0;

// What `make` puts at r.json, read in these ways. It must be refused with this code and line.
void refused(const std::string& name, const std::vector<Words>& ways, int code, const std::string& line,
             const std::function<void(const fs::path& path)>& make, int64_t megabytes = some_megabytes) {
  for (const Words& way : ways) {
    std::string words;
    for (const std::string& word : way) words += " " + word;
    ++cases;
    check_fault({.name = name + ":" + words,
                 .arguments = way,
                 .exit_code = code,
                 .line = line,
                 .megabytes = megabytes,
                 .setup = [&make](const fs::path& folder) {
                   fs::copy_file(committed + "mnist_cnn.json", folder / "good.json");
                   write(folder / "README.md", "<!-- results:begin -->\n<!-- results:end -->\n");
                   make(folder / "r.json");
                 }});
  }
}
void refused(const std::string& name, const std::vector<Words>& ways, const std::string& line, const std::string& text,
             int64_t megabytes = some_megabytes) {
  refused(
      name, ways, 3, line, [&text](const fs::path& path) { write(path, text); }, megabytes);
}
void refused(const std::string& file, const std::vector<Words>& ways, const std::string& line,
             const std::function<void(Json& record)>& change) {
  Json changed = record(file);
  change(changed);
  refused(file + " with a wrong member", ways, line, changed.dump());
}

TEST_CASE("files that are no records") {
  const std::vector<Words> some = {report, readme, before, after};
  refused("missing", some, 4, "r.json: cannot be opened", [](const fs::path&) {});
  refused("a folder", some, 3, "r.json: a folder, expected a regular file",
          [](const fs::path& path) { fs::create_directory(path); });
  refused("a FIFO", some, 3, "r.json: a FIFO, expected a regular file",
          [](const fs::path& path) { REQUIRE(mkfifo(path.c_str(), 0600) == 0); });
  refused("an endless device", some, 3, "r.json: a device, expected a regular file",
          [](const fs::path& path) { fs::create_symlink("/dev/zero", path); });
  refused("an empty device", some, 3, "r.json: a device, expected a regular file",
          [](const fs::path& path) { fs::create_symlink("/dev/null", path); });
  refused("a link to itself", some, 4, "r.json: cannot be opened",
          [](const fs::path& path) { fs::create_symlink("r.json", path); });
  const TemporaryFolder folder;
  if (make_sparse(folder / "sparse")) {
    refused("sparse", some, 3, "r.json: 6442450944 bytes, above the limit of 33554432",
            [](const fs::path& path) { make_sparse(path); });
    const auto sparse_page = [](const fs::path& at) {
      fs::copy_file(committed + "mnist_cnn.json", at / "r.json");
      make_sparse(at / "README.md");
    };
    check_fault({.name = "a sparse page",
                 .arguments = readme,
                 .exit_code = 3,
                 .line = "README.md: 6442450944 bytes",
                 .megabytes = some_megabytes,
                 .setup = sparse_page});
    ++cases;
  }
}

TEST_CASE("files that are not JSON, or too much of it") {
  const std::string good = record("mnist_cnn.json").dump();
  const std::vector<Words> some = {report, after};
  refused("empty", everywhere, "r.json: is not JSON, at byte 1 of 0", "");
  for (const std::string text : {"{", "[1,]", "{\"a\" 1}", "nan", "'a'", "\xef\xbb\xbf", "\xff\xfe{\0}",
                                 "{\"a\": \"\xff\"}", "{\"a\": \"\x01\"}", "{} {}", "PK\x03\x04", "\x1f\x8b"}) {
    refused("not JSON", some, "r.json: is not JSON, at byte", text);
  }
  refused("zeros", some, "r.json: is not JSON, at byte", std::string(1 << 20, '\0'));
  for (size_t i = 1; i < 10; ++i) {
    refused("cut off", some, "r.json: is not JSON, at byte", good.substr(0, good.size() * i / 10));
  }
  refused("a number that is too large", everywhere, "r.json: the number 1e999 is too large",
          "{\"config\": {\"batch\": 1e999}}");
  refused("a number that is too large", some, "is too large", "[-" + std::string(400, '9') + "]");

  constexpr const char* deep = "r.json: lists and objects are nested more than 32 deep";
  refused("deep lists", everywhere, deep, std::string(5'000'000, '[') + std::string(5'000'000, ']'));
  refused("lists that never close", some, deep, std::string(30'000'000, '['));
  std::string objects = good.substr(0, good.size() - 1) + ", \"x\": ";
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  refused("deep objects", everywhere, deep, objects + "1" + std::string(1'000'001, '}'));
  std::string members = "{";
  for (int i = 0; i < 1'000'000; ++i) members += fmt::format("\"{}\":0,", i);
  refused("too many members", everywhere, "r.json: an object has more than 1000 members", members + "\"a\":0}");
  std::string lists = "[";
  for (int i = 0; i < 5'000'000; ++i) lists += "[],";
  refused("too many values", some, "r.json: more than 4000000 values", lists + "0]", 600);
  // Every row has columns of its own.
  Json wide = record("mnist_cnn.json");
  wide["command"] = "doctor";
  wide["rows"] = Json::array();
  for (int row = 0; row < 300; ++row) {
    for (int i = 0; i < 100; ++i) wide["rows"][row][fmt::format("{}", row * 100 + i)] = i;
  }
  refused("too many columns", {report, md, csv, html}, "r.json: a table of 300 rows and 1100 columns", wide.dump());
}

TEST_CASE("records with a wrong member") {
  for (const std::string schema : {"null", "5", "\"halfstep-bench-2\"", "[]", "{}"}) {
    refused("schema", {report, before}, "r.json: its schema is '", fmt::format("{{\"schema\": {}}}", schema));
  }
  for (const std::string text : {"null", "5", "[]", "\"a\"", "true", "-0.0"}) {
    refused("no object", {report, before}, "r.json: is not a JSON object", text);
  }
  const char* train = "mnist_cnn.json";
  using R = Json&;
  refused(train, {readme}, "r.json: rows is empty", [](R r) { r["rows"] = Json::array(); });
  refused(train, {before, after}, "have no row in common", [](R r) { r["rows"] = Json::array(); });
  refused(train, everywhere, "r.json: has no rows", [](R r) { r.erase("rows"); });
  refused(train, everywhere, "r.json: rows is 0, expected a list", [](R r) { r["rows"] = 0; });
  refused(train, everywhere, "r.json: row '': is not an object", [](R r) { r["rows"] = {0}; });
  refused(train, everywhere, "r.json: config is [], expected an object", [](R r) { r["config"] = Json::array(); });
  refused(train, everywhere, "environment is missing", [](R r) { r.erase("environment"); });
  refused(train, everywhere, "cores is -1, expected a whole number", [](R r) { r["environment"]["cores"] = -1; });
  refused(train, everywhere, "command is 1, expected a text", [](R r) { r["command"] = 1; });
  refused(train, {readme}, "r.json: kernels is [1], expected a list of texts",
          [](R r) { r["config"]["kernels"] = {1}; });
  refused(train, {readme}, "r.json: precision is [], expected a text",
          [](R r) { r["config"]["precision"] = Json::array(); });
  refused(train, {report, html, md, readme}, "r.json: model is {}, expected a text",
          [](R r) { r["config"]["model"] = Json::object(); });
  refused(train, {html}, "r.json: batch is \"64\", expected a number", [](R r) { r["config"]["batch"] = "64"; });
  refused(train, {report, html, before}, "r.json: group is 5, expected a text", [](R r) { r["rows"][0]["group"] = 5; });
  refused(train, {report, html}, "target is 5, expected an object", [](R r) { r["rows"][0]["target"] = 5; });
  refused(train, {html}, "r.json: parts is 5, expected an object", [](R r) { r["rows"][0]["parts"] = 5; });
  refused(train, {html}, "r.json: wait is \"x\", expected a number", [](R r) {
    r["rows"][0]["parts"] = {{"wait", "x"}};
  });
  refused(train, {html}, "r.json: lanes is {}, expected a list of objects", [](R r) {
    r["rows"][0]["step"] = {{"lanes", Json::object()}};
  });
  refused(train, {html}, "r.json: changes is [0], expected a list of objects", [](R r) {
    r["rows"][0]["scale"] = {{"first", 1}, {"changes", {0}}};
  });
  refused(train, everywhere, "remarks is [0], expected a list of texts", [](R r) { r["remarks"] = {0}; });
  refused(train, everywhere, "absent is [0], expected a list of objects", [](R r) { r["absent"] = {0}; });
  refused(train, everywhere, "tables is {}, expected a list of objects", [](R r) { r["tables"] = Json::object(); });
  refused(train, everywhere, "heads is [1], expected a list of texts", [](R r) {
    r["tables"] = {{{"heads", {1}}, {"lines", Json::array()}}};
  });
  refused(train, everywhere, "a line of 2 cells under 1 heads", [](R r) {
    r["tables"] = {{{"heads", {"a"}}, {"lines", Json::array({Json::array({"1", "2"})})}}};
  });
  refused(train, everywhere, "left is -1, expected a whole number", [](R r) {
    r["tables"] = {{{"heads", {"a"}}, {"lines", Json::array()}, {"left", -1}}};
  });
  refused("scaler-batch-4096.json", {html}, "r.json: gradients is 0, expected a list of objects",
          [](R r) { r["rows"][0]["gradients"] = 0; });
  refused("scaler-batch-4096.json", {html}, "r.json: gradients is [0], expected a list of objects",
          [](R r) { r["rows"][0]["gradients"] = {0}; });
  refused("memory-mnist_cnn.json", {html}, "r.json: timeline is 0, expected an object",
          [](R r) { r["rows"][0]["timeline"] = 0; });
  refused("memory-mnist_cnn.json", {html}, "r.json: points is 0, expected a list of objects", [](R r) {
    r["rows"][0]["timeline"] = {{"points", 0}};
  });
  refused("loader-formats.json", {html}, "r.json: spans: expected lists of",
          [](R r) { r["timelines"][0]["spans"] = {{1}}; });
  refused("loader-formats.json", {html}, "r.json: formats is [0], expected a list of objects",
          [](R r) { r["formats"] = {0}; });
  // A record without tables is shown from its members.
  refused("conv.json", {report, html, csv}, "r.json: kernels is [1], expected a list of objects", [](R r) {
    r.erase("tables");
    r["kernels"] = {1};
  });
  refused("conv.json", {report, html, csv}, "r.json: variants is 1, expected a list of objects", [](R r) {
    r.erase("tables");
    r["kernels"][0]["variants"] = 1;
  });
  refused("peers.json", {report, html, md}, "r.json: engines is 1, expected an object", [](R r) { r["engines"] = 1; });
  refused("techniques.json", {report, html, md, readme}, "r.json: for_memory is 1, expected true or false",
          [](R r) { r["rows"][1]["for_memory"] = 1; });
  refused("torch-2.15.json", {readme}, "r.json: mode is 1, expected a text", [](R r) { r["rows"][0]["mode"] = 1; });
  // A peer's record that calls itself ours, without what ours have.
  refused("torch-2.15.json", {html}, "r.json: epochs is [0], expected a list of objects", [](R r) {
    r["command"] = "train";
    r["rows"][0]["epochs"] = {0};
  });
}

TEST_CASE("misspelt flags: the right one is named, whatever follows") {
  struct Misspelt {
    Words words;
    const char* line;
  };
  const Misspelt all[] = {
      {{"train", "--cilp", "1"}, "--cilp: unknown flag; did you mean --clip?"},
      {{"train", "--hlep"}, "--hlep: unknown flag; did you mean --help?"},
      {{"train", "--epohcs", "5"}, "--epohcs: unknown flag; did you mean --epochs?"},
      {{"train", "--sede=5"}, "--sede: unknown flag; did you mean --seed?"},
      {{"--epohcs", "5", "train"}, "--epohcs: unknown flag; did you mean --epochs?"},
      {{"--bacth=5"}, "--bacth: unknown flag; did you mean --batch?"},
      {{"compare", "a", "b", "--fial-if-slower", "3%"},
       "--fial-if-slower: unknown flag; did you mean --fail-if-slower?"},
      {{"compare", "--fail-if-slowr", "3%", "a", "b"}, "--fail-if-slowr: unknown flag; did you mean --fail-if-slower?"},
      {{"compare", "a", "b", "--jsno", "x"}, "--jsno: unknown flag; did you mean --json?"},
      {{"report", "--mdd", "x", "r.json"}, "--mdd: unknown flag; did you mean --md?"},
      {{"convert", "a", "b", "--fromat", "png"}, "--fromat: unknown flag; did you mean --format?"},
      {{"compare", "a", "b", "c"}, "c: unexpected word"},
      {{"train", "--xyzzyxyzzy", "1"}, "--xyzzyxyzzy: unknown flag; see halfstep-bench train --help"},
      {{"train", "--\x1b[31m", "1"}, "--\\x1b[31m: unknown flag"},
      {{"report", "\xc2\x9b"}, "\\x9b: cannot be opened"},
  };
  for (const Misspelt& one : all) {
    ++cases;
    const int code = one.words[0] == "report" && one.words[1] == "\xc2\x9b" ? 4 : 2;
    check_fault(
        {.name = one.line, .arguments = one.words, .exit_code = code, .line = one.line, .megabytes = some_megabytes});
  }
}

// IDX files of both parts, `count` images of one pixel.
void write_idx_set(const fs::path& folder, int64_t count, const std::function<int32_t(int64_t index)>& label) {
  fs::create_directories(folder);
  for (const std::string part : {"train", "t10k"}) {
    hs::SampleInfo info;
    info.count = part == "train" ? count : 10;
    info.rows = info.columns = 1;
    info.classes = 12;
    const auto writer =
        hs::write_idx(folder / (part + "-images-idx3-ubyte"), folder / (part + "-labels-idx1-ubyte"), info);
    for (int64_t i = 0; i < info.count; ++i) {
      const auto pixel = static_cast<uint8_t>(i);
      writer->add(&pixel, label(i));
    }
    writer->finish();
  }
}

TEST_CASE("data that trains something else than was meant") {
  // Its steps would not fit into the device's counter.
  check_fault({.name = "too many steps",
               .arguments = {"train", "--data", "set", "--train", "300000", "--test", "10", "--model", "mlp", "--batch",
                             "1", "--epochs", "10000", "--device", "cpu", "--quiet"},
               .exit_code = 2,
               .line = "10000 epochs of 300000 steps are more than 2147483647 steps",
               .setup = [](const fs::path& folder) {
                 write_idx_set(folder / "set", 300000, [](int64_t i) { return static_cast<int32_t>(i % 10); });
               }});
  ++cases;
  // One pixel, and the data of three rows.
  const std::string hex =
      "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000e49444154789c63606460626006000014000719"
      "d40fdb0000000049454e44ae426082";
  const auto write_images = [&hex](const fs::path& folder) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    fs::create_directories(folder / "images" / "a");
    write(folder / "images" / "a" / "x.png", bytes);
  };
  if (hs::can_read_png()) {
    check_fault({.name = "a PNG with more data than pixels",
                 .arguments = {"convert", "images", "out", "--format", "record"},
                 .exit_code = 3,
                 .line = "x.png: PNG cannot be read: IDAT: ",
                 .setup = write_images});
    ++cases;
  }
  // A stray label makes classes that have no image. It is said, and the training goes on.
  const TemporaryFolder folder;
  const Words train = {"train", "--data",   "set", "--train",  "100", "--test",  "10",     "--model",
                       "mlp",   "--epochs", "1",   "--device", "cpu", "--quiet", "--json", "-"};
  write_idx_set(folder / "set", 100, [](int64_t i) { return i == 57 ? 11 : static_cast<int32_t>(i % 10); });
  const Ended stray = run_bench(train, {.folder = folder.path});
  CHECK(stray.code == 0);
  CHECK(contains(stray.err, "set: 12 classes, but 1 of them without a training image, the first with the label 10"));
  CHECK(contains(stray.out, "100 training and 10 test images of 12 classes"));
  fs::remove_all(folder / "set");
  write_idx_set(folder / "set", 100, [](int64_t i) { return static_cast<int32_t>(i % 10); });
  const Ended clean = run_bench(train, {.folder = folder.path});
  CHECK(clean.code == 0);
  CHECK_FALSE(contains(clean.err, "classes"));
}

TEST_CASE("large records are compared and shown in bounded time and memory" * doctest::skip(with_address_sanitizer)) {
  const TemporaryFolder folder;
  constexpr int runs = 200'000;
  Json many = record("mnist_cnn.json");
  Json& row = many["rows"][0];
  row["seconds_all"] = row["test_accuracy_all"] = Json::array();
  for (int i = 0; i < runs; ++i) row["seconds_all"].push_back(1 + i % 1000), row["test_accuracy_all"].push_back(0.5);
  row["seconds"] = 500.5;
  write(folder / "runs.json", many.dump());
  Json rows = record("mnist_cnn.json");
  for (int i = 1; i < 5000; ++i) {
    rows["rows"].push_back(rows["rows"][0]);
    rows["rows"][i]["name"] = fmt::format("row {}", i);
    for (const char* large : {"runs", "epochs", "parts"}) rows["rows"][i].erase(large);
  }
  write(folder / "rows.json", rows.dump());
  Json tables = record("memory-mnist_cnn.json");
  for (int i = 0; i < 50'000; ++i) {
    tables["tables"].push_back({{"title", ""}, {"left", 1}, {"heads", {"a"}}, {"lines", Json::array()}});
  }
  write(folder / "tables.json", tables.dump());
  Json points = record("memory-mnist_cnn.json");
  Json& timeline = points["rows"][0]["timeline"]["points"] = Json::array();
  for (int i = 0; i < 200'000; ++i) timeline.push_back({{"live", {{"parameters", i}}}});
  write(folder / "points.json", points.dump());
  for (const Words& words : {Words{"compare", "runs.json", "runs.json"}, Words{"compare", "rows.json", "rows.json"},
                             Words{"report", "runs.json", "--html", "-"}, Words{"report", "rows.json", "--html", "-"},
                             Words{"report", "tables.json"}, Words{"report", "points.json", "--html", "-"}}) {
    CAPTURE(words);
    const Ended ended = run_bench(words, {.folder = folder.path, .patience = 120});
    CHECK(ended.code == 0);
    CHECK(ended.seconds < 60);
    CHECK(ended.megabytes < most_megabytes);
    ++cases;
  }
}

TEST_CASE("huge and tiny numbers are drawn, or left out, in bounded time") {
  const TemporaryFolder folder;
  for (const double value : {1e308, -1e308, 5e-324, 1e-300, 0.0}) {
    Json changed = record("memory-deep_cnn.json");
    for (Json& point : changed["curve"]) point["step_ms"] = point["peak_bytes"] = value;
    for (Json& point : changed["rows"][0]["timeline"]["points"]) {
      for (Json& bytes : point["live"]) bytes = value;
    }
    write(folder / "r.json", changed.dump());
    const Ended ended = run_bench({"report", "r.json", "--html", "-"}, {.folder = folder.path, .patience = 60});
    CHECK(ended.code == 0);
    CHECK(ended.seconds < 30);
    CHECK(ended.out.size() < size_t{8} << 20);
    CHECK_FALSE(contains(ended.out, "nan"));
    CHECK_FALSE(contains(ended.out, "inf\""));
    ++cases;
  }
}

TEST_CASE("the table's size") { MESSAGE(cases, " cases"); }

}  // namespace
