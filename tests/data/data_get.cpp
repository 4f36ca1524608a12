// The scripts that bring data sets: data/get, run by /bin/bash against mirrors that are folders (file://) and fail in
// different ways, and data/import, against small files of other formats.
#include <sys/stat.h>

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "data/open_dataset.h"
#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs::test;

constexpr const char* first_file = "train-images-idx3-ubyte";

std::string url(const fs::path& folder) { return "file://" + folder.string(); }

using Settings = std::vector<std::pair<std::string, std::optional<std::string>>>;

struct Result {
  int code;
  std::string out, error;
};

// Runs data/get in `folder`, with its output in files there. `first` is a command of the shell that becomes the script.
Result get(const TemporaryFolder& folder, const std::vector<std::string>& arguments, const Settings& environment = {},
           const std::string& first = "") {
  std::string line = "cd '" + folder.path.string() + "'; " + first + "exec >out.txt 2>error.txt env";
  for (const auto& [name, value] : environment) line += value ? " " + name + "='" + *value + "'" : " -u " + name;
  line += " /bin/bash '" HALFSTEP_SOURCE_DIR "/data/get'";
  for (const std::string& argument : arguments) line += " '" + argument + "'";
  const int code = run_shell(line).status;
  return {code, read_text(folder / "out.txt"), read_text(folder / "error.txt")};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_failure(const Result& result, int code, const std::string& part) {
  CAPTURE(result.error);
  CHECK(result.code == code);
  CHECK(contains(result.error, part));
  CHECK(result.error.starts_with("data/get: "));
  CHECK(result.error.find('\n') == result.error.size() - 1);  // one line
}

int files_below(const fs::path& folder) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) count += !entry.is_directory();
  return count;
}

bool has(const std::string& tool) { return std::system(("command -v " + tool + " >/dev/null").c_str()) == 0; }

TEST_CASE("get: usage") {
  const TemporaryFolder folder;
  const Result help = get(folder, {"--help"});
  CHECK(help.code == 0);
  for (const char* part : {"usage: data/get mnist [DIR]", "HALFSTEP_MIRRORS", "exit codes:"}) {
    CHECK(contains(help.out, part));
  }
  check_failure(get(folder, {}), 2, "try: data/get mnist [DIR]");
  check_failure(get(folder, {"mnist", "a", "b"}), 2, "at most one folder");
  check_failure(get(folder, {"cifar"}), 2, "no data set is called 'cifar', expected: mnist");
  check_failure(get(folder, {"mnist", ""}), 2, "DIR is empty");
  check_failure(get(folder, {"mnist"}, {{"HOME", {}}}), 2, "HOME is not set");
}

TEST_CASE("get: no tools, and places that cannot be written") {
  const TemporaryFolder folder;
  check_failure(get(folder, {"mnist", "x"}, {{"PATH", "/nonexistent"}}), 4, "needs curl or wget, found neither");
  write_text(folder.path / "file", "");
  check_failure(get(folder, {"mnist", "file"}), 4, "file exists and is not a folder");
  check_failure(get(folder, {"mnist", "file/below"}), 4, "cannot create the folder");
}

TEST_CASE("get: no mirror works, nothing is left behind") {
  const TemporaryFolder folder, mirrors;
  const fs::path none = mirrors.path / "none", damaged = mirrors.path / "damaged", text = mirrors.path / "text";
  write_text(damaged / (std::string(first_file) + ".gz"), std::string("\x1f\x8b\x08\0\0\0", 6));
  write_text(text / (std::string(first_file) + ".gz"), "<html>not found</html>");
  const Result result =
      get(folder, {"mnist", "a/b c"}, {{"HALFSTEP_MIRRORS", url(none) + " " + url(damaged) + "/ " + url(text)}});
  check_failure(result, 4, "no mirror gave all files of MNIST: ");
  for (const fs::path& mirror : {none, damaged, text}) CHECK(contains(result.error, url(mirror)));
  CHECK(files_below(folder.path) == 2);  // the output of the script
  CHECK(fs::is_empty(folder.path / "a"));
}

TEST_CASE("get: the sums are of the unpacked bytes, which a mirror may have packed anew, or not at all") {
  const TemporaryFolder folder, mirror;
  write_text(mirror.path / first_file, "not the images");
  for (const char* set : {"mnist", "fashion_mnist"}) {
    const Result result = get(folder, {set, "x"}, {{"HALFSTEP_MIRRORS", mirror.path.string()}});
    check_failure(result, 4, "(" + std::string(first_file) + " is damaged, or the disk is full)");
  }
}

TEST_CASE("get: ended by a signal while downloading, nothing is left behind") {
  if (!has("curl")) {
    MESSAGE("skipped: no curl, so no file:// mirror");
    return;
  }
  const TemporaryFolder folder, mirror;
  const fs::path fifo = mirror.path / (std::string(first_file) + ".gz");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  // The pipe opens as soon as curl reads it: the download is then under way, and stays so until the script has ended.
  const std::string signal =
      "(exec >'" + fifo.string() + "'; ls -A a >seen; kill $$; while kill -0 $$; do :; done) 2>/dev/null & ";
  const Result result = get(folder, {"mnist", "a/b"}, {{"HALFSTEP_MIRRORS", url(mirror.path)}}, signal);
  CHECK(result.code == 143);
  CHECK(!read_text(folder / "seen").empty());
  CHECK(fs::is_empty(folder.path / "a"));
}

TEST_CASE("get: a mirror fails, the next one goes on; a complete folder is left alone") {
  const char* data = std::getenv("HALFSTEP_DATA");
  const fs::path mnist = fs::path(data ? data : "") / "mnist";
  const std::string packed = std::string(first_file) + ".gz";
  if (data == nullptr || !fs::exists(mnist / packed) || !has("curl")) {
    MESSAGE("skipped: needs the .gz files of MNIST in $HALFSTEP_DATA/mnist, and curl");
    return;
  }
  const TemporaryFolder folder, damaged;
  const std::string bytes = read_text(mnist / packed);
  write_text(damaged.path / packed, bytes.substr(0, bytes.size() - 1));
  const Settings mirrors = {{"HALFSTEP_MIRRORS", url(damaged.path) + " " + url(mnist)}};
  const Result result = get(folder, {"mnist", "a/b c/"}, mirrors);
  CHECK_MESSAGE(result.code == 0, result.error);
  CHECK(result.error.empty());
  CHECK(contains(result.out, "MNIST is in " + (folder.path / "a/b c").string()));
  const fs::path target = folder.path / "a" / "b c";
  CHECK(files_below(folder.path / "a") == 4);
  CHECK(fs::file_size(target / first_file) == 47040016);
  CHECK(fs::file_size(target / "t10k-labels-idx1-ubyte") == 10008);

  const Settings dead = {{"HALFSTEP_MIRRORS", url(folder.path / "none")}};
  CHECK(contains(get(folder, {"mnist", "a/b c"}, dead).out, "is complete and valid, nothing to do"));
  CHECK(contains(get(folder, {"mnist", mnist.string()}, dead).out, "is complete and valid, nothing to do"));

  // One file damaged: only that one is fetched again.
  std::ofstream(target / "t10k-labels-idx1-ubyte", std::ios::app) << "x";
  check_failure(get(folder, {"mnist", "a/b c"}, dead), 4, "no t10k-labels-idx1-ubyte.gz");
  CHECK(fs::file_size(target / "t10k-labels-idx1-ubyte") == 10009);
  const Result repaired = get(folder, {"mnist", "a/b c"}, {{"HALFSTEP_MIRRORS", url(mnist)}});
  CHECK(repaired.code == 0);
  CHECK(!contains(repaired.out, first_file));
  CHECK(fs::file_size(target / "t10k-labels-idx1-ubyte") == 10008);
  CHECK(files_below(folder.path / "a") == 4);
}

TEST_CASE("get: Tiny Shakespeare is one file, stored as it is published") {
  const char* data = std::getenv("HALFSTEP_DATA");
  const fs::path text = fs::path(data ? data : "") / "tinyshakespeare";
  if (data == nullptr || !fs::exists(text / "input.txt")) {
    MESSAGE("skipped: needs $HALFSTEP_DATA/tinyshakespeare/input.txt");
    return;
  }
  const TemporaryFolder folder, damaged;
  write_text(damaged.path / "input.txt", read_text(text / "input.txt") + "x");
  check_failure(get(folder, {"tinyshakespeare", "a"}, {{"HALFSTEP_MIRRORS", damaged.path.string()}}), 4,
                "no mirror gave all files of Tiny Shakespeare: ");
  CHECK(!fs::exists(folder.path / "a"));
  const Settings mirrors = {{"HALFSTEP_MIRRORS", damaged.path.string() + " " + text.string()}};
  const Result result = get(folder, {"tinyshakespeare", "a"}, mirrors);
  CHECK_MESSAGE(result.code == 0, result.error);
  CHECK(read_text(folder.path / "a" / "input.txt") == read_text(text / "input.txt"));
  CHECK(contains(get(folder, {"tinyshakespeare", "a"}, mirrors).out, "is complete and valid, nothing to do"));
}

// Pixel j of image i is 40 i + j, and the classes are b, a, b, c: as Hugging Face stores them, in two files and in one
// with a bad label; as rows of numbers; and in colour, channels first.
constexpr const char* make_sets = R"(
import io, json, sys
import h5py, numpy as np, pyarrow as pa, pyarrow.parquet as pq
from PIL import Image
images = np.arange(4, dtype=np.uint8)[:, None] * 40 + np.arange(36, dtype=np.uint8)
def png(image):
    to = io.BytesIO()
    Image.fromarray(image.reshape(6, 6)).save(to, "PNG")
    return {"bytes": to.getvalue(), "path": None}
told = json.dumps({"info": {"features": {"label": {"names": ["b", "a", "c"], "_type": "ClassLabel"}}}})
kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
for name, labels in ("train-0", [0, 1, 0, 2]), ("validation-0", [0]), ("bad", [0, 1, 0, 3]):
    table = pa.table({"image": pa.array([png(image) for image in images[:len(labels)]], kind), "label": labels})
    pq.write_table(table.replace_schema_metadata({"huggingface": told}), sys.argv[1] + f"/{name}.parquet")
pq.write_table(pa.table({"pixels": images.tolist(), "label": list("babc")}), sys.argv[1] + "/flat.parquet")
with h5py.File(sys.argv[1] + "/colour.h5", "w") as file:
    file["x_train"], file["y_train"] = images.reshape(4, 3, 2, 6), [[1], [0], [1], [2]]
# What points at other files, or claims to be large.
import os
to = sys.argv[1] + "/hostile"
os.mkdir(to)
Image.fromarray(images[0].reshape(6, 6)).save(sys.argv[1] + "/secret.png")
with h5py.File(to + "/external.h5", "w") as file:
    file.create_dataset("x", (1, 6, 6), "u1", external=[(sys.argv[1] + "/secret.png", 0, 36)])
    file["y"] = [0]
with h5py.File(to + "/linked.h5", "w") as file:
    layout = h5py.VirtualLayout((4, 36), "u1")
    layout[:] = h5py.VirtualSource("../colour.h5", "x_train", (4, 36))
    file.create_virtual_dataset("x", layout)
    file["y"] = [0] * 4
with h5py.File(to + "/large.h5", "w") as file:
    file.create_dataset("x", (1, 10**6, 10**6), "u1", chunks=(1, 1000, 1000))
    file["y"] = [0]
eps = io.BytesIO()
Image.fromarray(images[0].reshape(6, 6)).save(eps, "EPS")
for name, image in ("named", {"bytes": None, "path": sys.argv[1] + "/secret.png"}), ("program", {"bytes": eps.getvalue(), "path": None}):
    pq.write_table(pa.table({"image": pa.array([image], kind), "label": [0]}), f"{to}/{name}.parquet")
)";

TEST_CASE("import: Parquet and HDF5 become folders with the same pixels, labels and names, or nothing") {
  const TemporaryFolder folder;
  if (!python_has("pyarrow h5py PIL numpy")) return;
  write_text(folder / "make.py", make_sets);
  const std::string at = "'" + folder.path.string() + "/";
  REQUIRE(run_python(at + "'", (folder / "make.py").string()).status == 0);
  const auto run = [&](const std::string& words) { return run_python(words + " 2>&1", "data/import"); };
  const auto bad = run(at + "bad.parquet' " + at + "out'");
  CHECK(bad.status == 3);
  CHECK(contains(bad.output, "bad.parquet: sample 3 of train: label 3, expected"));
  CHECK(!fs::exists(folder / "out"));
  fs::remove(folder / "bad.parquet");
  fs::create_directory(folder / "hf");
  for (const char* name : {"train-0.parquet", "validation-0.parquet"}) fs::rename(folder / name, folder / "hf" / name);

  const int order[] = {1, 0, 2, 3};  // by class, then as they were
  for (const std::string name : {"hf", "flat.parquet", "colour.h5"}) {
    const std::string to = (folder / "out" / name).string();
    const auto made = run(at + name + "' '" + to + "'");
    REQUIRE_MESSAGE(made.status == 0, made.output);
    const bool colour = name == "colour.h5";
    const auto source = hs::open_dataset(to, hs::Part::train);
    CHECK(source->info().shape() == (colour ? hs::ImageShape{2, 6, 3} : hs::ImageShape{6, 6, 1}));
    const std::vector<std::string> names = {"a", "b", "c"};  // numbers are not names
    CHECK(source->info().class_names == (colour ? std::vector<std::string>{} : names));
    CHECK(fs::exists(folder / "out" / name / "test/c") == (name == "hf"));  // empty there
    for (int i = 0; i < 4; ++i) {
      std::vector<uint8_t> image(36), expected(36);
      source->read(i, image.data());
      for (size_t j = 0; j < 36; ++j) {
        expected[j] = static_cast<uint8_t>(40 * order[i] + static_cast<int>(colour ? j % 3 * 12 + j / 3 : j));
      }
      CHECK(image == expected);
      CHECK(source->label(i) == std::array{0, 1, 1, 2}[static_cast<size_t>(i)]);
    }
  }
  for (const auto& [name, part] : {std::pair<std::string, std::string>{"linked.h5", "is kept in other files"},
                                   {"external.h5", "is kept in other files"},
                                   {"named.parquet", "/secret.png is no file in "},
                                   {"large.h5", "x has more than 67108864 numbers a sample"},
                                   {"program.parquet", "cannot identify image file"}}) {
    const auto refused = run(at + "hostile/" + name + "' " + at + "none'");
    CHECK(refused.status == 3);
    CHECK_MESSAGE(contains(refused.output, part), refused.output);
    CHECK(!contains(refused.output, "Traceback"));
  }
  const auto again = run(at + "hf' " + at + "out/hf'");
  CHECK(again.status == 4);
  CHECK(contains(again.output, "exists and is not an empty folder"));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "out")) {
    CHECK(!entry.path().filename().string().starts_with('.'));  // no temporary folder is left
  }
}

TEST_CASE("import: pairs of a text become symbols, and come back as they were") {
  const TemporaryFolder folder;
  if (!python_has("numpy")) return;
  const std::string at = "'" + folder.path.string() + "/";
  const auto run = [&](const std::string& words) { return run_python(words + " 2>&1", "data/import"); };
  std::string text, all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (uint32_t i = 0, x = 1; i < 4000; ++i, x = x * 1103515245 + 12345) {  // 251 and above, and 0, are left
    text += i % 100 ? all.substr(1 + (x >> 16) % 250, 1) : "aaaab";
  }
  write_text(folder / "some.txt", text);
  write_text(folder / "all.txt", all);
  const auto made = run(at + "some.txt' " + at + "set' --vocabulary 253");
  REQUIRE_MESSAGE(made.status == 0, made.output);
  CHECK(contains(made.output, " symbols, of 251 kinds, for 4160 bytes; "));  // aaaab is one; aa and aaaa are gone
  CHECK(contains(made.output, "4000 symbols"));
  CHECK(hs::open_dataset((folder / "set").string(), hs::Part::train)->info().classes == 251);
  REQUIRE(run(at + "set' --decode < " + at + "set/input.txt' > " + at + "back'").status == 0);
  CHECK(read_text(folder / "back") == text);
  REQUIRE(run(at + "set' --encode < " + at + "some.txt' > " + at + "again'").status == 0);
  CHECK(read_text(folder / "again") == read_text(folder / "set/input.txt"));
  // Any other text of the same bytes comes back too, whatever of it the pairs make.
  std::string other;
  for (uint32_t i = 0, x = 7; i < 4000; ++i, x = x * 1103515245 + 12345)
    other += (x >> 16) % 3 ? std::string((x >> 20) % 6, 'a') + "b" : all.substr(1 + (x >> 16) % 250, 1);
  write_text(folder / "other.txt", other);
  REQUIRE(run(at + "set' --encode < " + at + "other.txt' > " + at + "coded'").status == 0);
  REQUIRE(run(at + "set' --decode < " + at + "coded' > " + at + "back'").status == 0);
  CHECK(read_text(folder / "back") == other);
  CHECK(contains(run(at + "set' --encode < " + at + "all.txt'").output, "byte 0 is none of the text that "));
  CHECK(contains(run(at + "all.txt' " + at + "none'").output, "has 256 of the 256 values of a byte; expected"));
  CHECK(contains(run(at + "some.txt' " + at + "none' --vocabulary 250").output, "expected 251 to 256, as the text"));
  CHECK(!fs::exists(folder / "none"));
  // Tables that would take all memory, or all of the stack.
  std::string doubling = R"({"bytes": [97], "pairs": [[0, 97, 97])";
  for (int i = 1; i < 40; ++i) doubling += fmt::format(", [{}, {}, {}]", i, i - 1, i - 1);
  for (const std::string& table : {doubling + "]}", std::string(100'000, '['), std::string("{}")}) {
    write_text(folder / "set/pairs.json", table);
    const auto refused = run("--decode " + at + "set' < " + at + "coded'");
    CHECK(refused.status == 3);
    CHECK(!contains(refused.output, "Traceback"));
  }
  REQUIRE(mkfifo((folder / "pipe.txt").c_str(), 0600) == 0);
  CHECK(contains(run(at + "pipe.txt' " + at + "none'").output, "pipe.txt: not a regular file"));
}

}  // namespace
