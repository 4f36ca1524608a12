// The table of faults: a line of halfstep-bench, the exit code that it must end with, and a part of the one line that
// it must say. At least one row for each class of fault, seen by the program as its users run it; the tests of each
// part look closely. Faults of processes, signals and resources: tests/bench/faults.cpp. Of data files: tests/data.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/formats/idx.h"
#include "engine/files/safetensors.h"
#include "source_dir.h"
#include "tests/support/bench_faults.h"

namespace {

using namespace hs;
using namespace hs::test;
using Json = nlohmann::json;

// On one thread, so that a busy machine does not make it wait for the others.
const std::string training =
    "train --model mlp --data synthetic --train 64 --test 16 --epochs 1 --device cpu --threads 1 --quiet ";
// A fault that is noticed only after it is a hang here.
const std::string endless = training.substr(0, training.find("--epochs 1")) + "--epochs 10000 --device cpu --quiet ";
const std::string evaluation = "evaluate --data synthetic --test 10 --threads 1 --model ";

std::function<void(const fs::path&)> with_file(const std::string& name, const std::string& bytes) {
  return [=](const fs::path& folder) { write_text(folder / name, bytes); };
}

TEST_CASE("2: wrong flags (closely: tests/bench/cli.cpp)") {
  const auto link_files = [](const fs::path& folder) {
    fs::create_directory(folder / "d");
    fs::create_directory_symlink("d", folder / "e");
    write_text(folder / "a", "old");
    fs::create_symlink("a", folder / "b");
    fs::create_hard_link(folder / "a", folder / "c");
  };
  check_faults({
      {"train --\x1b[31m 1", 2, "--\\x1b[31m: unknown flag"},
      {"train -- --epochs 1", 2, "--: unknown flag"},
      {"train --augment shift", 2, "--augment shift: expected"},
      {endless + "--json x --csv ./x", 2, "--json and --csv: both go to "},
      {endless + "--html d/x --trace e/x", 2, "--trace and --html: both go to ", link_files},
      {endless + "--md a --json b", 2, "--json and --md: both go to ", link_files},
      {endless + "--md a --json c", 2, "--json and --md: both go to ", link_files},
      {"profile kernels --dot x --json x", 2, "--dot and --json: both go to "},
  });
}

// Sets of IDX, both parts: `count` square images of equal pixels.
void write_flat_set(const fs::path& folder, int64_t count, int64_t side, uint8_t pixel, int32_t classes) {
  fs::create_directories(folder);
  for (const std::string part : {"train", "t10k"}) {
    SampleInfo info;
    info.count = part == "train" ? count : std::min<int64_t>(count, 20);
    info.rows = info.columns = side;
    info.classes = 12;
    const auto writer = write_idx(folder / (part + "-images-idx3-ubyte"), folder / (part + "-labels-idx1-ubyte"), info);
    const std::vector<uint8_t> pixels(static_cast<size_t>(side * side), pixel);
    for (int64_t i = 0; i < info.count; ++i) writer->add(pixels.data(), static_cast<int32_t>(i % classes));
    writer->finish();
  }
}

TEST_CASE("2: more steps than the device's counter holds") {
  check_fault({"train --data set --train 300000 --test 10 --model mlp --batch 1 --epochs 10000 --device cpu --quiet", 2,
               "10000 epochs of 300000 steps are more than 2147483647 steps",
               [](const fs::path& folder) { write_flat_set(folder / "set", 300000, 1, 0, 10); }});
}

// A file that takes no room on the disk.
void make_sparse(const fs::path& path) {
  write_text(path, "{");
  fs::resize_file(path, uintmax_t{6} << 30);
}

TEST_CASE("3: records that are none (closely: tests/bench/record.cpp)") {
  const std::string committed = HALFSTEP_SOURCE_DIR "/bench/results/cpu/mnist_cnn.json", good = read_text(committed);
  const auto text = [](const std::string& bytes) { return with_file("r.json", bytes); };
  std::string objects = good.substr(0, good.rfind('}')) + ", \"x\": ", members = "{";
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) members += fmt::format("\"{}\":0,", i);
  check_faults({
      {"report r.json", 3, "r.json: has no record with timed rows",
       [](const fs::path& folder) { fs::create_directory(folder / "r.json"); }},
      {"compare r.json r.json", 3, "r.json: a folder, expected a regular file",
       [](const fs::path& folder) { fs::create_directory(folder / "r.json"); }},
      {"report r.json", 3, "r.json: a FIFO, expected a regular file",
       [](const fs::path& folder) { REQUIRE(mkfifo((folder / "r.json").c_str(), 0600) == 0); }},
      {"report r.json", 3, "r.json: a device, expected a regular file",
       [](const fs::path& folder) { fs::create_symlink("/dev/zero", folder / "r.json"); }},
      {"report r.json", 3, "r.json: 6442450944 bytes, above the limit of 33554432",
       [](const fs::path& folder) { make_sparse(folder / "r.json"); }},
      {"report r.json", 3, "r.json: is not JSON, at byte 1 of 0", text("")},
      {"report r.json", 3, "r.json: is not JSON, at byte 1 of", text("PK\x03\x04")},
      {"report r.json", 3, "r.json: is not JSON, at byte 1 of", text(std::string(1 << 20, '\0'))},
      {"report r.json", 3, "r.json: is not JSON, at byte", text("\xef\xbb\xbf")},
      {"report r.json", 3, "r.json: is not JSON, at byte", text("{\"a\": \"\xff\"}")},
      {"report r.json", 3, "r.json: is not JSON, at byte", text(good.substr(0, good.size() / 2))},
      {"report r.json", 3, "r.json: the number 1e999 is too large", text("{\"config\": {\"batch\": 1e999}}")},
      {"report r.json", 3, "r.json: lists and objects are nested more than 32 deep",
       text(std::string(30'000'000, '['))},
      {"report r.json", 3, "r.json: lists and objects are nested more than 32 deep", text(objects)},
      {"report r.json", 3, "r.json: an object has more than 1000 members", text(members + "\"a\":0}")},
      {"report r.json", 3, "r.json: schema is null, expected halfstep-bench-1 or halfstep-peer-1", text("[]")},
      {"report r.json", 3, "r.json: schema is \"halfstep-bench-2\"", text("{\"schema\": \"halfstep-bench-2\"}")},
      {"report r.json", 3, "r.json: environment is missing", text("{\"schema\": \"halfstep-bench-1\"}")},
  });
  Json wrong = Json::parse(good);
  wrong["rows"][0]["runs"][0]["epochs"][0]["seconds"] = "fast";
  for (const std::string line :
       {"report r.json", "report r.json --json out", "report r.json --html out", "report r.json --md out",
        "report r.json --csv out", "compare r.json good.json", "compare good.json r.json --json out"}) {
    check_fault({line, 3, "r.json: rows[0].runs[0].epochs[0].seconds is \"fast\", expected number",
                 [&](const fs::path& folder) {
                   write_text(folder / "good.json", good);
                   write_text(folder / "r.json", wrong.dump());
                 }});
  }
}

TEST_CASE("4: what cannot be read or written (closely: tests/bench/cli.cpp, tests/models/run_folder.cpp)") {
  const std::string long_name(300, 'x'), peers = "--peers " HALFSTEP_SOURCE_DIR "/bench/peers";
  std::vector<Fault> rows = {
      {evaluation + "no\x01where", 4, "no\\x01where: cannot be opened"},
      {evaluation + std::string(5000, 'x'), 4, "File name too long"},
      {evaluation + "\xff", 4, "\\xff: cannot be opened"},
      {evaluation + "$(touch${IFS}x);*", 4, "$(touch${IFS}x);*: cannot be opened"},
      {"report \xc2\x9b", 4, "\\x9b: cannot be opened"},
      {"report r.json", 4, "r.json: cannot be opened",
       [](const fs::path& folder) { fs::create_symlink("r.json", folder / "r.json"); }},
      {endless + "--json no/r.json", 4, "no/r.json"},
      {endless + "--json .", 4, "is a directory"},
      {endless + "--json " + long_name, 4, "too long"},
      {endless + "--trace " + long_name, 4, "too long"},
      {"data convert synthetic " + long_name + " --quiet", 4, "too long"},
      {endless + "--json pipe", 4, "is a pipe that no program reads",
       [](const fs::path& folder) { REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0); }},
      {training + "--save file", 4, "file: cannot be created: Not a directory", with_file("file", "")},
      {training + "--save run", 4, "run/lock: cannot be written",
       [](const fs::path& folder) {
         fs::create_directory(folder / "run");
         write_text(folder / "victim", "precious");
         fs::create_symlink(folder / "victim", folder / "run" / "lock");
       }},
      {"kernel build k.cpp", 4, "set TMPDIR", with_file("k.cpp", ""), {}, {"TMPDIR=/nonexistent"}},
  };
  for (const std::string flag : {"--save", "--save-model", "--tensorboard", "--json"}) {
    rows.push_back({training + flag + " /proc/x/y", 4, "/proc/x"});
  }
  for (const std::string& command : Words{"bench loader", "techniques", "bench peers " + peers}) {
    rows.push_back({command + " --data synthetic --quiet", 4, "set TMPDIR", {}, {}, {"TMPDIR=/nonexistent"}});
  }
  check_faults(rows);
}

// A trained model, and a folder with the states of a run, made once.
struct Files {
  Files() {
    run_successfully(training + "--save-model " + model.string());
    run_successfully(training + "--batch 16 --save-every 2st --save " + run.string());
  }
  TemporaryFolder folder;
  const fs::path model = folder / "digits.safetensors", run = folder / "run";
};
const Files& files() {
  static const Files all;
  return all;
}

void flip_a_bit(const fs::path& file) {
  std::string bytes = read_text(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 16);
  write_text(file, bytes);
}

TEST_CASE("5, 6: models that do not fit (closely: tests/engine/safetensors.cpp, tests/models/model_file.cpp)") {
  for (const float value : {std::nanf(""), HUGE_VALF}) {  // with right checksums
    check_fault({evaluation + "bad --json r.json", 6, "is not finite", [&](const fs::path& folder) {
                   const SafetensorsFile file(files().model);
                   std::vector<NamedTensor> tensors;
                   for (const SafetensorsEntry& entry : file.entries())
                     tensors.push_back({entry.name, file.read(entry)});
                   tensors[0].tensor.mutable_data<float>()[7] = value;
                   write_safetensors(folder / "bad", tensors, file.metadata());
                 }});
  }
  for (const std::string& line : {evaluation + "bad --json r.json", std::string("predict --test --model bad"),
                                  std::string("export --onnx x --model bad")}) {
    check_fault({line, 5, "has the CRC32C", [](const fs::path& folder) {
                   fs::copy_file(files().model, folder / "bad");
                   flip_a_bit(folder / "bad");
                 }});
  }
}

TEST_CASE("2: an output in the place of an input; 5: states that are no models, and a header of 100,000 tensors") {
  const auto with_model = [](const fs::path& folder) {
    fs::copy_file(files().model, folder / "m");
    fs::create_hard_link(folder / "m", folder / "link");
    fs::copy(files().run, folder / "run");
    write_text(folder / "k.cpp", R"({"epochs": 1})");
  };
  std::string header = R"({"__metadata__":{"a":"b"})";
  for (int i = 0; i < 100'000; ++i)
    header += fmt::format(R"(,"t{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i);
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>((header.size() + 1) >> 8 * i & 0xff);
  const std::string next = "; halfstep-bench train --resume run --save-model FILE writes its model";
  check_faults({
      {evaluation + "m --json ./m", 2, "--json ./m: is a file that is read, and would be replaced", with_model},
      {"export --model m --onnx link", 2, "--onnx link: is a file that is read", with_model},
      {endless + "--start m --json link", 2, "--json link: is a file that is read", with_model},
      {endless + "--recipe k.cpp --save-model k.cpp", 2, "--save-model k.cpp: is a file that is read", with_model},
      {"kernel build k.cpp --output ./k.cpp", 2, "--output ./k.cpp: is a file that is read", with_model},
      {evaluation + "run", 2, "--model run: is the state of a run" + next, with_model},
      {"predict --model run/state-000002.safetensors --test", 2, next, with_model},
      {evaluation + "big", 5, "its metadata have no format", with_file("big", length + header + "}")},
  });
}

TEST_CASE("5: a damaged state (closely: tests/models/run_folder.cpp; other runs: tests/bench/saving.cpp)") {
  const TemporaryFolder folder;
  fs::copy(files().run, folder / "run");
  flip_a_bit(folder / "run/state-000002.safetensors");
  const Ended older = run_successfully(training + "--batch 16 --resume run", {.folder = folder.path});
  CHECK(contains(older.err, "has the CRC32C "));
  CHECK(contains(older.err, "; going back to state-000001.safetensors"));
}

TEST_CASE("6: runs that diverge name the first tensor that is not finite, and write no NaN") {
  const std::string run = endless + "--optimizer sgd --lr 1000 --threads 1 ";
  for (const std::string type : {"f32", "bf16", "f16"}) {
    check_fault({run + "--save-model m --precision " + type, 6, "first tensor that is not finite: "});
  }
  check_fault({run + "--repeat 3", 6, "3 of 3 runs diverged; run 1: "});  // one is no reason to end the others
  const TemporaryFolder folder;
  const Ended diverged = run_bench_line(run + "--json r.json --html r.html", {.folder = folder.path});
  CHECK(diverged.code == 6);
  CHECK_FALSE(contains(diverged.err, "-nan"));
  const Json row = Json::parse(read_text(folder / "r.json"))["rows"][0];
  CHECK(contains(row["error"], "not finite"));
  for (const char* name : {"seconds", "test_accuracy", "weights_sha256"}) CHECK(row[name].is_null());
  CHECK(fs::file_size(folder / "r.html") < 10'000'000);
}

TEST_CASE("0: what must work though it looks odd") {
  const TemporaryFolder folder;
  const auto works = [&](const std::string& line) {
    CAPTURE(line);
    const Ended ended = run_successfully(line, {.folder = folder.path});
    return ended;
  };
  for (const std::string& name : Words{"a\u00fc", "../" + folder.path.filename().string() + "/c", "\xff", "$(x)"}) {
    works(training + "--save " + name);
    CHECK(fs::exists(folder.path / name / "state-000001.safetensors"));
    works(training + "--resume " + name);
  }
  CHECK(contains(works("profile kernels --data synthetic --html \x1b[31m.html").err, "report: \\x1b[31m.html\n"));
  const std::string set = "<script>alert(1)<", run = "train --model mlp --device cpu --threads 1 --epochs 1 --quiet ";
  works("data convert synthetic --train 20 --test 20 --quiet " + set);
  works(run + "--train 20 --test 20 --html r.html --data " + set);
  CHECK_FALSE(contains(read_text(folder / "r.html"), "<script>alert"));
  write_text(folder / "target", "old");  // engine/files/output_file.h: the file is replaced, not the link
  fs::create_symlink("target", folder / "link");
  works(training + "--save-model link");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(read_text(folder / "target").substr(8, 1) == "{");
  works(training + "--batch 1000");
  works(training + "--batch 16 --accumulate 1000");
  works(training + "--batch=8 --lr 1e-3");
  works(run + "--data synthetic --train 1 --test 1");
  for (const uint8_t pixel : {0, 7, 255}) {
    write_flat_set(folder / "flat", 20, 28, pixel, 10);
    works(run + "--data flat --train 20 --test 20 --json flat.json");
    CHECK(Json::parse(read_text(folder / "flat.json"))["rows"][0]["final_loss"].is_number());
    fs::remove_all(folder / "flat");
  }
  // Labels make classes that have no image. It is said, and the training goes on.
  write_flat_set(folder / "one", 20, 28, 9, 1);
  works(run + "--data one --train 20 --test 20");
  write_flat_set(folder / "gap", 20, 28, 9, 12);
  CHECK_FALSE(contains(works(run + "--data gap --train 20 --test 20").err, "without a training image"));
  const fs::path labels = folder / "gap" / "train-labels-idx1-ubyte";
  std::string bytes = read_text(labels);
  for (char& label : bytes) label = &label - bytes.data() >= 8 && label == 10 ? '\0' : label;
  write_text(labels, bytes);
  CHECK(contains(works(run + "--data gap --train 20 --test 20").err,
                 "gap: 12 classes, but 1 of them without a training image, the first with the label 10"));
}

TEST_CASE("4: a disk that is full (closely: tests/bench/saving.cpp)") {
  const auto limit = fs::file_size(files().model);
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{limit / 2}, rlim_t{limit - 1}}) {
    CAPTURE(bytes);
    const TemporaryFolder folder;
    write_text(folder / "m", "old");
    Ended model = run_bench_line(training + "--save-model m", {.folder = folder.path, .file_limit = bytes});
    CHECK(contains(std::exchange(model.out, ""), "summary"));  // the terminal takes the table all the same
    check_one_line(model, 4, "m: cannot be written: File too large");
    CHECK(read_text(folder / "m") == "old");
    Ended run = run_bench_line(training + "--save run", {.folder = folder.path, .file_limit = bytes});
    if (bytes > 1) CHECK(contains(std::exchange(run.out, ""), "summary"));
    check_one_line(run, 4,
                   bytes == 1 ? "run/lock: cannot be written: No space left" : ": cannot be written: File too large");
    CHECK(folder.names() == std::set<std::string>{"m", "run"});
    for (const auto& entry : fs::directory_iterator(folder / "run")) CHECK(entry.path().filename() == "lock");
    if (bytes > 1) continue;  // a trace is smaller than a model
    CHECK(run_bench_line(training + "--trace m", {.folder = folder.path, .file_limit = bytes}).code == 4);
    CHECK(read_text(folder / "m") == "old");
  }
}

#ifdef HALFSTEP_FAILING_CALLS  // none under AddressSanitizer, which has such calls of its own

std::vector<std::string> failing(const std::string& plan, const fs::path& mark) {
  return {"HALFSTEP_FAULT=" + plan, "LD_PRELOAD=" HALFSTEP_FAILING_CALLS, "HALFSTEP_FAULT_MARK=" + mark.string()};
}

TEST_CASE("130, 143: signals while a state is written, and while the loader waits for a disk that does not answer") {
  const TemporaryFolder folder;
  const fs::path mark = folder / "mark";
  const auto stopped = [&](const std::string& line, const std::string& plan, int signal) {
    fs::remove(mark);
    Surroundings around{.folder = folder.path, .variables = failing(plan, mark), .patience = 240};
    around.ask = [&](const std::string&) { return fs::exists(mark) ? signal : 0; };
    return run_bench_line(line, around);
  };
  const std::string longer =
      "train --model mlp --train 20000 --test 16 --epochs 1 --batch 8 --device cpu --threads 1 --quiet ";
  const Ended saving = stopped(longer + "--data synthetic --save run --save-every 1st", "fsync 1 late", SIGTERM);
  check_one_line(saving, 143, "and saved; continue with halfstep-bench train --resume run");
  run_successfully("data convert synthetic set --format pgm --train 400 --test 20 --quiet", {.folder = folder.path});
  const Ended blocked = stopped(
      "train --model mlp --data set --train 400 --test 20 --epochs 1000 --cache none --device cpu --threads 1 --quiet",
      "pread 1200 blocks", SIGINT);
  check_one_line(blocked, 130, "stopped by SIGINT while running train");
}

#endif

}  // namespace
