// Models of a text on the command line: train, explain, generate, and what is refused.
#include <fcntl.h>
#include <unistd.h>

#include <cmath>

#include "engine/cpu_features.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/rule_text.h"

namespace {

using namespace hs;
using namespace hs::test;

// A folder with the rule's text, and a model that was trained on it for a moment.
struct Trained {
  Trained() {
    fs::create_directory(folder / "set");
    std::ofstream text(folder / "set" / "input.txt", std::ios::binary);
    const MemorySource symbols = rule_text(1, 4000);
    for (const uint8_t symbol : symbols.images()) text.put("abcdefghijk"[symbol]);
    text.close();
    run_successfully(training + "--json r.json --save-model m", {.folder = folder.path});
  }
  const std::string training =
      "train --model char_gpt --data set --context 16 --blocks 1 --train 128 --test 20 --batch 32 --epochs 1 "
      "--threads 1 --device cpu --quiet ";
  TemporaryFolder folder;
};
const Trained& set() {
  static const Trained one;
  return one;
}
Ended run_there(const std::string& line) { return run_bench_line(line, {.folder = set().folder.path}); }

TEST_CASE("train: a text's record has context and blocks, and the losses are per symbol") {
  const auto record = nlohmann::json::parse(read_text(set().folder / "r.json"));
  CHECK(record["config"]["context"] == 16);
  CHECK(record["config"]["blocks"] == 1);
  CHECK(record["data"]["name"] == "set");
  CHECK(record["data"]["train"] == 128);
  const double loss = record["rows"][0]["final_loss"];
  CHECK(loss < 2.6);
  CHECK(loss > 0.69);
}

// The text of a record is written in f32: a kernel that takes 16 bits alone must not lose the whole record at the end.
TEST_CASE("train: a kernel of 16 bits is forced for the training, not for the text that the model writes") {
  if (!cpu_features().avx512_bf16) {
    MESSAGE("skipped: no AVX-512 BF16 here, so no kernel takes 16 bits alone");
    return;
  }
  const Ended run = run_there(set().training + "--precision bf16 --kernel gemm=avx512_bf16 --json -");
  CHECK(nlohmann::json::parse(run.out)["rows"][0]["written"]["text"] != "");
}

// Windows overlap: held out at random, they would show how well a text is remembered.
TEST_CASE("train: validation on a text is on its end, of which nothing is seen") {
  const TemporaryFolder folder;
  const fs::path file = folder / "two.txt";
  std::ofstream text(file);
  for (int i = 0; i < 2000; ++i) text.put("abcd"[i % 2 + (i < 1440 ? 0 : 2)]);  // 80 % of what is not the test
  text.close();
  const auto record = record_of(
      "train --model char_gpt --blocks 1 --context 16 --epochs 2 --batch 16 --device cpu --validation 0.2 --data " +
      file.string());
  CHECK(record["rows"][0]["final_loss"] < 0.5);
  CHECK(record["rows"][0]["runs"][0]["validations"].back()["accuracy"] < 0.6);  // of mixed windows 0.8 at least
}

TEST_CASE("train: the record and the report have a text that the model has written") {
  const auto record = nlohmann::json::parse(read_text(set().folder / "r.json"));
  const nlohmann::json& written = record["rows"][0]["written"];
  const std::string text = written["text"];
  CHECK(text.size() == 400);
  CHECK(text.find_first_not_of("abcdefghijk") == std::string::npos);
  // The same as the saved model writes; its first symbol is the prompt.
  const Ended generated =
      run_there("generate --model m --threads 1 --device cpu --prompt a --length 400 --temperature 0.8 --seed 1");
  CHECK(generated.out == "a" + text + "\n");
  run_there("report r.json --html r.html");
  const std::string page = drawn(read_text(set().folder / "r.html"));
  CHECK((page.empty() || contains(page, "What the model writes")));
  CHECK((page.empty() || contains(page, text)));
}

TEST_CASE("memory: the rows of a model of a text") {
  const auto record = record_of(
      "profile memory --model char_gpt --data set --context 16 --blocks 3 --batch 16 --steps 1 --budget 4M --threads 1 "
      "--device cpu",
      {.folder = set().folder.path});
  CHECK(record["config"]["context"] == 16);
  for (const auto& row : record["rows"]) {
    const double predicted = row["predicted_peak_bytes"], peak = row["peak_bytes"];
    CHECK(std::abs(predicted - peak) < 0.02 * peak);
  }
  CHECK(record["rows"][4]["checkpoint"] == "budget=auto");
  CHECK(record["rows"][4]["peak_bytes"] < record["rows"][0]["peak_bytes"]);
}

TEST_CASE("generate: the same seed writes the same text, of the set's symbols, after the prompt") {
  const std::string line = "generate --model m --threads 1 --device cpu --prompt ab --length 40";
  const Ended one = run_there(line);
  CHECK(one.err == "");
  CHECK(one.out.size() == 2 + 40 + 1);  // longer than the context
  CHECK(one.out.starts_with("ab"));
  CHECK(one.out.find_first_not_of("abcdefghijk\n") == std::string::npos);
  CHECK(run_there(line).out == one.out);
  CHECK(run_there("generate --model m --threads 2 --device cpu --prompt ab --length 40").out == one.out);
  CHECK(run_there(line + " --seed 2").out != one.out);
  CHECK(run_there(line + " --temperature 5").out != one.out);
  CHECK(run_there(line + " --temperature 0").out == run_there(line + " --top-k 1").out);
  CHECK(run_there("generate --model m --device cpu --length 5").out.starts_with("a"));  // the text has no line break
  // Of one symbol alone there is nothing to draw.
  CHECK(run_there(line + " --top-k 1").out == run_there(line + " --top-k 1 --seed 2").out);
}

TEST_CASE("generate: a terminal does not get what it would obey, a file gets every byte") {
  const TemporaryFolder folder;
  std::ofstream(folder / "evil.txt") << std::string(2000, '\x1b');
  run_successfully(
      "train --model char_gpt --data evil.txt --context 4 --blocks 1 --train 8 --test 4 --batch 8 "
      "--epochs 1 --device cpu --quiet --save-model m",
      {.folder = folder.path});
  const std::string line = "generate --model m --device cpu --length 3";
  CHECK(run_bench_line(line, {.folder = folder.path}).out == "\x1b\x1b\x1b\x1b\n");
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
    MESSAGE("skipped: no pseudo-terminal here, so what a terminal gets is not checked");
    return;
  }
  run_successfully(line, {.stdout_file = ptsname(terminal), .folder = folder.path});
  std::string shown(100, ' ');
  shown.resize(static_cast<size_t>(read(terminal, shown.data(), shown.size())));
  close(terminal);
  CHECK(shown == "\\x1b\\x1b\\x1b\\x1b\r\n");
}

// Of 300 characters, so that a window has two bytes a symbol.
TEST_CASE("a text that is not ASCII: trained, evaluated, continued, and asked about letters that it has not") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& line) { return run_bench_line(line, {.folder = folder.path}); };
  Vocabulary letters;
  for (uint32_t i = 0; i < 300; ++i) {  // of three bytes
    letters.push_back({'\xe4', static_cast<char>(0xb8 + i / 64), static_cast<char>(0x80 + i % 64)});
  }
  std::string text;
  for (size_t i = 0; i < 6000; ++i) text += letters[i * 7 % 300];
  write_text(folder / "han.txt", text);
  write_text(folder / "other.txt", "Q" + text + "QR");
  const std::string training =
      "train --model char_gpt --context 16 --blocks 1 --batch 32 --epochs 1 --threads 1 --device cpu --quiet ";
  run_successfully(training + "--data han.txt --save-model m --json r.json", {.folder = folder.path});
  const auto row = nlohmann::json::parse(read_text(folder / "r.json"))["rows"][0];
  const std::string written = row["written"]["text"];
  CHECK(encode(written, letters).symbols.size() == 400);
  CHECK(encode(written, letters).left_out == 0);

  const auto record = check_outputs("evaluate --model m --threads 1 --device cpu", {.folder = folder.path});
  const double loss = record["loss"], test_loss = row["runs"][0]["epochs"][0]["test_loss"],
               bits = record["bits_per_symbol"];
  CHECK(loss == doctest::Approx(test_loss).epsilon(1e-6));
  CHECK(bits == doctest::Approx(loss / std::log(2)));
  CHECK(record["perplexity"] == doctest::Approx(std::exp(loss)));
  CHECK(record["symbols"] == 37 * 16);  // of 600, in windows of 16 and the one after them
  CHECK(record["bytes"] == 3 * 37 * 16);
  CHECK(record["bits_per_byte"] == doctest::Approx(bits / 3));
  CHECK(record["data"]["test"] == 37);
  CHECK(record["remarks"].empty());

  const std::string generating = "generate --model m --device cpu --length 30 --prompt ";
  const std::string known = letters[0] + letters[299];
  const Ended generated = run(generating + known);
  CHECK(generated.out.starts_with(known));
  CHECK(encode(generated.out, letters).symbols.size() == 32);
  check_one_line(
      run(generating + "\u00e6" + known), 2,
      "--prompt: has \"\u00e6\", which is none of the model's 300 symbols; leave it out, or give --unknown drop");
  const Ended dropped = run(generating + "\u00e6" + known + "\u00f8 --unknown drop");
  CHECK(dropped.out == generated.out);
  CHECK(contains(dropped.err, "left out \"\u00e6\" and 1 more, which are none of the model's 300 symbols"));

  const std::string unknown = "\"Q\" and 2 more, which are none of the model's 300 symbols";
  for (const std::string& line : {std::string("evaluate --model m "), training + "--start m --save-model n "}) {
    check_one_line(run(line + "--data other.txt"), 3,
                   "has " + unknown + "; use a text without them, or leave them out: --unknown drop");
    const Ended ended = run(line + "--data other.txt --unknown drop --json other.json");
    CHECK(ended.code == 0);
    CHECK(contains(ended.err, "other.txt: left out " + unknown));
    const auto other = nlohmann::json::parse(read_text(folder / "other.json"));
    CHECK(other["config"]["unknown"] == "drop");
    if (line.starts_with("evaluate")) CHECK(other["loss"] == loss);
  }
  // Bytes that are no characters.
  std::string bytes;
  for (size_t i = 0; i < 2000; ++i) bytes += static_cast<char>(0x80 + i * 7 % 64);
  write_text(folder / "bytes.txt", bytes);
  run_successfully(training + "--data bytes.txt --save-model b", {.folder = folder.path});
  std::string replaced;
  for (int i = 0; i < 11; ++i) replaced += "\uFFFD";
  CHECK(run("generate --model b --device cpu --length 10").out == replaced + "\n");
}

TEST_CASE("explain of a text, and what does not fit: one line each") {
  const std::string explained =
      run_there("profile kernels --model char_gpt --data set --context 8 --batch 2 --blocks 1 --json -").out;
  for (const char* kernel : {"\"causal_attention_forward\"", "\"split_windows\""}) CHECK(contains(explained, kernel));

  check_one_line(run_there("train --model char_gpt --data set --context 500 --device cpu"), 3,
                 "401 of its 4001 symbols are for the test, expected at least 501, a context of 500");
  check_one_line(run_there("train --model char_gpt --data set --context 512"), 2, "--context 512: expected a whole");
  check_one_line(
      run_there("train --model mlp --data set --test 1 --device cpu"), 3,
      "--model mlp: reads images, but the data are a text; give images as data, or a model of a text: char_gpt");
  check_one_line(run_there(set().training + "--preprocess host"), 2, "expected u8 (N, 1, T + 1, 1)");
  check_one_line(run_there(set().training + "--augment flip"), 2, "augment");
  check_one_line(run_there("data convert set out"), 2, "set is a text");
  check_one_line(run_there("generate --model m --device cpu --prompt abz"), 2,
                 "--prompt: has \"z\", which is none of the model's 11 symbols; leave it out");
  check_one_line(run_there("generate --device cpu"), 2, "--model: is missing");
  check_one_line(run_there("generate --model none --device cpu"), 4, "none");
  check_one_line(run_there("predict --model m --test --data set"), 2, "a model of a text");
  check_one_line(run_there("evaluate --model m --data set --mistakes 3"), 2, "--mistakes: is for models of images");
  check_one_line(run_there("evaluate --model m --device cpu --data synthetic"), 3, "has images, but the model reads a");
  check_one_line(run_there(set().training + "--unknown drop"), 2, "it is for --start");
}

}  // namespace
