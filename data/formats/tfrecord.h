// TFRecord, TensorFlow's format: records one after the other, each with a masked CRC32C of its length and one of its
// bytes. Each contains a tf.train.Example, a protobuf message that maps names to lists. Supported are images of one
// size, raw bytes, under the names "image" (bytes), "label", "height", "width" and "channels" (int64), for reading and
// writing.
//
//   8 length | 4 masked CRC32C of it | the bytes | 4 masked CRC32C of them        all little-endian
//   masked: the CRC rotated right by 15 bits, plus 0xa282ead8
//
// The format has no index: opening reads and checks every record once and keeps where its image is.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "data/io/sample_source.h"
#include "data/io/sample_writer.h"

namespace hs {

uint32_t masked_crc32c(const void* bytes, size_t size);  // see the head of this file
// The record as it is in a file: between its length and its checksums.
std::string framed_tfrecord(std::string_view record);

// `path`: one file, or the prefix of a set of shards PREFIX-00000-of-00004, or one of the shards. Other features and
// unknown fields are skipped; if a feature occurs twice in a record, the last one counts, as in protobuf.
// Throws Error: io (no such files, or they cannot be read), bad_input.
std::unique_ptr<SampleSource> open_tfrecords(const std::filesystem::path& path, const SetIdentity& set = {});

// Throws Error: usage (more shards than samples, or than 256), io.
std::unique_ptr<SampleWriter> write_tfrecords(const std::filesystem::path& prefix, const SampleInfo& info,
                                              int64_t shards = 1);

}  // namespace hs
