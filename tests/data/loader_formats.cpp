// The loader returns the same batches for every format, cache, number of workers and depth.
#include "data/formats/idx.h"
#include "data/formats/image_file.h"
#include "data/formats/image_folder.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"
#include "data/io/memory_source.h"
#include "data/open_dataset.h"
#include "tests/support/loader_sets.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::test;
using Sources = std::vector<std::pair<std::string, std::unique_ptr<SampleSource>>>;

// The set as every format holds it, opened, with the name of the format.
Sources all_formats(const fs::path& folder, const SampleInfo& info) {
  write_all(*write_records(folder / "plain.record", info, {.shards = 3, .compress = false, .samples_per_block = 2}),
            info);
  write_all(*write_records(folder / "packed.record", info, {.shards = 2, .compress = true, .samples_per_block = 3}),
            info);
  write_all(*write_tfrecords(folder / "set.tfrecord", info, 2), info);
  fs::create_directory(folder / "idx");
  write_all(*write_idx(folder / "idx" / "train-images-idx3-ubyte", folder / "idx" / "train-labels-idx1-ubyte", info),
            info);
  write_all(*write_image_folder(folder / "pgm", info, ImageFormat::pgm), info);
  Sources all;
  all.emplace_back("record", open_records(folder / "plain.record"));
  all.emplace_back("compressed record", open_records(folder / "packed.record", {.map_limit = 0, .cache_bytes = 1}));
  all.emplace_back("tfrecord", open_dataset((folder / "set.tfrecord").string(), Part::train));
  all.emplace_back("idx", open_dataset((folder / "idx").string(), Part::train));
  all.emplace_back("pgm", open_image_folder(folder / "pgm"));
  if (!can_read_png()) {
    MESSAGE("png skipped: built without libpng");
    return all;
  }
  write_all(*write_image_folder(folder / "png", info, ImageFormat::png), info);
  all.emplace_back("png", open_image_folder(folder / "png"));
  return all;
}

// Calls check(options) for every cache, number of workers and depth.
void for_all_options(const std::function<void(const LoaderOptions&)>& check) {
  for (const CacheMode cache : {CacheMode::none, CacheMode::ram, CacheMode::device}) {
    for (const int64_t workers : {0, 1, 2, 5}) {
      for (const int64_t prefetch : {0, 1, 2, 4}) {
        CAPTURE(static_cast<int>(cache));
        CAPTURE(workers);
        CAPTURE(prefetch);
        check({.batch = 4, .seed = 7, .prefetch = prefetch, .workers = workers, .cache = cache});
      }
    }
  }
}

TEST_CASE("the batches of every format are those of the same samples in memory") {
  const TemporaryFolder folder;
  for (const auto& [format, source] : all_formats(folder.path, info_for(23, {4, 3, 1}))) {
    CAPTURE(format);
    const MemorySource memory = load_samples(*source);
    for_all_options([&, &source = source](const LoaderOptions& options) {
      Loader reference(memory, {.batch = 4, .seed = 7}), loader(*source, options);
      int wrong = 0;
      while (loader.epoch() < 3) wrong += on_host(loader.next()) != on_host(reference.next());
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("numbers and targets arrive as they are, NaN payloads included, whatever the loader does") {
  SampleInfo info = info_for(23, {1, 5, 1}, 1 << 30);
  info.type = info.label_type = DType::f32;
  const TestSource source(info);
  for_all_options([&](LoaderOptions options) {
    for (const bool on_host : {false, true}) {
      if (on_host && options.cache == CacheMode::device) continue;
      options.normalize_on_host = on_host;
      Loader loader(source, options);
      CHECK(wrong_batches(loader, info, options, 12) == 0);
      const Batch batch = loader.next();
      CHECK(batch.images.to_string() == "f32(4, 1, 5, 1)");
      CHECK(batch.labels.to_string() == "f32(4)");
    }
  });
}

}  // namespace
