// `halfstep-bench bench loader` as its users meet it, and what `train` makes of other sets and of its switches for
// loading.
#include "bench/measure/loader_search.h"
#include "data/formats/record_file.h"
#include "models/models.h"
#include "tests/support/bench_outputs.h"
#include "tests/support/loader_sets.h"

namespace {

using namespace hs;
using namespace hs::test;
using namespace hs::bench::measure;

// With a folder for temporary files of its own, which must be empty afterwards.
Ended bench(const std::string& line) {
  const TemporaryFolder temporary;
  const Ended ended = run_bench_line(line + " --device cpu", {.variables = {"TMPDIR=" + temporary.path.string()}});
  CHECK(temporary.names().empty());
  return ended;
}

json record_of(const std::string& line) {
  const Ended ended = bench(line + " --json -");
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  return json::parse(ended.out);
}

// A set of record files with both parts.
void write_set(const fs::path& folder, ImageShape shape, int classes) {
  fs::create_directories(folder);
  for (const char* part : {"train", "test"}) {
    const SampleInfo info = info_for(60, shape, classes);
    write_all(*write_records(folder / (std::string(part) + ".record"), info), info);
  }
}

TEST_CASE("loader: every format, cache and setting is in the record") {
  const json record = record_of("bench loader --samples 90 --batch 16 --compute 300");
  CHECK(record["data"]["samples"] == 90);
  CHECK(record["data"]["image_bytes"] == 784);
  std::set<std::string> formats;
  for (const json& format : record["formats"]) {
    formats.insert(format["name"]);
    CHECK(format["cold_samples_per_second"] > 0);
    CHECK(format["warm_samples_per_second"] > 0);
    const bool has_many = format["name"] == "png" || format["name"] == "jpeg" || format["name"] == "pgm";
    CHECK(format["files"] == (has_many ? 90 : format["name"] == "memory" ? 0 : 1));
  }
  CHECK(formats == std::set<std::string>{"memory", "record", "record_zlib", "tfrecord", "pgm", "png", "jpeg"});
  CHECK(record["rows"].size() == 7 * 3 * 4);
  std::set<std::string> settings;
  for (const json& row : record["rows"]) {
    settings.insert(row["format"].get<std::string>() + row["cache"].get<std::string>() + row["workers"].dump() +
                    row["prefetch"].dump());
    CHECK(row["samples_per_second"] > 0);
    CHECK(row["wait_us_per_step"] >= 0);
    CHECK(row["stall_share"] >= 0);
    CHECK(row["stall_share"] <= 1);
  }
  CHECK(settings.size() == record["rows"].size());
}

TEST_CASE("loader: loading and computing overlap with a thread, and follow each other without") {
  const json record = record_of("bench loader --samples 40 --batch 8 --compute 0 --format record");
  CHECK(record["formats"].size() == 2);
  REQUIRE(record["timelines"].size() == 3);
  for (const json& timeline : record["timelines"]) {
    double step_end = 0;
    for (const json& span : timeline["spans"]) {
      CHECK(span[2] <= span[3]);
      if (span[0] != "step") continue;
      CHECK(span[2].get<double>() >= step_end);  // steps follow each other, each behind the load of its batch
      step_end = span[3];
      for (const json& load : timeline["spans"]) {
        if (load[0] != "step" && load[1] == span[1]) CHECK(load[3].get<double>() <= span[2].get<double>());
      }
    }
    // Spans are ordered by lane, then batch. Synchronously no load overlaps a step.
    if (timeline["prefetch"] != 0) continue;
    for (const json& load : timeline["spans"]) {
      for (const json& step : timeline["spans"]) {
        if (load[0] == "step" || step[0] != "step") continue;
        CHECK((load[3] <= step[2] || load[2] >= step[3]));
      }
    }
  }
}

// Adds steps of a machine until the search is over. Every 20th one has a validation in it.
LoaderSearch searched(int64_t cores, const std::function<std::pair<double, double>(LoaderSetting)>& wait_and_rest_ms) {
  LoaderSearch search(cores);
  for (int step = 0; step < 10'000 && !search.is_over(); ++step) {
    const auto [wait, rest] = wait_and_rest_ms(search.setting());
    search.add(1e-3 * wait, 1e-3 * rest + (step % 20 == 19 ? 5 : 0));
  }
  return search;
}

TEST_CASE("loader auto: the cheapest setting with which steps do not wait, or with which they are shortest") {
  struct Row {
    const char* name;
    int64_t cores;
    std::function<std::pair<double, double>(LoaderSetting)> machine;
    LoaderSetting expected;
    size_t tried;
  };
  for (const auto& [name, cores, machine, expected, tried] : std::vector<Row>{
           {"in memory", 2, [](auto) { return std::pair(0.01, 4.0); }, {0, 0}, 1},
           {"to decode", 2, [](auto s) { return std::pair(s.workers == 0 ? 0.8 : 0.01, 4.0); }, {1, 1}, 2},
           {"uneven", 2, [](auto s) { return std::pair(s.prefetch < 2 ? 0.1 : 0.01, 4.0); }, {1, 2}, 3},
           {"four threads", 8, [](auto s) { return std::pair(s.workers < 4 ? 1.0 : 0.0, 1.0); }, {4, 8}, 5},
           {"not so many cores",
            3,
            [](auto s) { return std::pair(s.workers < 4 ? 9.0 - 3 * s.workers : 0, 1.0); },
            {2, 4},
            4},
           {"nothing helps", 2, [](auto) { return std::pair(1.0, 1.0); }, {0, 0}, 4},
           {"a worker takes a core",
            2,
            [](auto s) { return s.workers == 0 ? std::pair(0.8, 4.0) : std::pair(0.0, 5.5); },
            {0, 0},
            2}}) {
    CAPTURE(name);
    const LoaderSearch search = searched(cores, machine);
    CHECK(search.is_over());
    CHECK(search.setting() == expected);
    CHECK(search.to_json()["tried"].size() == tried);
    CHECK(contains(search.text(), fmt::format("--workers {} --prefetch {}: ", expected.workers, expected.prefetch)));
  }
}

TEST_CASE("loader auto: batches are the same while it is searched, and a cache that is full is searched for again") {
  const SampleInfo info = info_for(960);
  const TestSource source(info, [](int64_t) { std::this_thread::sleep_for(std::chrono::microseconds(50)); });
  const LoaderOptions options{.batch = 16, .cache = CacheMode::ram};
  SearchingLoader loader(source, options, true);
  for (int64_t step = 0; step < 120; ++step) {
    CHECK(on_host(loader.next()) == expected_batch(info, step / 60, step % 60 * 16, options));
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    if (step == 58) CHECK(loader.search()->setting().prefetch > 0);
    if (step == 59) CHECK(loader.search()->setting() == LoaderSetting{0, 0});
  }
}

const std::string small = "train --train 96 --test 40 --epochs 2 --batch 32 --quiet ";

TEST_CASE("train: every way to load gives the same weights, and says where the time went") {
  const json expected = record_of(small + "--prefetch 0 --cache none")["rows"][0];
  for (const char* flags : {"", "--prefetch 4 --workers 3", "--prefetch 2 --workers 0", "--cache device", "--pin off",
                            "--cache none", "--preprocess host", "--loader auto --cache none"}) {
    CAPTURE(flags);
    const json row = record_of(small + flags)["rows"][0];
    CHECK(row["weights_sha256"] == expected["weights_sha256"]);
    double parts = 0;
    for (const char* part : {"wait", "upload", "forward", "backward", "update", "replay"}) {
      CHECK(row["parts"][part] >= 0);
      parts += row["parts"][part].get<double>();
    }
    CHECK(parts <= row["seconds"].get<double>());
    CHECK(row["parts"]["forward"] > 0);
    CHECK(row["parts"]["backward"] > 0);
    CHECK(row["stall_share"].get<double>() ==
          doctest::Approx(row["parts"]["wait"].get<double>() / row["seconds"].get<double>()));
  }
  const json found = record_of(small + "--loader auto");
  CHECK(found["config"]["loader"] == "auto");
  CHECK(found["rows"][0]["runs"][0]["loader"]["prefetch"] == 0);  // there were too few steps to try another one
  check_one_line(bench(small + "--loader auto --workers 2"), 2, "--loader auto: finds --workers itself");
  check_one_line(bench(small + "--cache device --preprocess host"), 2, "preprocess them there");
}

// The program on the CUDA emulator, whose library takes the place of the usual one.
Ended on_cuda(const std::string& line, const std::string& variable = "") {
  const TemporaryFolder place;
  fs::create_symlink(HALFSTEP_EMULATED_LIBRARY, place / "libhalfstep.so.0");
  std::vector<std::string> variables = {"LD_LIBRARY_PATH=" + place.path.string()};
  if (!variable.empty()) variables.push_back(variable);
  return run_bench_line(line + " --device cuda --json -", {.variables = variables});
}

TEST_CASE("train on cuda: the set is on the device and 16 steps are a graph, where that fits and changes no bit") {
  const TemporaryFolder folder;
  write_set(folder / "tiny", {5, 5, 1}, 10);  // 60 samples: 20 steps in an epoch
  const std::string train = "train --model mlp --batch 3 --test 7 --quiet --data " + (folder / "tiny").string() + " ";
  const std::string save = "--save " + (folder / "saved").string(), resume = "--resume " + (folder / "saved").string();
  const json expected =
      json::parse(on_cuda(train + "--epochs 2 --cache ram --graph-steps 1").out)["rows"][0]["weights_sha256"];
  struct Row {
    std::string flags, cache;
    int64_t steps;
    bool same_weights = true;
  };
  for (const auto& [flags, cache, steps, same_weights] :
       std::vector<Row>{{"", "device", 16},
                        {"--graph-steps 5", "device", 5},
                        {"--cache ram", "ram", 1},
                        {"--preprocess host", "ram", 1},
                        {"--graph off", "device", 1},
                        {"--max-minutes 5", "device", 1},
                        {"--reduce tree", "device", 1},
                        {save + " --save-every 9st --epochs 1", "device", 1, false},
                        {resume, "device", 1},  // it saves every 9 steps, too
                        {resume + " --save-every 1ep", "device", 16},
                        {"--train 47", "device", 1, false},  // an epoch has 15 whole batches
                        {"--accumulate 2", "device", 1, false},
                        {"--validation 0.1 --validate-every 4st", "device", 1, false},
                        {"--validation 0.1", "device", 16, false}}) {
    CAPTURE(flags);
    const Ended ended = on_cuda(train + flags + (contains(flags, "--epochs") ? "" : " --epochs 2"));
    REQUIRE_MESSAGE(ended.code == 0, ended.err);
    const json record = json::parse(ended.out);
    CHECK(record["config"]["cache"] == cache);
    CHECK(record["config"]["graph_steps"] == steps);
    CHECK((record["rows"][0]["weights_sha256"] == expected) == same_weights);
    const std::string graph = contains(flags, "--graph off") ? "no graph" : fmt::format("graph of {} step", steps);
    CHECK(contains(record["headline"], fmt::format("device cuda, cache {}, {}", cache, graph)));
  }
  check_one_line(on_cuda(train + "--graph-steps 16 --cache ram"), 2,
                 "--graph-steps 16: needs a graph (--graph on), --cache device");
  const Ended small = on_cuda(train + "--graph-steps 16", "HALFSTEP_EMULATOR_MEMORY=3000");  // the set takes 1943
  check_one_line(small, 2, "--graph-steps 16: needs --cache device, which is automatic only");
  CHECK(contains(small.err, "in half of the 3000 bytes"));
}

TEST_CASE("train: sets of other sizes and classes, and models that cannot take them") {
  const TemporaryFolder folder;
  write_set(folder / "wide", {12, 30, 3}, 7);
  write_set(folder / "tiny", {5, 5, 1}, 1000);
  const std::string few = "train --epochs 1 --batch 16 --quiet ";
  for (const std::string& model : hs::model_names(hs::InputKind::images)) {
    CAPTURE(model);
    const Ended ended = bench(few + "--json - --model " + model + " --data " + (folder / "wide").string());
    if (ended.code != 0) {  // a model may be made for larger images
      check_one_line(ended, 3, "--model " + model + ": images of 12 x 30 are too small for it; use mlp");
      continue;
    }
    const json record = json::parse(ended.out);
    CHECK(record["data"]["name"] == "numbered");
    CHECK(record["data"]["train"] == 60);  // the default of 20,000 is all there are
    CHECK(record["rows"][0]["final_loss"] > 0);
  }
  CHECK(record_of(few + "--model mlp --data " + (folder / "tiny").string())["rows"][0]["final_loss"] > 0);
  const Ended small_images = bench(few + "--data " + (folder / "tiny").string());
  CHECK(small_images.code == 3);
  CHECK(contains(small_images.err, "--model mnist_cnn: images of 5 x 5 are too small for it; use mlp"));
  const Ended too_many = bench(few + "--train 61 --data " + (folder / "tiny").string());
  CHECK(too_many.code == 2);
  CHECK(contains(too_many.err, "--train 61: the set has 60 samples"));
  CHECK(record_of(few + "--train 20 --test 10 --data synthetic")["data"]["name"] == "synthetic digits");
}

}  // namespace
