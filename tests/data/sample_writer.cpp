// What holds for the writer of every format: it keeps all or nothing, and its calls must fit the set.
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

struct Format {
  const char* name;
  std::unique_ptr<SampleWriter> (*write)(const fs::path& folder, const SampleInfo& info);
  bool one_file_for_each_sample = false;
};
const Format formats[] = {
    {"record", [](const fs::path& f, const SampleInfo& info) { return write_records(f / "a", info, {.shards = 2}); }},
    {"tfrecord", [](const fs::path& f, const SampleInfo& info) { return write_tfrecords(f / "a", info, 2); }},
    {"idx", [](const fs::path& f, const SampleInfo& info) { return write_idx(f / "images", f / "labels", info); }},
    {"pgm",
     [](const fs::path& f, const SampleInfo& info) { return write_image_folder(f / "a", info, ImageFormat::pgm); },
     true}};

TEST_CASE("nothing is left at the path, or next to it, if writing fails or is given up") {
  const SampleInfo info = info_for(100, {64, 64, 1});
  for (const Format& format : formats) {
    CAPTURE(format.name);
    const TemporaryFolder folder;
    {
      const auto writer = format.write(folder.path, info);
      for (int64_t i = 0; i < 60; ++i) writer->add(image_of(info, i).data(), 0);
      for (const std::string& name : folder.names()) CHECK(name.starts_with(".halfstep-"));
      CHECK(!folder.names().empty());
    }
    CHECK(folder.names().empty());
    CHECK(outcome_of([&] { format.write(folder / "none", info); }).code == ExitCode::io);
    for (const uint64_t limit : {0, 1, 4095, 4096, 100'000, 207'000}) {
      CAPTURE(limit);
      if (format.one_file_for_each_sample && limit > 4096) continue;
      check_refused(outcome_on_full_disk(limit, [&] { write_all(*format.write(folder.path, info), info); }),
                    ExitCode::io, folder.path.string(), "cannot be written: File too large", 2 * mib);
      CHECK(folder.names().empty());
    }
  }
}

TEST_CASE("labels and numbers of samples that do not fit the set") {
  const SampleInfo info = info_for(5);
  const Bytes image = image_of(info, 0);
  for (const Format& format : formats) {
    CAPTURE(format.name);
    const TemporaryFolder folder;
    const auto is_usage = [](const std::function<void()>& call) { return outcome_of(call).code == ExitCode::usage; };
    {
      const auto writer = format.write(folder.path, info);
      CHECK(is_usage([&] { writer->add(image.data(), 10); }));
      CHECK(is_usage([&] { writer->add(image.data(), -1); }));
      for (int i = 0; i < 5; ++i) {
        CHECK(is_usage([&] { writer->finish(); }));
        writer->add(image.data(), 9);
      }
      CHECK(is_usage([&] { writer->add(image.data(), 9); }));
    }
    CHECK(folder.names().empty());
  }
  for (const int64_t shards : {0, 6}) {
    const TemporaryFolder folder;
    CHECK(outcome_of([&] { write_records(folder / "a", info, {.shards = shards}); }).code == ExitCode::usage);
    CHECK(outcome_of([&] { write_tfrecords(folder / "a", info, shards); }).code == ExitCode::usage);
    CHECK(folder.names().empty());
  }
}

}  // namespace
