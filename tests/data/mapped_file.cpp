// Maps of files that are cut or written to while they are read, and files that are too large to be mapped: through the
// formats that are mapped.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "data/formats/cifar10.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"
#include "data/io/mapped_file.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

struct OpenFile {
  fs::path path;
  std::unique_ptr<SampleSource> source;
};

// A set in one file, written into a folder and opened, in every way in which files are mapped, and in one in which they
// are not.
using Open = std::function<OpenFile(const TemporaryFolder&)>;
OpenFile open_record_file(const TemporaryFolder& folder, bool compress, uint64_t map_limit) {
  const SampleInfo info = info_for(2000, {16, 16, 1});
  write_all(*write_records(folder / "a", info, {.shards = 1, .compress = compress}), info);
  return {folder / "a-00000-of-00001", open_records(folder / "a", {.map_limit = map_limit, .cache_bytes = 1})};
}
const std::pair<const char*, Open> ways_to_open[] = {
    {"record", [](const TemporaryFolder& folder) { return open_record_file(folder, false, 0); }},
    {"compressed record", [](const TemporaryFolder& folder) { return open_record_file(folder, true, 0); }},
    {"record, too large to be mapped",
     [](const TemporaryFolder& folder) { return open_record_file(folder, false, 1); }},
    {"tfrecord",
     [](const TemporaryFolder& folder) -> OpenFile {
       const SampleInfo info = info_for(2000, {16, 16, 1});
       write_all(*write_tfrecords(folder / "a", info), info);
       return {folder / "a-00000-of-00001", open_tfrecords(folder / "a")};
     }},
    {"cifar10", [](const TemporaryFolder& folder) -> OpenFile {
       write_bytes(folder / "test_batch.bin", Bytes(200 * cifar10_record_bytes));
       return {folder / "test_batch.bin", open_cifar10(folder.path, false, 200)};
     }}};

// A file may be written to twice within one tick of the clock of its time stamp.
void wait_for_a_tick() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

TEST_CASE("a file that shrinks or changes while it is open is an error, not a signal") {
  for (const auto& [way, open] : ways_to_open) {
    CAPTURE(way);
    const auto check_read = [](const OpenFile& file, int64_t sample, const std::string& part) {
      check_refused(outcome_of([&] { read_image(*file.source, sample); }), ExitCode::bad_input,
                    file.path.string() + ": ", part + fmt::format("; do not change a file in use (sample {})", sample));
    };
    {
      // Cut without a pause: the pages are gone, and the time stamp was just compared.
      const TemporaryFolder folder;
      const OpenFile file = open(folder);
      const int64_t last = file.source->info().count - 1;
      read_image(*file.source, 0);
      fs::resize_file(file.path, 4096);
      check_read(file, last, "bytes when it was opened and has 4096 now");
      fs::resize_file(file.path, 0);
      check_read(file, last / 2, "has 0 now");
    }
    {
      const TemporaryFolder folder;
      const OpenFile file = open(folder);
      read_image(*file.source, 0);
      fs::resize_file(file.path, fs::file_size(file.path) + 1);
      wait_for_a_tick();
      check_read(file, file.source->info().count - 1, fmt::format("has {} now", fs::file_size(file.path)));
    }
    {
      const TemporaryFolder folder;
      const OpenFile file = open(folder);
      wait_for_a_tick();
      read_image(*file.source, 0);
      std::fstream(file.path, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).put('x');
      wait_for_a_tick();
      check_read(file, file.source->info().count - 1, "was written to since it was opened");
    }
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
    const auto source = open_records(path, {.map_limit = round % 5 == 0 ? uint64_t{1} : 0});
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

TEST_CASE("a set larger than the limit is read without being mapped") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(16384, {64, 64, 1});  // 64 MiB
  write_all(*write_records(folder / "a", info), info);
  const auto resident_after_reading = [&](uint64_t limit) {
    const auto source = open_records(folder / "a", {.map_limit = limit});
    CHECK(first_wrong(*source, info) == -1);
    return resident_bytes_of(folder / "a-00000-of-00001");
  };
  CHECK(resident_after_reading(0) >= 60 * mib);  // the measurement sees the map
  CHECK(resident_after_reading(16 * mib) == 0);
}

}  // namespace
