#include "bench/measure/work_folder.h"

#include "data/formats/idx.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"
#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs::bench::measure {

std::pair<int64_t, int64_t> files_in(const std::filesystem::path& folder) {
  int64_t files = 0, bytes = 0;
  for (const std::filesystem::directory_entry& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return {files, bytes};
}

std::unique_ptr<SampleWriter> write_split(const SetFormat& as, const std::filesystem::path& folder, Part part,
                                          const SampleInfo& info) {
  if (info.type != DType::u8) {
    fail(ExitCode::bad_input, "{}: samples of {}, and the formats to write have a byte for each value", info.name,
         info.text());
  }
  const std::filesystem::path base = folder / name(part), named = folder / (name(part) + ("." + as.format));
  if (as.format == "record") return write_records(named, info, {as.shards, as.compress, 0});
  if (as.format == "tfrecord") return write_tfrecords(named, info, as.shards);
  if (as.format == "png") return write_image_folder(base, info, ImageFormat::png, as.lifetime);
  if (as.format == "jpeg") return write_image_folder(base, info, ImageFormat::jpeg, as.lifetime);
  if (as.format == "pgm") return write_image_folder(base, info, ImageFormat::pgm, as.lifetime);
  const std::string stem = part == Part::train ? "train" : "t10k";
  return write_idx(folder / (stem + "-images-idx3-ubyte"), folder / (stem + "-labels-idx1-ubyte"), info);
}

}  // namespace hs::bench::measure
