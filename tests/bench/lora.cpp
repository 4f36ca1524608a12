// Fine-tuning on the command line: train --start and --lora, adapters in a folder, export, and what is refused.
#include <sys/wait.h>

#include <cstdlib>

#include "source_dir.h"
#include "tests/support/bench_program.h"
#include "tests/support/rule_text.h"

namespace {

using namespace hs;
using namespace hs::test;

// A text of the rule's symbols, another one, one with a symbol that they do not have, and a model of the first.
struct Base {
  Base() {
    write("set", 1, "abcdefghijk");
    write("other", 2, "abcdefghijk");
    write("foreign", 2, "abcdefghijz");
    train("--model char_gpt --data set --context 16 --blocks 1 --save-model base");
  }
  void write(const char* name, uint32_t which, const char* symbols) const {
    fs::create_directory(folder / name);
    std::ofstream text(folder / name / "input.txt", std::ios::binary);
    const MemorySource source = rule_text(1, 4000, which);
    for (const uint8_t symbol : source.images()) text.put(symbols[symbol]);
  }
  Ended run(const std::string& line) const { return run_bench_line(line, {.folder = folder.path}); }
  void train(const std::string& flags) const { run_successfully("train" + common + flags, {.folder = folder.path}); }

  const std::string common = " --train 128 --test 20 --batch 32 --epochs 1 --threads 1 --device cpu --quiet ";
  TemporaryFolder folder;
};
const Base& base() {
  static const Base one;
  return one;
}
nlohmann::json record(const char* name) { return nlohmann::json::parse(read_text(base().folder / name)); }

TEST_CASE(
    "train --start --lora: adapters alone are trained, saved, and merged into the model that training saved too") {
  base().train(
      "--start base --data other --lora 2 --lr 0.01 --save-adapters adapters --save-model whole --json r.json");
  const auto config = record("r.json")["config"];
  CHECK(config["model"] == "char_gpt");
  CHECK(config["blocks"] == 1);
  CHECK(config["context"] == 16);
  CHECK(config["lora"] == 2);
  CHECK(config["lora_alpha"] == 4);
  CHECK(config["start_sha256"].get<std::string>().size() == 64);
  CHECK(record("r.json")["rows"][0]["weights_sha256"] != config["start_sha256"]);

  const Ended merged = base().run("export --model base --adapters adapters --safetensors merged");
  REQUIRE_MESSAGE(merged.code == 0, merged.err);
  const auto tensors = [&](const char* name) {  // without the metadata, which name the data
    const std::string bytes = read_text(base().folder / name);
    return bytes.substr(bytes.size() - 4 * 200'000);
  };
  CHECK(tensors("merged") == tensors("whole"));
  CHECK(tensors("merged") != tensors("base"));
  const std::string generate = " --threads 1 --device cpu --prompt ab --length 20";
  CHECK(base().run("generate --model merged" + generate).out == base().run("generate --model whole" + generate).out);
}

TEST_CASE("train --start without adapters goes on with all of the model") {
  base().train("--start base --data other --json full.json");
  CHECK(record("full.json")["config"]["lora"] == 0);
  CHECK(record("full.json")["config"]["lora_alpha"] == nullptr);
  const double loss = record("full.json")["rows"][0]["final_loss"];
  CHECK(loss < 2.4);  // ln 11 = 2.40, where a new model starts
}

TEST_CASE("a saved run goes on with the same base alone") {
  const std::string flags = "--data other --lora 2";
  base().train(flags + " --start base --save state");
  base().train("--start base --data other --save-model second");
  check_one_line(base().run("train" + base().common + flags + " --start second --resume state"), 5, "start_sha256");
  base().train(flags + " --start base --resume state");
}

TEST_CASE("data/cut: a part of a text and the rest of it, or a line that says what is wrong") {
  const auto cut = [&](const std::string& arguments) {
    const std::string command = "cd '" + base().folder.path.string() + "' && bash '" + HALFSTEP_SOURCE_DIR +
                                "/data/cut' " + arguments + " 2>cut.err";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  CHECK(cut("set/input.txt 1000 1500 rest part") == 0);
  const auto text = [&](const char* name) { return read_text(base().folder / name / "input.txt"); };
  CHECK(text("part") == text("set").substr(1000, 500));
  CHECK(text("rest") == text("set").substr(0, 1000) + text("set").substr(1500));
  CHECK(cut("set/input.txt 1500 1500 a b") == 2);
  CHECK(cut("set/input.txt 0 100000 a b") == 2);
  CHECK(read_text(base().folder / "cut.err").starts_with("data/cut: bytes 0 to 100000: expected whole numbers"));
  const std::string whole = text("set");
  CHECK(cut("set/input.txt 0 10 set b") == 2);
  CHECK(cut("set/../set/input.txt 0 10 b set") == 2);
  CHECK(cut("set/input.txt 0 10 b ./b") == 2);
  CHECK(text("set") == whole);
  CHECK(cut("none 0 10 a b") == 4);
  CHECK(cut("/dev/zero 0 10 a b") == 4);
  for (const std::string number : {"08", "010", "-1", "99999999999999999999"}) {
    CHECK(cut("set/input.txt " + number + " 20 a b") == 2);
    CHECK(read_text(base().folder / "cut.err").starts_with("data/cut: bytes " + number));
  }
  CHECK(cut("set/input.txt 0 10 -a -b") == 0);
  CHECK(text("-b") == whole.substr(0, 10));
  CHECK(cut("set/input.txt 0 10 base/x b") == 4);
  CHECK(lines_of(read_text(base().folder / "cut.err")).size() == 1);
  CHECK(cut("") == 2);
  CHECK_FALSE(fs::exists(base().folder / "a"));
}

TEST_CASE("what does not fit: one line each") {
  const auto refused = [&](const std::string& line, int code, const char* part) {
    check_one_line(base().run(line), code, part);
  };
  refused("train --lora 4", 2, "--lora 4: there is no model to adapt; give --start FILE");
  refused("train --start base --lora-alpha 8", 2, "--lora-alpha 8: there are no adapters");
  refused("train --start base --save-adapters d", 2, "--save-adapters d: there are no adapters");
  refused("train --start none --device cpu", 4, "none");
  refused("train --start base --model mlp", 2, "--model mlp: --start base is a char_gpt");
  refused("train --start base --data other --model char_gpt --blocks 3 --device cpu", 2,
          "--blocks 3: --start base has 1");
  refused("train --start base --data foreign --device cpu", 3, "which are none of the model's 11 symbols");
  refused("train --start base --data other --lora 200 --device cpu", 2, "expected a rank from 1 to 128");
  refused("train --start base --data other --lora 2 --save-adapters set --device cpu", 4, "set");
  refused("export --model base --adapters none --safetensors m", 4, "none");
  base().train("--start base --data other --lora 2 --save-adapters fit");
  base().train("--start base --data other --save-model third");
  refused("export --model third --adapters fit --safetensors m", 5, "trained on the model with the SHA-256");
  {
    std::fstream file(base().folder / "fit" / "adapter_model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  refused("export --model base --adapters fit --safetensors m", 5, "adapter_model.safetensors");
  CHECK_FALSE(fs::exists(base().folder / "m"));
}

}  // namespace
