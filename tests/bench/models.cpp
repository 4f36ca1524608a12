// Trained models as their users meet them: `train --save-model`, and the commands that read such a file.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "models/model_file.h"
#include "tests/support/bench_program.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::test;

const std::string small = "train --train 640 --test 100 --quiet --epochs ";

// A model that has learned something, trained once for all tests.
struct Trained {
  Trained() {
    const Ended ended = run_bench_line(small + "3 --model mlp --save-model " + file + " --json " + record);
    REQUIRE_MESSAGE(ended.code == 0, ended.err);
  }
  TemporaryFolder folder;
  const std::string file = (folder / "digits.safetensors").string(), record = (folder / "record.json").string();
};

TEST_CASE("train --save-model writes the weights of the last run") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder / name).string(); };
  const auto save = [&](const std::string& flags, const char* name) {
    const Ended ended = run_bench_line(small + "1 " + flags + " --save-model " + file(name));
    REQUIRE_MESSAGE(ended.code == 0, ended.err);
    return read_text(folder / name);
  };
  const std::string first = save("--seed 3", "first"), again = save("--seed 3", "again");
  CHECK(first == again);
  CHECK(save("--seed 2 --repeat 2", "second_run") == first);
  CHECK(save("--seed 2", "other") != first);
  CHECK(folder.names() == std::set<std::string>{"again", "first", "other", "second_run"});
  const ModelDescription description = load_model(file("first")).description;
  CHECK(description.model == "mnist_cnn");
  CHECK(description.sizes.classes == 10);
  CHECK(description.data == "synthetic digits");
  CHECK(description.scale.deviation > 0);

  check_mistakes({
      {small + "1 --save-model -", 2, "--save-model -: is no regular file, expected one"},
      {small + "1 --save-model " + folder.path.string(), 4, "is a directory, expected a file"},
      {small + "1 --save-model /nowhere/a", 4, "/nowhere/a: cannot be written"},
      {small + "1 --save-model " + file("x") + " --json " + file("x"), 2, "--save-model and --json: both go to"},
  });
  // A run that diverges leaves what was there.
  const Ended ended = run_bench_line(small + "1 --optimizer sgd --lr 100 --save-model " + file("first"));
  CHECK(ended.code == 6);
  CHECK(read_text(folder / "first") == first);
}

}  // namespace
