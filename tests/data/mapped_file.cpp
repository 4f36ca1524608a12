// Maps of files that are cut or written to while they are read, and of files that are larger than the memory that they
// may have: through record files, the reader that lives on maps.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "data/formats/record_file.h"
#include "data/io/mapped_file.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

constexpr auto longer_than_a_tick = std::chrono::milliseconds(30);

TEST_CASE("a file that shrinks or changes while it is open is an error, not a signal") {
  for (const bool compress : {false, true}) {
    CAPTURE(compress);
    const TemporaryFolder folder;
    const SampleInfo info = info_for(2000, {16, 16, 1});
    const auto written = [&](const char* name) {
      write_all(*write_records(folder / name, info, {.shards = 1, .compress = compress}), info);
      return folder / (std::string(name) + "-00000-of-00001");
    };
    // Cut without a pause: the pages are gone, and the time stamp was just looked at.
    const fs::path cut = written("cut");
    const auto source = open_records(cut, {.resident_limit = 0, .cache_bytes = 1});
    read_image(*source, 0);
    fs::resize_file(cut, 4096);
    check_refused(outcome_of([&] { read_image(*source, 1999); }), ExitCode::bad_input, cut.string() + ": ",
                  "bytes when it was opened and has 4096 now; do not change a file in use (sample 1999)");
    fs::resize_file(cut, 0);
    check_refused(outcome_of([&] { read_image(*source, 1000); }), ExitCode::bad_input, cut.string() + ": ",
                  "has 0 now");

    const fs::path longer = written("longer");
    const auto second = open_records(longer);
    read_image(*second, 0);
    fs::resize_file(longer, fs::file_size(longer) + 1);
    std::this_thread::sleep_for(longer_than_a_tick);
    check_refused(outcome_of([&] { read_image(*second, 1500); }), ExitCode::bad_input, longer.string(),
                  "when it was op");

    const fs::path changed = written("changed");
    std::this_thread::sleep_for(longer_than_a_tick);
    const auto third = open_records(changed);
    read_image(*third, 0);
    std::fstream(changed, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).put('x');
    std::this_thread::sleep_for(longer_than_a_tick);
    check_refused(outcome_of([&] { read_image(*third, 1500); }), ExitCode::bad_input, changed.string() + ": ",
                  "was written to since it was opened");
  }
}

TEST_CASE("cut and restored again and again while threads read: right pixels or an error") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(2000, {16, 16, 1});
  write_all(*write_records(folder / "a", info), info);
  const fs::path path = folder / "a-00000-of-00001";
  const Bytes good = read_bytes(path);
  for (int round = 0; round < 30; ++round) {
    write_bytes(path, good);
    const auto source = open_records(path);
    std::atomic<int64_t> wrong = 0, errors = 0;
    std::vector<std::thread> readers;
    for (int thread = 0; thread < 3; ++thread) {
      readers.emplace_back([&, thread] {
        for (int64_t i = thread; errors < 100 && i < 400'000; ++i) {
          const int64_t sample = i * 37 % info.count;
          std::vector<uint8_t> image(256);
          try {
            source->read(sample, image.data());
          } catch (const Error& error) {
            if (error.code() != ExitCode::bad_input) ++wrong;
            ++errors;
          }
        }
      });
    }
    fs::resize_file(path, round % 2 == 0 ? 8192 : 0);
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == 0);
    CHECK(errors > 0);
  }
}

TEST_CASE("a SIGBUS that is not ours goes where it went before") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(5);
  write_all(*write_records(folder / "a", info), info);
  const auto source = open_records(folder / "a");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    raise(SIGBUS);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  // A sanitizer reports it and ends the program by itself.
  CHECK((WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0));
}

// Bytes of a file's map that are in this process's memory.
uint64_t resident_bytes_of(const fs::path& path) {
  std::ifstream maps("/proc/self/smaps");
  uint64_t kilobytes = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    const bool head = line.find('-') < line.find(' ') && line.find(' ') != std::string::npos && line[0] != 'R';
    if (head && line.find(" r--s ") != std::string::npos) ours = line.ends_with(path.string());
    if (head && line.find(" r--s ") == std::string::npos) ours = false;
    if (ours && line.starts_with("Rss:")) kilobytes += std::stoull(line.substr(4));
  }
  return kilobytes << 10;
}

TEST_CASE("a set larger than the limit streams through the map: resident pages are bounded") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(16384, {64, 64, 1});  // 64 MiB
  write_all(*write_records(folder / "a", info), info);
  const fs::path path = folder / "a-00000-of-00001";
  const auto most_resident = [&](uint64_t limit) {
    const auto source = open_records(path, {.resident_limit = limit});
    std::vector<uint8_t> image(4096);
    uint64_t most = 0;
    for (int64_t i = 0; i < info.count; ++i) {
      source->read(i * 1237 % info.count, image.data());
      if (i % 64 == 0) most = std::max(most, resident_bytes_of(path));
    }
    CHECK(first_wrong(*source, info) == -1);
    return most;
  };
  CHECK(most_resident(0) >= 60 * mib);  // the measurement sees the map
  CHECK(most_resident(16 * mib) <= 20 * mib);
}

}  // namespace
