// tests/exercise 21 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "docs/exercises/21/exercise.h"

using exercise::load;
using exercise::save;
using exercise::Training;
namespace fs = std::filesystem;

namespace {

// A folder that disappears with the object.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("exercise_21_" + std::to_string(std::random_device()()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

Training training() { return {.weights = {0.1f, -2, 3}, .momentum = {0, 0, 0}, .order = {0, 1, 2, 3, 4, 5, 6}}; }

Training after(Training training, int steps) {
  for (int step = 0; step < steps; ++step) training.step();
  return training;
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {  // NaN is equal to itself, and -0 is not 0
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

void check_same(const Training& found, const Training& expected) {
  REQUIRE_MESSAGE(same_bits<float>(found.weights, expected.weights), "the weights were not restored");
  REQUIRE_MESSAGE(same_bits<float>(found.momentum, expected.momentum), "the momentum was not restored");
  REQUIRE_MESSAGE(same_bits<int32_t>(found.order, expected.order), "the order was not restored");
  REQUIRE_MESSAGE(found.position == expected.position, "the position was not restored");
  REQUIRE_MESSAGE(found.random == expected.random, "the generator was not restored");
  REQUIRE_MESSAGE(found.best_loss == expected.best_loss, "the best loss was not restored");
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace

TEST_CASE("interrupted after any step: the same bits as without an interruption") {
  const Folder folder;
  for (int steps = 0; steps <= 25; ++steps) {
    INFO("interrupted after step ", steps);
    save(after(training(), steps), folder.path / "run");
    const Training loaded = load(folder.path / "run");
    check_same(loaded, after(training(), steps));
    check_same(after(loaded, 25 - steps), after(training(), 25));
  }
}

TEST_CASE("numbers that are not ordinary") {
  const Folder folder;
  Training odd = after(training(), 3);
  odd.weights = {std::nanf("5"), -0.0f, std::numeric_limits<float>::denorm_min()};
  odd.momentum = {-std::numeric_limits<float>::infinity(), 1.0f / 3, std::numeric_limits<float>::max()};
  odd.random = ~uint64_t{0};
  save(odd, folder.path / "run");
  check_same(load(folder.path / "run"), odd);
  const Training empty;
  save(empty, folder.path / "run");
  check_same(load(folder.path / "run"), empty);
}

TEST_CASE("the old file is replaced, not written to") {
  const Folder folder;
  save(after(training(), 1), folder.path / "run");
  const std::string old = content(folder.path / "run");
  fs::create_hard_link(folder.path / "run", folder.path / "reader");  // as a process that has it open
  save(after(training(), 2), folder.path / "run");
  CHECK_MESSAGE(content(folder.path / "reader") == old, "a reader sees the old file change");
  CHECK(content(folder.path / "run") != old);
  CHECK_FALSE(fs::exists(folder.path / "run.new"));
}

TEST_CASE("a save that fails throws and leaves the old state; one after a crash works") {
  const Folder folder;
  const fs::path path = folder.path / "run";
  save(after(training(), 1), path);
  fs::create_directory(folder.path / "run.new");  // cannot be opened as a file
  CHECK_THROWS_AS(save(after(training(), 2), path), std::runtime_error);
  check_same(load(path), after(training(), 1));
  fs::remove(folder.path / "run.new");
  fs::create_symlink("/dev/full", folder.path / "run.new");  // a full disk: opens, and fails to write
  CHECK_THROWS_AS(save(after(training(), 2), path), std::runtime_error);
  REQUIRE_MESSAGE(!fs::is_symlink(path), "what could not be written has replaced the old state");
  check_same(load(path), after(training(), 1));
  fs::remove(folder.path / "run.new");
  write(folder.path / "run.new", std::string(10'000, 'x'));
  save(after(training(), 3), path);
  check_same(load(path), after(training(), 3));
}

TEST_CASE("no file, or one that is damaged anywhere") {
  const Folder folder;
  const fs::path path = folder.path / "run";
  CHECK_THROWS_AS(load(path), std::runtime_error);
  save(after(training(), 9), path);
  const std::string whole = content(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO("the first ", size, " of ", whole.size(), " bytes");
    write(path, whole.substr(0, size));
    REQUIRE_THROWS_AS(load(path), std::runtime_error);
  }
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    INFO("bit ", bit % 8, " of byte ", bit / 8, " changed");
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    write(path, damaged);
    REQUIRE_THROWS_AS(load(path), std::runtime_error);
  }
  write(path, whole + 'x');
  CHECK_THROWS_AS(load(path), std::runtime_error);
}
