// The folder of a run under faults: calls of the operating system that fail or never return, at every place; damaged,
// foreign and newer files; two runs at a time.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "engine/files/safetensors.h"
#include "models/files/run_folder.h"
#include "tests/support/child_process.h"
#include "tests/support/interposed_calls.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace {

// What the interposed functions below do to the calls of this process. The folder's thread makes most of them.
struct Faults {
  enum class How { once, from_then_on, kill, late };  // late: succeeds, after a while, from then on
  std::atomic<const char*> call = nullptr;            // the function that fails; "": any of them
  std::atomic<int> at = 0, made = 0;                  // the number, from 1, of the call that fails; calls so far
  std::atomic<How> how = How::once;
};
Faults faults;

// Call number `at` of this function, or of any, is to fail.
void inject(const char* call, int at, Faults::How how = Faults::How::once) {
  faults.at = at;
  faults.made = 0;
  faults.how = how;
  faults.call = call;
}

// Or the process ends here.
bool fails(const char* name) {
  const char* call = faults.call;
  if (!call || (*call != '\0' && std::string(call) != name)) return false;
  const int number = ++faults.made;
  const bool lasts = faults.how == Faults::How::from_then_on || faults.how == Faults::How::late;
  if (number < faults.at || (!lasts && number != faults.at)) return false;
  if (faults.how == Faults::How::kill) _exit(0);
  if (faults.how == Faults::How::late) return usleep(400'000) != 0;
  errno = EIO;
  return true;
}

using namespace hs;
using namespace hs::test;

TrainingState state_of(float number) {
  TrainingState state;
  state.tensors["weight"] = Tensor::from(std::vector<float>(40000, number), {200, 200});
  state.tensors["progress.epochs"] = Tensor::zeros({0, 5}, DType::f64);
  state.values["step"] = std::to_string(static_cast<int>(number));
  return state;
}

// The number of the state; -1 if it is not the one that was saved.
int number_of(const TrainingState& state) {
  const std::vector<float> values = state.tensors.at("weight").to_vector<float>();
  for (const float value : values) {
    if (value != values[0]) return -1;
  }
  if (values.size() != 40000 || state.tensors.size() != 2 || state.values.size() != 1) return -1;
  return state.values.at("step") == std::to_string(static_cast<int>(values[0])) ? static_cast<int>(values[0]) : -1;
}

// Saves states 1 to 4 of a run that keeps two, and tells after each how many are said to be on the disk.
void save_four(const fs::path& folder, const std::function<void(int64_t)>& tell, std::vector<std::string>& said) {
  RunFolder run(folder, 2, [&](const std::string& line) { said.push_back(line); });
  for (int number = 1; number <= 4; ++number) {
    run.save(state_of(static_cast<float>(number)));
    try {
      run.finish();
      tell(number);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::io);
      said.emplace_back(error.what());
    }
  }
}

// What the next process finds: the newest valid state, which is at least the last that was said to be saved.
void check_found(const fs::path& folder, int64_t told) {
  RunFolder run(folder, 2, [](const std::string&) {});
  for (const auto& entry : fs::directory_iterator(folder)) CHECK(entry.path().extension() != ".tmp");
  if (run.is_empty()) {
    CHECK(told == 0);
    return;
  }
  const int found = number_of(run.newest());
  CHECK(found >= told);
  CHECK(found >= 1);
  run.save(state_of(5));
  run.finish();
  CHECK(number_of(run.newest()) == 5);
}

// Returns the number of calls that save_four() makes.
int count_calls(const char* call) {
  const TemporaryFolder folder(hs::test::fast_place());
  std::vector<std::string> said;
  inject(call, 0);  // none fails
  save_four(
      folder / "run", [](int64_t) {}, said);
  faults.call = nullptr;
  return faults.made;
}

TEST_CASE("whichever call fails, once or from then on: what was said to be saved is there, and nothing else is left") {
  for (const char* call : {"pwrite", "fsync", "close", "rename", "ftruncate"}) {
    const int calls = count_calls(call);
    CAPTURE(std::string(call));
    CHECK(calls >= (std::string(call) == "ftruncate" ? 1 : 4));
    for (int at = 1; at <= calls; ++at) {
      CAPTURE(at);
      for (const Faults::How how : {Faults::How::once, Faults::How::from_then_on}) {
        const TemporaryFolder folder(hs::test::fast_place());
        std::vector<std::string> said;
        int64_t told = 0;
        inject(call, at, how);
        try {
          save_four(
              folder / "run", [&](int64_t number) { told = number; }, said);
        } catch (const Error& error) {  // the folder cannot be used at all
          CHECK(error.code() == ExitCode::io);
          said.emplace_back(error.what());
        }
        faults.call = nullptr;
        CHECK(faults.made >= at);
        // Files that were only read are closed, too, and that may fail.
        if (std::string(call) != "close") CHECK(!said.empty());
        for (const std::string& line : said) CHECK(line.find(folder.path.string()) != std::string::npos);
        check_found(folder / "run", told);
      }
    }
  }
}

TEST_CASE("a process that is killed before any call of any kind leaves a folder that the next one continues") {
  const int calls = count_calls("");
  CHECK(calls > 30);
  auto* told =
      static_cast<int64_t*>(mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(told != MAP_FAILED);
  for (int at = 1; at <= calls; ++at) {
    CAPTURE(at);
    const TemporaryFolder folder(hs::test::fast_place());
    *told = 0;
    CHECK(hs::test::in_child([&] {
            std::vector<std::string> said;
            inject("", at, Faults::How::kill);
            save_four(
                folder / "run", [&](int64_t number) { *told = number; }, said);
            return 1;  // nothing killed it
          }) == 0);
    check_found(folder / "run", *told);
  }
  munmap(told, sizeof(int64_t));
}

TEST_CASE("a state is written beside training, which waits for the one before alone") {
  const TemporaryFolder folder(hs::test::fast_place());
  RunFolder run(folder / "run", 2, [](const std::string&) {});
  const auto seconds_of = [](const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  inject("fsync", 1, Faults::How::late);  // of the file, and of the folder: 0.8 seconds for each state
  CHECK(seconds_of([&] { run.save(state_of(1)); }) < 0.4);
  const fs::path first = folder.path / "run" / "state-000001.safetensors";
  CHECK(!fs::exists(first));
  for (int wait = 0; wait < 10000 && !fs::exists(first); ++wait) usleep(1000);
  CHECK(fs::exists(first));  // though nobody waits for the folder
  run.finish();
  CHECK(seconds_of([&] { run.save(state_of(2)); }) < 0.4);
  CHECK(seconds_of([&] { run.save(state_of(3)); }) > 0.7);
  run.finish();
  faults.call = nullptr;
  CHECK(run.saved() == 3);
  CHECK(number_of(run.newest()) == 3);
}

TEST_CASE("a folder holds one run at a time, and the newest states of it") {
  const TemporaryFolder folder;
  const auto nothing = [](const std::string&) {};
  {
    RunFolder run(folder.path / "a" / "b", 3, nothing);
    CHECK(run.is_empty());
    const std::string second =
        hs::test::error_of([&] { RunFolder(folder.path / "a" / "b", 3, nothing); }, ExitCode::io);
    CHECK(second.find("is in use by process " + std::to_string(getpid()) + ";") != std::string::npos);
    for (int number = 1; number <= 5; ++number) run.save(state_of(static_cast<float>(number)));
    run.finish();
    CHECK(run.saved() == 5);
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path / "a" / "b")) names.insert(entry.path().filename());
  CHECK(names == std::set<std::string>{"lock", "state-000003.safetensors", "state-000004.safetensors",
                                       "state-000005.safetensors"});
  RunFolder again(folder.path / "a" / "b", 1, nothing);
  CHECK(number_of(again.newest()) == 5);
  again.save(state_of(6));
  again.finish();
  CHECK(fs::exists(folder.path / "a" / "b" / "state-000006.safetensors"));
  CHECK(!fs::exists(folder.path / "a" / "b" / "state-000005.safetensors"));
}

TEST_CASE("a file system without locks is said, and the run goes on") {
  const TemporaryFolder folder;
  std::vector<std::string> said;
  inject("flock", 1);
  RunFolder run(folder / "run", 2, [&](const std::string& line) { said.push_back(line); });
  faults.call = nullptr;
  REQUIRE(said.size() == 1);
  CHECK(said[0].ends_with("run: cannot be locked: No locks available; let no other run use it"));
  run.save(state_of(1));
  run.finish();
  CHECK(number_of(run.newest()) == 1);
}

TEST_CASE("what another program has in the folder is not touched, and a number that overflows is refused") {
  const TemporaryFolder folder;
  const auto open = [&] { const RunFolder run(folder.path, 2, [](const std::string&) {}); };
  write_text(folder / "lock", "dear diary");
  CHECK_THROWS_WITH_AS(open(), doctest::Contains("lock: is not the lock of a run"), Error);
  CHECK(read_text(folder / "lock") == "dear diary");
  fs::remove(folder / "lock");
  write_text(folder / "2026", "2026");
  fs::create_hard_link(folder / "2026", folder / "lock");
  CHECK_THROWS_WITH_AS(open(), doctest::Contains("lock: is not the lock of a run"), Error);
  CHECK(read_text(folder / "2026") == "2026");
  fs::remove(folder / "lock");

  write_text(folder / ".halfstep-0123456789abcdef-model.safetensors.tmp", "a model that is being written");
  write_text(folder / ".halfstep-0123456789abcdef-state-000001.safetensors.tmp", "half of a state");
  open();
  CHECK(folder.names() == std::set<std::string>{".halfstep-0123456789abcdef-model.safetensors.tmp", "2026", "lock"});
  write_text(folder / "state-9223372036854775807.safetensors", "");
  CHECK_THROWS_WITH_AS(open(), doctest::Contains("no number is left"), Error);
}

TEST_CASE("a folder that disappears is an error of each write, and the next run may make it again") {
  const TemporaryFolder folder;
  std::vector<std::string> said;
  RunFolder run(folder / "run", 2, [&](const std::string& line) { said.push_back(line); });
  fs::remove_all(folder / "run");
  run.save(state_of(1));
  run.save(state_of(2));
  REQUIRE(said.size() == 1);
  CHECK(said[0].ends_with("No such file or directory; training goes on, its last saved state is none"));
  CHECK_THROWS_WITH_AS(run.finish(), doctest::Contains("state-000002.safetensors: cannot be written: "), Error);
  CHECK(run.failed() == 2);
  fs::create_directory(folder / "run");
  run.save(state_of(3));
  CHECK_NOTHROW(run.finish());
}

// A folder with states 1 and 2; the second becomes something else.
struct TwoStates {
  TwoStates() {
    RunFolder run(folder.path, 2, [](const std::string&) {});
    run.save(state_of(1));
    run.save(state_of(2));
    run.finish();
  }
  // Opens the folder as the next run does.
  int newest() {
    lines.clear();
    RunFolder run(folder.path, 2, [this](const std::string& line) { lines.push_back(line); });
    const int found = number_of(run.newest());
    if (found != 1) return found;
    CHECK(lines.size() == 1);
    CHECK(lines[0].find("state-000002.safetensors") != std::string::npos);
    CHECK(lines[0].ends_with("; going back to state-000001.safetensors"));
    return found;
  }
  const TemporaryFolder folder{hs::test::fast_place()};
  const fs::path first = folder / "state-000001.safetensors", second = folder / "state-000002.safetensors";
  std::vector<std::string> lines;
};

TEST_CASE(
    "a newest file that is damaged, cut short or foreign falls back to the one before, and goes with the next save") {
  TwoStates two;
  const std::string good = read_text(two.second);
  CHECK(two.newest() == 2);
  // Any other damage: tests/engine/safetensors.cpp.
  write_text(two.second, good.substr(0, good.size() - 1));
  CHECK(two.newest() == 1);
  fs::remove(two.second);
  write_safetensors(two.second, {{"weight", Tensor::zeros({200, 200}, DType::f32)}}, {{"step", "9"}});
  CHECK(two.newest() == 1);
  fs::remove(two.second);
  fs::create_directory(two.second);
  CHECK(two.newest() == 1);
  fs::remove(two.second);
  REQUIRE(mkfifo(two.second.c_str(), 0600) == 0);
  CHECK(two.newest() == 1);
  fs::remove(two.second);
  write_text(two.second, "not a state");
  {
    RunFolder run(two.folder.path, 2, [](const std::string&) {});
    run.newest();
    run.save(state_of(3));
    run.finish();
  }
  CHECK(two.folder.names() == std::set<std::string>{"lock", "state-000001.safetensors", "state-000003.safetensors"});
}

TEST_CASE("a state that cannot be read at the moment is an error and no damage: the file stays, and is read later") {
  TwoStates two;
  for (int at = 1; at <= 3; ++at) {  // the length, the header, a tensor
    {
      RunFolder run(two.folder.path, 2, [](const std::string&) {});
      inject("pread", at);
      CHECK_THROWS_WITH_AS(run.newest(), doctest::Contains("state-000002.safetensors: cannot be read: "), Error);
      faults.call = nullptr;
      CHECK(number_of(run.newest()) == 2);
      run.save(state_of(2));
    }
    CHECK(two.newest() == 2);
    REQUIRE(fs::exists(two.second));
    fs::remove(two.folder / "state-000003.safetensors");
  }
}

TEST_CASE("without a valid state, or with one of a later version, the run is refused and no file is touched") {
  const auto refused = [](TwoStates& two, const std::string& part) {
    const auto before = two.folder.names();
    const std::string message = hs::test::error_of([&] { two.newest(); }, ExitCode::checkpoint);
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
    CHECK(two.folder.names() == before);
  };
  TwoStates two;
  fs::remove(two.second);
  write_safetensors(two.second, {{"weight", Tensor::zeros({1}, DType::f32)}}, {{"kind", "halfstep training state 2"}});
  refused(two, "written in version 2 of the format, this program reads up to 1");
  write_text(two.first, "x");
  write_text(two.second, "y");
  refused(two, "no state in it is valid: ");
}

}  // namespace
