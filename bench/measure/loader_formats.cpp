#include "bench/measure/loader_formats.h"

#include "data/formats/image_folder.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"

namespace hs::bench::measure {

namespace fs = std::filesystem;

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {"memory", nullptr, nullptr},
      {"record", [](const fs::path& at, const SampleInfo& info) { return write_records(at / "set", info); },
       [](const fs::path& at) { return open_records(at / "set"); }},
      {"record_zlib",
       [](const fs::path& at, const SampleInfo& info) {
         return write_records(at / "set", info, {.shards = 1, .compress = true, .samples_per_block = 0});
       },
       [](const fs::path& at) { return open_records(at / "set"); }},
      {"tfrecord", [](const fs::path& at, const SampleInfo& info) { return write_tfrecords(at / "set", info, 1); },
       [](const fs::path& at) { return open_tfrecords(at / "set", {}); }},
      {"pgm",
       [](const fs::path& at, const SampleInfo& info) {
         return write_image_folder(at / "set", info, ImageFormat::pgm, Lifetime::temporary);
       },
       [](const fs::path& at) { return open_image_folder(at / "set", {}); }},
      {"png",
       [](const fs::path& at, const SampleInfo& info) {
         return write_image_folder(at / "set", info, ImageFormat::png, Lifetime::temporary);
       },
       [](const fs::path& at) { return open_image_folder(at / "set", {}); }},
  };
  return all;
}

}  // namespace hs::bench::measure
