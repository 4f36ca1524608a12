// Trained models as their users meet them: `train --save-model`, and the commands that read such a file.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "data/formats/fit_image.h"
#include "data/formats/image_folder.h"
#include "data/io/memory_source.h"
#include "data/open_dataset.h"
#include "models/files/model_file.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/npy.h"
#include "tests/support/python.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

const std::string small = "train --train 640 --test 100 --quiet --epochs ";

// A model that has learned something, trained once for all tests.
struct Trained {
  Trained() { run_successfully(small + "3 --model mlp --save-model " + file + " --json " + record); }
  TemporaryFolder folder;
  const std::string file = (folder / "digits.safetensors").string(), record = (folder / "record.json").string();
};

// A folder of images of another size.
std::string image_set(const TemporaryFolder& folder, int64_t rows, int64_t columns) {
  std::filesystem::create_directory(folder / "sized");
  for (const char* part : {"train", "test"}) {
    const SampleInfo info = info_for(10, {rows, columns});
    write_all(*write_image_folder(folder / "sized" / part, info, ImageFormat::pgm), info);
  }
  return (folder / "sized").string();
}

TEST_CASE("train --save-model writes the weights of the last run") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder / name).string(); };
  const auto save = [&](const std::string& flags, const char* name) {
    run_successfully(small + "1 " + flags + " --save-model " + file(name));
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
  // A report that cannot be written costs neither the model nor the other files.
  const Ended full = run_bench_line(
      small + "1 --seed 3 --json /dev/full --csv - --md " + file("table") + " --save-model " + file("kept"),
      {.stdout_file = "/dev/full"});
  CHECK(full.code == 4);
  CHECK(lines_of(full.err).back() == "halfstep-bench: --json /dev/full: cannot be written: No space left on device");
  CHECK(contains(full.err, "stdout: cannot be written"));
  CHECK(read_text(file("kept")) == first);
  CHECK(contains(read_text(file("table")), "mnist_cnn"));
  // A run that diverges leaves what was there.
  const Ended ended = run_bench_line(small + "1 --optimizer sgd --lr 100 --save-model " + file("first"));
  CHECK(ended.code == 6);
  CHECK(read_text(folder / "first") == first);
}

// One line for each class and a square of the numbers that the record has, which add up.
TEST_CASE("evaluate: accuracy, confusion and the worst mistakes") {
  const Trained trained;
  const nlohmann::json training = nlohmann::json::parse(read_text(trained.record));
  const double accuracy = training["rows"][0]["test_accuracy"];
  const double loss = training["rows"][0]["runs"][0]["epochs"].back()["test_loss"];
  const std::string flags = "evaluate --model " + trained.file;
  const nlohmann::json record = check_outputs(flags + " --test 100");
  CHECK(record["accuracy"] == accuracy);
  CHECK(record["loss"].get<double>() == doctest::Approx(loss).epsilon(1e-5));
  CHECK(record["samples_per_second"] > 0);
  int64_t samples = 0, right = 0;
  REQUIRE(record["confusion"].size() == 10);
  for (size_t label = 0; label < 10; ++label) {
    for (const int64_t count : record["confusion"][label]) samples += count;
    right += record["confusion"][label][label].get<int64_t>();
    CHECK(record["rows"][label]["right"] == record["confusion"][label][label]);
  }
  CHECK(samples == 100);
  CHECK(static_cast<double>(right) / 100 == doctest::Approx(accuracy));
  const auto& mistakes = record["mistakes"];
  REQUIRE(mistakes.size() == std::min<size_t>(12, static_cast<size_t>(100 - right)));
  REQUIRE(mistakes.size() > 1);
  for (size_t i = 0; i < mistakes.size(); ++i) {
    CHECK(mistakes[i]["label"] != mistakes[i]["predicted"]);
    CHECK(mistakes[i]["pixels"].size() == 784);
    if (i > 0) CHECK(mistakes[i]["probability"] <= mistakes[i - 1]["probability"]);
  }
  // The same for any number of threads and on one sample.
  CHECK(record_of(flags + " --test 100 --threads 1")["confusion"] == record["confusion"]);
  CHECK(record_of(flags + " --test 1")["config"]["mistakes"] == 12);

  // Of a loss that is large the probabilities are 0.
  const std::string large = trained.file + ".large";
  const nlohmann::json diverging = record_of(small + "1 --model mlp --lr 10 --save-model " + large);
  const nlohmann::json far = record_of("evaluate --test 100 --model " + large);
  CHECK(far["loss"].get<double>() > 100);
  CHECK(far["loss"].get<double>() ==
        doctest::Approx(diverging["rows"][0]["runs"][0]["epochs"][0]["test_loss"].get<double>()).epsilon(1e-5));

  const TemporaryFolder data;
  run_successfully("data convert synthetic " + (data / "set").string() + " --train 20 --test 20 --format pgm");
  const nlohmann::json elsewhere = record_of(flags + " --test 20 --data " + (data / "set").string());
  CHECK(contains(elsewhere["remarks"].dump(), "the model was trained on synthetic digits, and this is "));
  check_mistakes({
      {"evaluate", 2, "--model: is missing, expected the FILE"},
      {"evaluate --model /nowhere/a", 4, "/nowhere/a: cannot be opened"},
      {"evaluate --model " + trained.record, 5, "the file is damaged or no safetensors file"},
      {flags + " --data " + image_set(data, 20, 28), 3,
       "images of 20 x 28 x 1 in 10 classes, but the model was trained on"},
  });
}

// A model file says where its data are: which samples were held out, how large images are, what classes are called.
TEST_CASE("evaluate and predict test a model on its own data, and name its classes") {
  const TemporaryFolder folder;
  SampleInfo info;
  info.rows = info.columns = 4;
  info.count = 120;
  info.classes = 3;
  info.class_names = {"cat", "dog", "hen"};
  const std::string pets = (folder / "pets").string(), model = (folder / "m").string();
  const auto writer = write_image_folder(pets, info, ImageFormat::pgm);
  for (int32_t i = 0; i < 120; ++i) {  // in the order of the classes
    const std::vector<uint8_t> pixels(16, static_cast<uint8_t>(40 * (i / 40) + i % 10));
    writer->add(pixels.data(), i / 40);
  }
  writer->finish();
  const std::string train = "train --model mlp --epochs 20 --lr 0.01 --data " + pets + " --save-model " + model;
  const nlohmann::json trained = record_of(train + " --size 6x5");
  const int held_out = 120 - trained["data"]["train"].get<int>();
  CHECK(held_out >= 12);
  CHECK(held_out <= 36);
  CHECK(trained["data"]["class_names"] == nlohmann::json(info.class_names));
  const nlohmann::json tested = record_of("evaluate --model " + model);
  CHECK(tested["data"]["test"] == held_out);
  CHECK(tested["remarks"].empty());
  CHECK(tested["accuracy"] == trained["rows"][0]["test_accuracy"]);
  CHECK(tested["rows"][2]["name"] == "hen");
  CHECK(contains(run_bench_line("predict --top 1 --model " + model + " " + pets + "/dog/0000041.pgm").out,
                 "0000041.pgm: dog with "));
  CHECK(contains(run_bench_line("predict --test --count 1 --model " + model).out, "pets test sample 0, a "));
  // A part of it has every class.
  const nlohmann::json some = record_of(train + " --train 30 --test 12 --test-split 0.5");
  CHECK(some["data"]["train"] == 30);
  for (const nlohmann::json& row : record_of("evaluate --model " + model)["rows"]) CHECK(row["samples"] > 0);

  // What was held out, and from what: another share, a set with a file less, one with other classes.
  const std::string on_pets = "evaluate --model " + model + " --data " + pets;
  CHECK(contains(record_of(on_pets + " --test-split 0.6")["remarks"].dump(), "the model has seen some of this test"));
  std::filesystem::remove(pets + "/cat/0000000.pgm");
  for (const std::string& line : {"evaluate --model " + model, on_pets + " --test-split 0.5"}) {
    CHECK(contains(record_of(line)["remarks"].dump(), "the set has changed since the model's training: it had 120 s"));
  }
  std::filesystem::rename(pets + "/hen", pets + "/eel");
  CHECK(contains(run_bench_line("train --epochs 1 --start " + model + " --data " + pets).err,
                 "--start: class 2 was hen in the model's training, and is eel in this one"));
  std::filesystem::create_directories(folder / "one" / "cat");
  std::filesystem::copy(pets + "/cat/0000001.pgm", folder / "one" / "cat");
  check_mistakes({
      {"evaluate --model " + model, 3, "pets: class 2 is eel, but hen in the model's training; give --data"},
      {"evaluate --size 4x4 --model " + model, 2, "those of the model's training are used; give them with --data"},
      {"train --data synthetic --size 9x9", 2, "synthetic digits: has samples of one size"},
      {"train --data synthetic --test-split 0.1", 2, "--test-split 0.1: synthetic has a test part of its own"},
      {"train --data " + pets + " --size 9", 2, "--size 9: expected ROWSxCOLUMNS, each 1 to 512, as in 32x32"},
      {"train --data " + (folder / "one").string(), 2, "one: has one sample and no test part, expected 2 or more"},
      {"train --data " + (folder / "one/cat").string(), 3, "but the images here are in no folder of a class"},
  });
  std::filesystem::rename(pets, folder / "moved");
  check_mistakes(
      {{"evaluate --model " + model, 4, "pets: is not there, and the model was trained on it; give --data"}});
}

TEST_CASE("predict: files of any size and kind, and the test set") {
  const Trained trained;
  const TemporaryFolder folder;
  const std::string flags = "predict --model " + trained.file + " ";
  // A test sample as files: as it is, larger, and as ink on paper.
  const Ended of_test = run_successfully(flags + "--test --count 5");
  const std::vector<std::string> lines = lines_of(of_test.out);
  REQUIRE(lines.size() == 5 + 1);
  CHECK(lines[0].starts_with("synthetic digits test sample 0, a "));
  CHECK(contains(lines.back(), " of 5 right"));
  const MemorySource digits = load_samples(*open_dataset("synthetic", Part::test), 1);
  Image image{digits.info().shape(), digits.images()};
  const auto write = [&](const std::string& name, const std::vector<uint8_t>& bytes) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return (folder / name).string();
  };
  const std::string exact = write("exact.pgm", encode_pgm(image));
  const Ended same = run_successfully(flags + exact);
  const std::string verdict = lines[0].substr(lines[0].find(": ") + 2);
  const std::string shown = lines_of(same.out).back();
  CHECK(shown == exact + ": " + verdict.substr(0, verdict.find(" (wrong)")));
  CHECK(lines_of(same.out).size() == 1);
  const auto by_stdin = [&exact] { dup2(open(exact.c_str(), O_RDONLY), STDIN_FILENO); };
  CHECK(run_bench_line(flags + "-", {.prepare = by_stdin}).out == "stdin" + shown.substr(exact.size()) + "\n");
  const auto changes_of = [&](const std::string& words) {
    return record_of(flags + words)["rows"][0]["changes"].get<std::vector<std::string>>();
  };
  using Changes = std::vector<std::string>;

  const Image large = fit_image(image, {56, 84, 3}).image;
  const std::string pgm = write("large.pgm", encode_pgm(fit_image(image, {1000, 600, 1}).image));
  CHECK(changes_of(pgm) == Changes{"resized from 600 x 1000 to 28 x 28"});
  if (can_read_png()) {
    const std::string png = write("large.png", encode_png(large));
    CHECK(changes_of(png) == Changes{"colour made grey", "resized from 84 x 56 to 28 x 28"});
  }
  invert(image);
  const std::string paper = write("paper.pgm", encode_pgm(image));
  CHECK(contains(run_bench_line(flags + paper).err, paper + ": its border is light"));
  // What a drawing program saves: black ink, and nothing around it.
  if (can_read_png()) {
    Image ink{{image.shape.rows, image.shape.columns, 4}, {}};
    for (const uint8_t pixel : image.pixels) ink.pixels.insert(ink.pixels.end(), {0, 0, 0, uint8_t(255 - pixel)});
    const std::string png = write("ink.png", encode_png(ink));
    CHECK(contains(run_bench_line(flags + png).err, png + ": its border is light"));
    CHECK(changes_of(png + " --invert") == Changes{"transparent pixels put on white", "colour made grey", "inverted"});
    CHECK(run_bench_line(flags + png + " --invert").out == png + shown.substr(exact.size()) + "\n");
  }
  const Ended inverted = run_bench_line(flags + paper + " --invert");
  CHECK(inverted.out == paper + shown.substr(exact.size()) + "\n");
  // A folder: its images, with as many rows in the record, one hint, and one that cannot be read.
  const std::string all = flags + folder.path.string();
  const size_t images = can_read_png() ? 5 : 3;
  CHECK(record_of(all)["rows"].size() == images);
  const std::string hints = run_bench_line(all).err;
  CHECK(hints.find("its border is light") == hints.rfind("its border is light"));
  const std::string broken = write("a_broken.pgm", {'P', '5'}), answers = (folder / "answers.json").string();
  const Ended most = run_bench_line(all + " --json " + answers);
  CHECK(most.code == 3);
  CHECK(lines_of(most.out).size() == images);
  CHECK(contains(lines_of(most.err).back(), fmt::format("1 of {} images cannot be read, the first: ", images + 1)));
  CHECK(nlohmann::json::parse(read_text(answers))["unread"][0]["name"] == broken);
  std::filesystem::remove(broken);
  CHECK(inverted.err.empty());
  CHECK(lines_of(run_bench_line(flags + exact + " --top 10").out).back().size() > shown.size());

  check_mistakes({
      {"predict " + exact, 2, "--model: is missing"},
      {flags, 2, "neither IMAGE files nor --test"},
      {flags + exact + " --test", 2, "IMAGE files and --test, expected"},
      {flags + exact + " --count 2", 2, "--count: is for --test alone"},
      {flags + "--test --invert", 2, "--invert: is for IMAGE files alone"},
      {flags + "--test --ink", 2, "--ink: is for IMAGE files alone, and without --invert"},
      {flags + exact + " --invert --ink", 2, "--ink: is for IMAGE files alone, and without --invert"},
      {flags + "/nowhere/x.png", 4, "/nowhere/x.png: cannot be opened"},
      {flags + trained.file, 3, "digits.safetensors: starts neither as PNG nor as JPEG or PGM"},
      {flags + write("huge.pgm", {'P', '5', ' ', '5', '0', '0', '0', ' ', '1', ' ', '2', '5', '5', ' '}), 3,
       "an image of 1 x 5000 pixels, expected 1 x 1 to 4096 x 4096"},
  });
}

TEST_CASE("NumPy arrays: numbers are trained on, evaluated and predicted, and refused where images are meant") {
  const TemporaryFolder folder;
  const std::string data = (folder / "flowers").string(), model = (folder / "m.safetensors").string();
  std::filesystem::create_directories(data);
  const auto write = [&](const std::string& name, const Tensor& tensor) {
    std::ofstream(data + "/" + name + ".npy", std::ios::binary) << to_npy(tensor);
  };
  std::vector<float> values;
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < 300; ++i) {  // of class c the number c is the largest
    for (int32_t k = 0; k < 5; ++k)
      values.push_back(static_cast<float>((i * 7 + k * 3) % 11) / 11 + (k == i % 5 ? 1 : 0));
    labels.push_back(i % 5);
  }
  write("x_train", Tensor::from(values, {300, 5}));
  write("y_train", Tensor::from(labels, {300}));
  const std::string train = "train --model mlp --epochs 30 --batch 16 --data " + data;
  const json trained = record_of(train + " --test-split 0.3 --save-model " + model);
  CHECK(contains(trained["headline"].get<std::string>(), " for the test, values as they are, "));
  CHECK(trained["data"]["type"] == "f32");
  CHECK(!trained["data"].contains("scale"));
  CHECK(trained["rows"][0]["test_accuracy"] > 0.95);
  const json tested = record_of("evaluate --model " + model + " --html " + (folder / "e.html").string());
  CHECK(tested["accuracy"] == trained["rows"][0]["test_accuracy"]);
  CHECK(tested["remarks"].empty());
  CHECK(contains(run_bench_line("predict --test --count 2 --model " + model).out, "flowers test sample 1, a "));
  CHECK(run_bench_line("train --start " + model + " --epochs 1 --data " + data).code == 0);
  CHECK(run_bench_line("train --preprocess host --epochs 1 --model mlp --data " + data).code == 0);
  check_mistakes({
      {train + " --test-split 0.3 --augment flip", 2,
       "--augment changes pixels of 8 bits, but the samples are f32; leave it out"},
      {"train --test-split 0.3 --model mnist_cnn --data " + data, 3,
       "model mnist_cnn: images of 1 x 5 are too small for it; use mlp"},
      {"data convert " + data + " " + (folder / "r").string(), 3,
       "flowers: samples of 1 x 5 x 1 f32, and the formats to write have a byte for each value"},
      {"predict --model " + model + " x.png", 2, "m.safetensors: a model of f32 values, not of images; use --test"},
      {"evaluate --data synthetic --model " + model, 3, "but the model was trained on 1 x 5 x 1 f32 in 5; give --data"},
      {"train --data synthetic --start " + model, 3, "and the model of --start is for 1 x 5 x 1 f32 in 5"},
  });
  CHECK(!std::filesystem::exists(folder / "r"));
  // The same set in bytes is a set of images, of other samples.
  write("x_train", Tensor::from(std::vector<uint8_t>(1500, 7), {300, 5}));
  check_mistakes({{"evaluate --model " + model, 3, "images of 1 x 5 x 1 in 5 classes, but the model was trained on"}});
}

TEST_CASE("export: NumPy arrays and an ONNX file") {
  const Trained trained;
  const TemporaryFolder folder;
  const std::string flags = "export --model " + trained.file + " ", onnx = (folder / "a.onnx").string(),
                    arrays = (folder / "arrays").string();
  const Ended ended = run_successfully(flags + "--onnx " + onnx + " --npy " + arrays);
  CHECK(contains(ended.err, arrays + ": 4 tensors for NumPy\n"));
  CHECK(contains(ended.err, onnx + ": mlp as ONNX, "));
  CHECK(read_text(onnx).size() > 4 * 397'510);
  CHECK(run_bench_line(flags + "--onnx -").out == read_text(onnx));
  const LoadedModel loaded = load_model(trained.file);
  for (const auto& [name, tensor] : parameters_of(*loaded.model)) {
    const Tensor array = read_npy(folder / ("arrays/" + name + ".npy"));
    const auto values = values_of<float>(array);
    CHECK(std::vector<float>(values.begin(), values.end()) == tensor.to_vector<float>());
    CHECK(array.shape() == tensor.shape());
  }
  check_mistakes({
      {"export --onnx a", 2, "--model: is missing"},
      {flags, 2, "nothing to write, expected --onnx FILE, --npy DIR or --safetensors FILE"},
      {flags + "--npy " + arrays, 4, "is there already"},
      {flags + "--onnx /nowhere/a", 4, "/nowhere/a: cannot be written"},
      {flags + "--npy " + (folder / "same").string() + " --onnx " + (folder / "same").string(), 2, "both go to"},
      {flags + "--npy " + (folder / "alone").string() + " --onnx /dev/full", 4, "--onnx /dev/full: cannot be written"},
  });
  CHECK(folder.names() == std::set<std::string>{"a.onnx", "arrays"});
}

TEST_CASE("train --tensorboard: TensorBoard reads the curves") {
  const TemporaryFolder folder;
  const std::string board = (folder / "new/board").string();
  const auto curves = [](const std::filesystem::path& of) {
    const ChildResult result = run_python("events '" + of.string() + "' 2>/dev/null");
    REQUIRE(result.status == 0);
    return nlohmann::json::parse(result.output);
  };
  run_successfully(small + "3 --tensorboard " + board + " --json " + (folder / "r.json").string());
  run_successfully(small + "1 --repeat 2 --tensorboard " + (folder / "two").string());
  CHECK(std::filesystem::exists(folder / "two/run-2"));
  run_successfully(small + "1 --dry-run --tensorboard " + (folder / "dry").string());
  CHECK_FALSE(std::filesystem::exists(folder / "dry"));
  // What a killed run has drawn after its state does not count: the new file begins with a start, at step 11.
  const std::string saved = (folder / "saved").string(), resumed = (folder / "resumed").string();
  run_successfully(small + "1 --save " + saved);
  run_successfully(small + "2 --resume " + saved + " --tensorboard " + resumed);
  for (const auto& file : std::filesystem::directory_iterator(resumed)) {
    CHECK(contains(read_text(file.path()), "\x10\x0b\x3a\x02\x08\x01"));
  }
  check_mistakes({{small + "1 --tensorboard /proc/x", 4, "--tensorboard /proc/x: cannot be written"},
                  {small + "1 --tensorboard " + board, 2, "has the curves of another run; name another folder"}});

  if (!python_has("tensorboard")) return;
  const auto seen = curves(board);
  const auto epochs = nlohmann::json::parse(read_text(folder / "r.json"))["rows"][0]["runs"][0]["epochs"];
  for (const auto& [tag, member] :
       {std::pair("training/loss", "training_loss"), {"test/loss", "test_loss"}, {"test/accuracy", "test_accuracy"}}) {
    CAPTURE(tag);
    REQUIRE(seen.at(tag).size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(seen.at(tag)[i][0] == 10 * (i + 1));  // 640 samples in batches of 64
      CHECK(seen.at(tag)[i][1].get<double>() == doctest::Approx(epochs[i][member].get<double>()).epsilon(1e-6));
    }
  }
  CHECK(seen.at("training/samples_per_second").size() == 3);
  CHECK(curves(folder / "two/run-1").at("test/loss").size() == 1);
}

}  // namespace
