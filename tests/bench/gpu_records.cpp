// What has not run on a real GPU: the CUDA files that differ from those of the newest record in bench/results/gpu. The
// list informs; only a record that cannot be read fails, because it would hide the list.
#include <doctest/doctest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "source_dir.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using hs::test::TemporaryFolder;
using nlohmann::json;

using Hashes = std::map<std::string, std::string>;  // file, from the top folder -> SHA-256 in hexadecimal

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string sha256(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  REQUIRE(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    constexpr const char* digits = "0123456789abcdef";
    text += {digits[digest[i] >> 4], digits[digest[i] & 15]};
  }
  return text;
}

// As bench/gpu_record.py chooses them.
Hashes cuda_files(const fs::path& top) {
  Hashes hashes;
  for (const char* folder : {"engine", "kernels"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(top / folder)) {
      const fs::path extension = entry.path().extension();
      if (extension != ".cu" && extension != ".cuh") continue;
      hashes[entry.path().lexically_relative(top).string()] = sha256(read_text(entry.path()));
    }
  }
  return hashes;
}

struct Record {
  std::string file, date, device;
  bool passed = false;  // the whole check
  Hashes sources;
};

void expect(bool condition, const fs::path& path, const std::string& what) {
  if (!condition) throw std::runtime_error(path.filename().string() + ": " + what);
}

bool matches(const std::string& text, const std::string& pattern) {  // 0: a digit, any other: itself
  return text.size() == pattern.size() &&
         std::equal(text.begin(), text.end(), pattern.begin(),
                    [](char c, char wanted) { return wanted == '0' ? '0' <= c && c <= '9' : c == wanted; });
}

Record read_record(const fs::path& path) {
  try {
    const json content = json::parse(read_text(path));
    expect(content.at("schema") == "halfstep-gpu-1", path, "schema is not halfstep-gpu-1");
    Record record{path.filename().string(), content.at("date"), content.at("device").at("name"), content.at("passed"),
                  content.at("sources")};
    expect(matches(record.date, "0000-00-00T00:00:00Z"), path,
           "date " + record.date + ", expected as 2026-01-31T23:59:59Z");
    expect(!record.sources.empty(), path, "sources is empty");
    for (const auto& [file, hash] : record.sources) {
      const bool is_sha256 = hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == std::string::npos;
      expect(is_sha256, path, "sources: " + file + " has no SHA-256 in small hexadecimal digits");
    }
    return record;
  } catch (const json::exception& error) {
    throw std::runtime_error(path.filename().string() + ": " + error.what());
  }
}

// One line per fact, for people.
std::vector<std::string> report(const fs::path& records, const fs::path& top) {
  Record newest;
  if (fs::exists(records)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(records)) {
      if (entry.path().extension() != ".json") continue;
      Record record = read_record(entry.path());
      if (record.date > newest.date) newest = std::move(record);
    }
  }
  const Hashes files = cuda_files(top);
  if (newest.date.empty()) {
    return {"no record of a run on a GPU yet: " + std::to_string(files.size()) + " files have not run on one"};
  }
  std::vector<std::string> lines, changed;
  for (const auto& [file, hash] : files) {
    const auto before = newest.sources.find(file);
    if (before == newest.sources.end()) {
      changed.push_back("  new:     " + file);
    } else if (before->second != hash) {
      changed.push_back("  changed: " + file);
    }
  }
  const std::string run = "the run of " + newest.date + " on " + newest.device + " (" + newest.file + ")";
  if (!newest.passed) lines.push_back(run + " did not pass every check");
  lines.push_back(std::to_string(changed.size()) + " of " + std::to_string(files.size()) +
                  " CUDA files have not run on a GPU since " + run);
  lines.insert(lines.end(), changed.begin(), changed.end());
  return lines;
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

json valid_record() {
  return {{"schema", "halfstep-gpu-1"},
          {"date", "2026-01-02T03:04:05Z"},
          {"device", {{"name", "a GPU"}}},
          {"passed", true},
          {"sources", {{"kernels/a/a.cu", sha256("a")}}}};
}

TEST_CASE("the CUDA files that no GPU has run, by the newest record") {
  const fs::path top = HALFSTEP_SOURCE_DIR;
  std::vector<std::string> lines;
  REQUIRE_NOTHROW(lines = report(top / "bench/results/gpu", top));
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

TEST_CASE("new and changed files are listed, and only those; the newest record counts") {
  const TemporaryFolder folder;
  const fs::path records = folder.path / "records";
  write(folder.path / "engine/e.cuh", "e");
  write(folder.path / "kernels/a/a.cu", "a");
  write(folder.path / "kernels/b/b.cpp", "b");
  CHECK(report(records, folder.path) ==
        std::vector<std::string>{"no record of a run on a GPU yet: 2 files have not run on one"});

  json record = valid_record();
  write(records / "1.json", record.dump());
  write(records / "README.md", "not a record");
  std::vector<std::string> expected = {
      "1 of 2 CUDA files have not run on a GPU since the run of 2026-01-02T03:04:05Z on a GPU (1.json)",
      "  new:     engine/e.cuh"};
  CHECK(report(records, folder.path) == expected);

  write(folder.path / "kernels/a/a.cu", "A");
  expected[0][0] = '2';
  expected.push_back("  changed: kernels/a/a.cu");
  CHECK(report(records, folder.path) == expected);

  record["date"] = "2026-01-02T03:04:06Z";
  record["passed"] = false;
  record["sources"] = cuda_files(folder.path);
  write(records / "0.json", record.dump());
  const std::string run = "the run of 2026-01-02T03:04:06Z on a GPU (0.json)";
  CHECK(report(records, folder.path) ==
        std::vector<std::string>{run + " did not pass every check",
                                 "0 of 2 CUDA files have not run on a GPU since " + run});
}

TEST_CASE("a damaged record fails") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "record.json";
  const auto fails = [&path](const std::string& text) {
    write(path, text);
    CHECK_THROWS_WITH_AS(read_record(path), doctest::Contains("record.json: "), std::runtime_error);
  };
  write(path, valid_record().dump());
  CHECK_NOTHROW(read_record(path));
  fails("");
  fails(valid_record().dump().substr(1));
  for (const char* key : {"schema", "date", "device", "passed", "sources"}) {
    json record = valid_record();
    record.erase(key);
    fails(record.dump());
    record[key] = nullptr;
    fails(record.dump());
  }
  for (const char* date : {"", "2026-01-02", "2026-01-02T03:04:05+00:00"}) {
    json record = valid_record();
    record["date"] = date;
    fails(record.dump());
  }
  json record = valid_record();
  record["sources"]["kernels/a/a.cu"] = "0123";
  fails(record.dump());
  record["sources"] = json::object();
  fails(record.dump());
}

}  // namespace
