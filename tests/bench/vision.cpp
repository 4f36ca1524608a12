// What models see: bench/recipes/cifar10.json trains resnet8 on colour images, and what it saves is as good; digits
// that are photographed, and drawn on a page. The images are generated.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <numbers>

#include "data/formats/record_file.h"
#include "data/io/memory_source.h"
#include "data/open_dataset.h"
#include "engine/random.h"
#include "source_dir.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/handwriting.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

// Ten classes: stripes of five widths, upright or lying, so that a mirrored image stays in its class. Colours, contrast
// and place are random, and so is noise.
void write_stripes(const std::filesystem::path& file, int64_t count, uint32_t part) {
  constexpr double widths[] = {3, 4.5, 7, 11, 18};
  SampleInfo info = info_for(count, {32, 32, 3});
  info.scale = {0.5f, 0.25f};
  const auto writer = write_records(file, info);
  for (int64_t i = 0; i < count; ++i) {
    const RandomStream stream{7, RandomPurpose::synthetic, part, static_cast<uint32_t>(i), 0};
    uint64_t drawn = 0;
    const auto number = [&](double low, double high) {
      return low + (high - low) * to_unit_float(random_bits(stream, drawn++));
    };
    const auto label = static_cast<int32_t>(i % 10);
    const double phase = number(0, 2 * std::numbers::pi), grey[] = {number(90, 165), number(90, 165), number(90, 165)},
                 contrast[] = {number(15, 50), number(15, 50), number(15, 50)};
    std::vector<uint8_t> image;
    for (int64_t p = 0; p < 32 * 32; ++p) {
      const auto place = static_cast<double>(label < 5 ? p % 32 : p / 32);
      const double wave = std::sin(2 * std::numbers::pi * place / widths[label % 5] + phase);
      for (int c = 0; c < 3; ++c) {
        image.push_back(static_cast<uint8_t>(grey[c] + contrast[c] * wave + number(-40, 40)));
      }
    }
    writer->add(image.data(), label);
  }
  writer->finish();
}

TEST_CASE("the recipe for CIFAR-10 learns, and the saved model is as good, by its statistics") {
  const TemporaryFolder folder;
  const std::string data = " --data " + folder.path.string(), model = (folder / "resnet8.safetensors").string();
  write_stripes(folder / "train.record", 400, 1);
  write_stripes(folder / "test.record", 200, 2);
  const std::string smaller = " --train 400 --test 200 --epochs 3 --batch 20 --lr 0.1";
  const json record =
      record_of("train --device cpu --quiet --recipe " HALFSTEP_SOURCE_DIR "/bench/recipes/cifar10.json" + data +
                smaller + " --save-model " + model);
  CHECK(record["config"]["optimizer"] == "nesterov");
  CHECK(record["config"]["schedule"] == "one-cycle");
  CHECK(record["config"]["precision"] == "bf16");
  // The loss is 0.45, in f32 too; 0.28 of it is the entropy of smoothed labels; it is 0.53 with a wrong gradient in
  // a batch norm or in a block (tests/mutants/resnet8.txt).
  CHECK(record["rows"][0]["final_loss"] < 0.49);
  CHECK(record["rows"][0]["test_accuracy"] > 0.97);
  const json evaluated = record_of("evaluate --device cpu --test 200 --model " + model + data);
  CHECK(evaluated["accuracy"] == record["rows"][0]["test_accuracy"]);
  check_mistakes({
      {"predict --ink x.png --model " + model, 2, "learned colour images; leave it out"},
      {"report --html a --draw " + model, 2, "the model is resnet8 with 3 channels, expected mnist_cnn or mlp with 1"},
  });
}

void write(const std::filesystem::path& file, const std::vector<uint8_t>& bytes) {
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

TEST_CASE("predict --ink reads photographs of digits, and a hint offers it where it helps") {
  const TemporaryFolder folder;
  const std::string photographs = (folder / "photographs").string(), model = (folder / "digits").string();
  std::filesystem::create_directory(photographs);
  for (int digit = 0; digit < 10; ++digit) {
    write(photographs + fmt::format("/{}.pgm", digit), encode_pgm(photograph_of(strokes_of(digit), way_of(digit))));
  }
  const char* const data = std::getenv("HALFSTEP_DATA");
  const bool is_real = data && std::filesystem::exists(std::filesystem::path(data) / "mnist");
  run_successfully("train --quiet --train 12000 --test 100 --epochs 2 --save-model " + model,
                   {.variables = {"HALFSTEP_DATA=" + (is_real ? std::filesystem::absolute(data).string() : "")}});
  const std::string flags = "predict --model " + model + " " + photographs;
  for (const char* more : {"", " --invert"}) {
    const Words hints = lines_of(run_successfully(flags + more).err);
    REQUIRE(hints.size() == 1);
    CHECK(contains(hints[0], ".pgm: its border is not black (and of "));
    CHECK(contains(hints[0], "give --ink"));
  }
  CHECK(run_successfully(flags + " --ink").err.empty());
  int64_t right = 0;
  const json answers = record_of(flags + " --ink");
  for (const json& row : answers["rows"]) {
    right += contains(row["name"], "/" + row["class"].get<std::string>() + ".pgm");
  }
  if (is_real) CHECK(right >= 9);
  if (!is_real) MESSAGE("skipped: $HALFSTEP_DATA/mnist does not exist, so the model has not learned handwriting");
}

std::vector<double> probabilities_in(const std::string& page) {
  std::vector<double> all;
  const std::string mark = "data-probability=\"";
  for (size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at + 1)) {
    all.push_back(std::stod(page.substr(at + mark.size())));
  }
  return all;
}

TEST_CASE("report --draw: the page computes what predict does, and reads what is drawn on it") {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  const MemorySource digits = load_samples(*open_dataset("synthetic", Part::test), 1);
  write(path("digit.pgm"), encode_pgm({digits.info().shape(), digits.images()}));
  std::string pixels = "#";
  for (const uint8_t pixel : digits.images()) pixels += fmt::format("{:02x}", pixel);
  const std::string train = "train --quiet --train 640 --test 10 --epochs 1 --model ";
  for (const std::string model : {"mlp", "mnist_cnn"}) {
    CAPTURE(model);
    run_successfully(train + model + " --save-model " + path(model));
    const std::string html = path(model + ".html");
    CHECK(run_successfully("report --draw " + path(model) + " --html " + html).err == "report: " + html + "\n");
    const std::string page = in_browser(html, pixels);
    if (page.empty()) continue;
    const std::vector<double> own = probabilities_in(page);
    REQUIRE(own.size() == 10);
    const json record = record_of("predict --top 10 --model " + path(model) + " " + path("digit.pgm"));
    for (const json& answer : record["rows"][0]["classes"]) {
      const double other = own[std::stoul(answer["class"].get<std::string>())];
      CHECK(std::abs(other - answer["probability"].get<double>()) < 1e-4);
    }
    // A stroke from above to below, at the left: its pixels lie in the middle.
    std::ofstream(path("drawn.html")) << read_text(html) << R"(<script>
      const at = paper.getBoundingClientRect(), act = (name, x, y, buttons) => paper.dispatchEvent(new PointerEvent(name,
        {bubbles: true, isPrimary: true, buttons, clientX: at.left + x * at.width, clientY: at.top + y * at.height}));
      act("pointerdown", 0.2, 0.1, 1), act("pointermove", 0.2, 0.7, 1), act("pointermove", 0.9, 0.9, 0);
      const rowsOf = [...prepared().keys()].filter((i) => prepared()[i] > 0).map((i) => Math.floor(i / 28));
      document.title = `${Math.min(...rowsOf)} to ${Math.max(...rowsOf)}`;</script>)";
    const std::string after = in_browser(path("drawn.html"), pixels);
    CHECK(probabilities_in(after) != own);
    CHECK(contains(after, "<title>4 to 23"));
  }
  check_mistakes({
      {"report --draw " + path("mlp"), 2, "there is no --html FILE to write the page to"},
      {"report --html a --json b --draw " + path("mlp"), 2, "--json: is for records, --draw has --html alone"},
      {"report r.json --html a --draw " + path("mlp"), 2, "report: RECORD and --draw, expected one of them"},
      {"report --html a --draw " + path("digit.pgm"), 5, "digit.pgm: "},
  });
}

}  // namespace
