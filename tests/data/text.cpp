// A text as windows of symbols: the vocabulary, the two splits, where windows begin, and files that are not one.
#include "data/formats/text.h"
#include "data/open_dataset.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

// 100 bytes: byte i is "edcba"[i % 5], but the last one is a byte above 127 that only the test split has.
Bytes hundred() {
  Bytes bytes;
  for (size_t i = 0; i < 99; ++i) bytes.push_back(static_cast<uint8_t>("edcba"[i % 5]));
  bytes.push_back(0xfe);
  return bytes;
}

TEST_CASE("the symbols are the bytes of the whole file, sorted; windows begin every quarter of a context") {
  const TemporaryFolder folder;
  write_bytes(folder / "input.txt", hundred());
  const SetIdentity set{"hundred"};
  for (const int64_t context : {1, 2, 4, 8, 9}) {
    CAPTURE(context);
    for (const bool training : {true, false}) {
      CAPTURE(training);
      const auto source = open_text(folder / "input.txt", set, training, {context});
      const SampleInfo& info = source->info();
      CHECK(info.name == "hundred");
      CHECK(info.is_text());
      CHECK(info.vocabulary == Vocabulary{"a", "b", "c", "d", "e", "\xfe"});
      CHECK(info.classes == 6);
      CHECK(info.shape() == ImageShape{1, context + 1, 1});
      const int64_t begin = training ? 0 : 90, size = training ? 90 : 10;
      const int64_t stride = training ? std::max<int64_t>(1, context / 4) : context;
      CHECK(info.count == (size - context - 1) / stride + 1);
      CHECK(info.overlap * stride <= context);       // so far on, a window begins with a symbol of this one
      CHECK((info.overlap + 1) * stride > context);  // and there with a later one
      int wrong = 0;
      for (int64_t i = 0; i < info.count; ++i) {
        const Bytes window = read_image(*source, i);
        for (int64_t t = 0; t <= context; ++t) {
          const int64_t at = begin + i * stride + t;
          wrong += window[static_cast<size_t>(t)] != (at == 99 ? 5 : 4 - at % 5);
        }
        wrong += source->label(i) != window.back();
      }
      CHECK(wrong == 0);
      CHECK((info.count - 1) * stride + context + 1 <= size);          // the last window ends within the split
      CHECK((info.count - 1) * stride + context + 1 + stride > size);  // and another one would not
    }
  }
}

// A code point of three bytes.
std::string han(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  return {byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63))};
}

TEST_CASE("the symbols of UTF-8 are its characters, up to 512, of two bytes each above 256; of other texts the bytes") {
  const TemporaryFolder folder;
  const fs::path file = folder / "input.txt";
  struct Case {
    uint32_t kinds;     // of characters, from U+4E00 on
    std::string extra;  // at the end
    size_t symbols;
    int64_t width;
    const char* remark;
  };
  for (const auto& [kinds, extra, symbols, width, remark] :
       {Case{1, "", 1, 1, ""},
        {255, "a", 256, 1, ""},
        {256, "\xc3\xa4", 257, 2, ""},
        {512, "", 512, 2, ""},
        {513, "", 64 + 2, 1, "513 different characters, more than 512: read as bytes"},
        {2, "\xe4", 4, 1, "byte 12312 is not UTF-8: read as bytes"}}) {
    CAPTURE(kinds);
    std::string text;
    for (uint32_t i = 0; i < 4104; ++i) text += han(0x4e00 + i * 7 % kinds);
    text += extra;
    write_text(file, "\uFEFF" + text);  // a byte order mark, which is none of the text
    std::string read;
    int wrong = 0;
    for (const bool training : {true, false}) {
      const auto source = open_text(file, {}, training, {1});
      const SampleInfo& info = source->info();
      CHECK(info.vocabulary.size() == symbols);
      CHECK(std::ranges::is_sorted(info.vocabulary));
      CHECK(info.shape() == ImageShape{1, 2, width});
      CHECK(info.remark.find("the byte order mark at its beginning is left out") ==
            (training ? file.string().size() + 2 : std::string::npos));
      for (int64_t i = 0; i < info.count; ++i) {
        const Bytes window = read_image(*source, i);
        const auto symbol = [&](size_t t) { return width == 1 ? window[t] : window[2 * t] + 256 * window[2 * t + 1]; };
        if (i == 0) read += info.vocabulary[static_cast<size_t>(symbol(0))];
        read += info.vocabulary[static_cast<size_t>(symbol(1))];
        wrong += source->label(i) != symbol(1);
      }
      if (training) CHECK(info.remark.ends_with(*remark != 0 ? remark : "left out"));
    }
    CHECK((read == text));
    CHECK(wrong == 0);
  }
}

TEST_CASE("a text with a model's symbols: other characters are named, or left out; bytes stay bytes") {
  const TemporaryFolder folder;
  const fs::path file = folder / "input.txt";
  const auto opened = [&](const Vocabulary& vocabulary, bool drops) {
    return open_text(file, {}, true, {1, vocabulary, drops, ": --drop"});
  };
  std::string text;
  for (int i = 0; i < 10; ++i) text += "a\u00e4b";
  write_text(file, text);
  CHECK(opened({"b", "a", "\u00e4"}, false)->info().count == 26);
  CHECK(opened({"a", "b", "\xc3", "\xa4"}, false)->info().count == 35);  // of a model of bytes
  check_refused(outcome_of([&] {
                  opened({"a", "b", "\xc3"}, false);
                }),
                ExitCode::bad_input, file.string(),
                "has \"\u00e4\" and 9 more, which are none of the model's 3 symbols; use a text without them, or "
                "leave them out: --drop");
  const auto kept = opened({"b", "a"}, true);
  CHECK(kept->info().count == 17);
  CHECK(read_image(*kept, 0) == Bytes{1, 0});
  CHECK(kept->info().remark.ends_with("left out \"\u00e4\" and 9 more, which are none of the model's 2 symbols"));
}

TEST_CASE("a text is found by its folder, its file or its name, with the context that was asked for") {
  const TemporaryFolder folder;
  write_bytes(folder / "set" / "input.txt", hundred());
  write_bytes(folder / "play.txt", hundred());
  for (const fs::path& path : {folder / "set", folder / "play.txt", folder.path}) {
    FoundDataset found = find_dataset(path.string());
    CHECK(found.format == DataFormat::text);
    CHECK(found.text.context == 128);
    CHECK(std::string(name(found.format)) == "text");
    found.text.context = 4;
    const auto train = open_dataset(found, Part::train), test = open_dataset(found, Part::test, 1);
    CHECK(train->info().count == 86);
    CHECK(test->info().count == 1);
    CHECK(train->info().vocabulary == test->info().vocabulary);
    check_one_set("set", train->info(), test->info());
    CHECK(describe(train->info(), test->info()).ends_with("86 training and 1 test windows of 6 symbols"));
  }
  write_bytes(folder / "another.txt", hundred());
  check_refused(outcome_of([&] { find_dataset(folder.path.string()); }), ExitCode::bad_input, folder.path.string(),
                "no data set in this folder");
  SampleInfo other = open_text(folder / "play.txt", {}, false, {4})->info();
  const SampleInfo info = other;
  other.vocabulary.back() = "z";
  check_refused(outcome_of([&] { check_one_set("set", info, other); }), ExitCode::bad_input, "set: ", "not of one set");
  SampleInfo pets = info, others = info;
  pets.class_names = {"cat", "dog"}, others.class_names = {"cat", "eel"};
  check_refused(outcome_of([&] { check_one_set("set", pets, others); }), ExitCode::bad_input,
                "set: ", "class 1 is dog in training, but eel in the test");
  write_bytes(folder / "set" / "train-images-idx3-ubyte", {});
  check_refused(outcome_of([&] { find_dataset((folder / "set").string()); }), ExitCode::bad_input,
                (folder / "set").string(), "files of two formats, idx and text");
}

TEST_CASE("too short for a window, empty, missing, no file: refused in one line") {
  const DamagedFile train([](const fs::path& path) { open_text(path, {}, true, {9}); }, "input.txt");
  const DamagedFile test([](const fs::path& path) { open_text(path, {}, false, {9}); }, "input.txt");
  const Bytes bytes = hundred();
  train.check_refused({}, "0 of its 0 symbols are for training, expected at least 10, a context of 9");
  train.check_refused(first_bytes(bytes, 11), "9 of its 11 symbols are for training, expected at least 10");
  CHECK(train.read(first_bytes(bytes, 12)).code == ExitCode::ok);
  test.check_refused(first_bytes(bytes, 90), "9 of its 90 symbols are for the test, expected at least 10");
  CHECK(test.read(first_bytes(bytes, 91)).code == ExitCode::ok);
  const TemporaryFolder folder;
  const std::string path = (folder / "input.txt").string();
  check_refused(outcome_of([&] { open_text(path, {}, true); }), ExitCode::io, path, "No such file");
  fs::create_directory(path);
  check_refused(outcome_of([&] { open_text(path, {}, true); }), ExitCode::bad_input, path, "");
  for (const int64_t context : {0, 512}) {
    CHECK(outcome_of([&] { open_text(path, {}, true, {context}); }).code == ExitCode::usage);
  }
}

TEST_CASE("Tiny Shakespeare has 65 symbols, a tenth of it for the test") {
  const char* data = std::getenv("HALFSTEP_DATA");
  if (data == nullptr || !fs::exists(fs::path(data) / "tinyshakespeare/input.txt")) {
    MESSAGE("skipped: needs $HALFSTEP_DATA/tinyshakespeare/input.txt");
    return;
  }
  const auto train = open_dataset("tinyshakespeare", Part::train), test = open_dataset("tinyshakespeare", Part::test);
  CHECK(train->info().classes == 65);
  CHECK(train->info().vocabulary[13] == "A");
  CHECK(train->info().count == (1'003'854 - 129) / 32 + 1);
  CHECK(test->info().count == (111'540 - 129) / 128 + 1);
  std::string beginning;
  for (const uint8_t symbol : read_image(*train, 0)) beginning += train->info().vocabulary[symbol];
  CHECK(beginning.starts_with("First Citizen:\nBefore we proceed"));
}

}  // namespace
