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

TEST_CASE("explain of a text, and what does not fit: one line each") {
  const std::string explained =
      run_there("profile kernels --model char_gpt --data set --context 8 --batch 2 --blocks 1 --json -").out;
  for (const char* kernel : {"\"causal_attention_forward\"", "\"split_windows\""}) CHECK(contains(explained, kernel));

  check_one_line(run_there("train --model char_gpt --data set --context 500 --device cpu"), 3,
                 "401 of its 4001 bytes are for the test, expected at least 501, a context of 500");
  check_one_line(run_there("train --model char_gpt --data set --context 512"), 2, "--context 512: expected a whole");
  check_one_line(
      run_there("train --model mlp --data set --test 1 --device cpu"), 3,
      "--model mlp: reads images, but the data are a text; give images as data, or a model of a text: char_gpt");
  check_one_line(run_there(set().training + "--preprocess host"), 2, "expected u8 (N, 1, T + 1, 1)");
  check_one_line(run_there(set().training + "--augment flip"), 2, "augment");
  check_one_line(run_there("data convert set out"), 2, "set is a text");
  check_one_line(run_there("generate --model m --device cpu --prompt abz"), 2, "the prompt has \"z\"");
  check_one_line(run_there("generate --device cpu"), 2, "--model: is missing");
  check_one_line(run_there("generate --model none --device cpu"), 4, "none");
  check_one_line(run_there("predict --model m --test --data set"), 2, "a model of a text");
  check_one_line(run_there("evaluate --model m --device cpu --data set"), 2, "a model of a text");
}

}  // namespace
