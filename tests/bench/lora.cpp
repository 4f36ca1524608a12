// Fine-tuning on the command line: train --start and --lora, adapters in a folder, export, and what is refused.
#include <sys/wait.h>

#include <cstdlib>

#include "models/files/model_file.h"
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

// Images of each class, which have their bar at a place of their own.
void write_images(const char* name, const std::vector<std::string>& classes, size_t side = 28) {
  for (const std::string part : {"train", "test"}) {
    for (size_t c = 0; c < classes.size(); ++c) {
      const fs::path of_class = base().folder / name / part / classes[c];
      fs::create_directories(of_class);
      for (size_t i = 0; i < 16; ++i) {
        std::string pixels(side * side, '\0');
        for (size_t p = 0; p < pixels.size(); ++p) {
          if (p % side / 4 == 2 * c) pixels[p] = static_cast<char>(255 - 8 * i);
        }
        std::ofstream(of_class / fmt::format("{}.pgm", i)) << fmt::format("P5 {} {} 255\n", side, side) << pixels;
      }
    }
  }
}

std::string digits() {  // a model of ten digits
  static const bool is_made = [] {
    base().train("--model mnist_cnn --save-model digits");
    write_images("letters", {"a", "b", "c"});
    return true;
  }();
  return is_made ? "train --start digits --data letters --batch 16 --threads 1 --device cpu --quiet" : "";
}

TEST_CASE("train --head new: the body goes on with other classes, frozen if that is wanted, and their names are kept") {
  const std::string train = digits() + " --head new";
  const auto run = [&](const std::string& flags) {
    const Ended ended = base().run(train + flags + " --json head.json");
    REQUIRE_MESSAGE(ended.code == 0, ended.err);
    CHECK(
        contains(ended.err, "--head new: linear.weight (1600, 3), linear.bias (3) begin anew; 18816 of 23619 values"));
    return record("head.json");
  };
  const auto body_is_kept = [&](const char* model) {
    const LoadedModel before = load_model(base().folder / "digits"), after = load_model(base().folder / model);
    return std::ranges::equal(
        before.model->parameters(), after.model->parameters(), [](const auto& was, const auto& is) {
          return is.is_head || is.value->template to_vector<float>() == was.value->template to_vector<float>();
        });
  };
  const auto whole = run(" --epochs 4 --save-model letters_model");
  CHECK(whole["config"]["head"] == "new");
  CHECK(whole["config"]["freeze"] == "nothing");
  CHECK(whole["rows"][0]["trained_parameters"] == 23619);
  CHECK_FALSE(body_is_kept("letters_model"));
  const auto names = load_model(base().folder / "letters_model").description.class_names;
  CHECK(names == std::vector<std::string>{"a", "b", "c"});
  const Ended said = base().run("predict --model letters_model letters/train/b/1.pgm");
  CHECK_MESSAGE(contains(said.out, ": b with "), said.err);
  // As many classes, and a new head all the same.
  const Ended again = base().run("train --start letters_model --data letters --head new --device cpu --dry-run");
  CHECK(contains(again.err, "--head new: linear.weight (1600, 3), linear.bias (3) begin anew; 18816 of 23619 values"));

  const auto frozen = run(" --epochs 2 --freeze body --weight-decay 0.1 --save-model frozen");
  CHECK(frozen["rows"][0]["trained_parameters"] == 4803);
  CHECK(body_is_kept("frozen"));
  run(" --epochs 1 --freeze body --weight-decay 0.1 --save head_state");
  const Ended other = base().run(train + " --epochs 2 --freeze nothing --resume head_state");
  CHECK(other.code == 5);
  CHECK(contains(other.err, "freeze was \"body\", now \"nothing\""));
  CHECK(run(" --epochs 2 --freeze body --weight-decay 0.1 --resume head_state")["rows"][0]["weights_sha256"] ==
        frozen["rows"][0]["weights_sha256"]);

  const auto lora = run(" --epochs 1 --lora 2 --save-model merged_letters");
  CHECK(lora["rows"][0]["trained_parameters"] == 4803 + 2 * (9 + 32 + 288 + 64));
  CHECK_FALSE(body_is_kept("merged_letters"));
}

TEST_CASE("train --head new: images of another size keep what fits, which is said; the rest cannot be frozen") {
  base().train("--model mlp --save-model mlp_digits");
  digits();
  write_images("small", {"a", "b"}, 20);
  const std::string small = " --data small --batch 16 --epochs 1 --threads 1 --device cpu --quiet --head new";
  CHECK(contains(base().run("train --start digits" + small).err,
                 "linear.weight (576, 2), linear.bias (2) begin anew; 18816 of"));
  const std::string mlp = "train --start mlp_digits" + small;
  const Ended ended = base().run(mlp);
  CHECK(ended.code == 0);
  CHECK(contains(ended.err, "linear2.weight (500, 2), linear2.bias (2), linear1.weight (400, 500) begin anew; 500 of"));
  check_one_line(base().run(mlp + " --freeze body"), 2,
                 "--freeze body: would freeze linear1.weight, which is (400, 500)");
  check_one_line(base().run(mlp + " --lora 2"), 2, "--lora: would freeze linear1.weight");
}

TEST_CASE("what does not fit: one line each") {
  const auto refused = [&](const std::string& line, int code, const char* part) {
    check_one_line(base().run(line), code, part);
  };
  refused("train --lora 4", 2, "--lora 4: there is no model to adapt; give --start FILE");
  refused("train --head new", 2, "--head new: there is no model to adapt; give --start FILE");
  refused("train --freeze body", 2, "--freeze body: there is no model to adapt; give --start FILE");
  refused("train --start base --head new --device cpu", 2, "--head new: no layer of char_gpt is its head alone");
  refused("train --start base --freeze body --device cpu", 2, "--freeze body: no layer of char_gpt is its head alone");
  refused(digits(), 3, "in 10; give --head new to keep what fits");
  refused(digits() + " --head new --freeze body --lora 2", 2, "--freeze body: so does --lora 2");
  refused(digits() + " --head new --lora 2 --save-adapters d", 2, "--save-adapters d: peft has another layout");
  refused(digits() + " --head new --lora 10", 2, "expected a rank from 1 to 9");
  refused(digits() + " --head old", 2, "--head");
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
