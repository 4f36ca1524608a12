// IDX, the format of MNIST: two zero bytes, an element type (0x08: unsigned byte), the number of dimensions,
// each dimension as a big-endian 32-bit number, then the elements, row-major (http://yann.lecun.com/exdb/mnist/).
// Plain or gzip, detected by content, never by name. The header is never believed: what it claims is compared with the
// size of the file before memory is allocated, and the content must end exactly where the header says. What follows the
// last member of a gzip file is ignored, as gunzip does.
//
// Every failure throws Error with one line that starts with the name of the file: ExitCode::bad_input for bad content
// and for anything that is not a regular file, ExitCode::io if the file cannot be opened or read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/io/sample_source.h"
#include "data/io/sample_writer.h"

namespace hs {

// Larger files, and larger claims inside gzip, are refused unread. MNIST's largest file is 47 MB.
inline constexpr uint64_t idx_max_bytes = uint64_t{2} << 30;
inline constexpr uint64_t idx_max_pixels = uint64_t{1} << 20;  // of one image

// What a file of images contains.
struct IdxImages {
  int64_t total = 0;            // samples in the file; count is smaller if a limit was given
  int64_t count = 0;            // samples in `pixels`
  int64_t rows = 0;             // image height
  int64_t columns = 0;          // image width
  std::vector<uint8_t> pixels;  // (count, rows, columns)
};

// limit: keeps only the first `limit` samples, 0 keeps all. The whole file is checked either way.
// REQUIRES: limit >= 0
IdxImages read_idx_images(const std::filesystem::path& path, int64_t limit = 0);

// Labels are unsigned bytes, or signed integers of two (0x0b) or four (0x0c) bytes; each must be below `classes`.
std::vector<int32_t> read_idx_labels(const std::filesystem::path& path, int classes);

// Writes a file of images and one of labels (of two bytes each if there are more than 256 classes).
// Throws Error: usage (images with several channels, which this format does not support), io.
std::unique_ptr<SampleWriter> write_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                                        const SampleInfo& info);

}  // namespace hs
