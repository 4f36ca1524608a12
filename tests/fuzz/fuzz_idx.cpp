// libFuzzer target for the IDX reader. Every input is read four ways: as images and as labels, as it is and packed into
// gzip with a right checksum (mutation alone never makes one). What must hold beyond "no crash":
//   accepted: the size equation of the header is exact and the samples are the bytes behind it;
//   refused:  hs::Error with bad_input, nothing else, in one line;
//   packed:   accepted exactly if the plain bytes are, with the same samples, and never if cut;
//   a limit:  of images keeps a prefix, and changes nothing about what is accepted.
#include <zlib.h>

#include <algorithm>

#include "data/formats/idx.h"
#include "engine/files/endian.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hs;
using namespace hs::fuzz;
constexpr int classes = 10;

auto read_images(std::span<const uint8_t> file, int64_t limit = 0) {
  const auto path = scratch().write("images", file);
  return accepted([&] { return read_idx_images(path, limit); });
}
auto read_labels(std::span<const uint8_t> file) {
  const auto path = scratch().write("labels", file);
  return accepted([&] { return read_idx_labels(path, classes); });
}

uint64_t word(std::span<const uint8_t> file, size_t at) { return get_big_endian(&file[at]); }

bool is_gzip(std::span<const uint8_t> file) { return file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b; }

Bytes gzip(std::span<const uint8_t> plain) {
  z_stream stream{};
  expect(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib");
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<uint8_t*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  expect(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

void check_images(std::span<const uint8_t> file, std::span<const uint8_t> packed) {
  const auto images = read_images(file);
  const auto one = read_images(file, 1);
  expect(images.has_value() == one.has_value(), "images: a limit does not change what is accepted");
  if (images) {
    const auto pixels = static_cast<uint64_t>(images->rows) * static_cast<uint64_t>(images->columns);
    expect(images->count >= 1 && images->total == images->count && pixels >= 1, "images: no empty dimension");
    expect(images->pixels.size() == static_cast<uint64_t>(images->count) * pixels, "images: sizes agree");
    expect(one->count == 1 && one->total == images->total, "images: a limit of 1 keeps one");
    expect(one->pixels.size() == pixels, "images: a limit of 1 keeps one");
    expect(std::equal(one->pixels.begin(), one->pixels.end(), images->pixels.begin()), "images: the limit is a prefix");
  }
  if (is_gzip(file)) return;
  if (images) {
    expect(word(file, 0) == 0x803 && word(file, 4) == static_cast<uint64_t>(images->count), "images: header");
    expect(word(file, 8) == static_cast<uint64_t>(images->rows), "images: header");
    expect(word(file, 12) == static_cast<uint64_t>(images->columns), "images: header");
    expect(file.size() == 16 + images->pixels.size(), "images: size equation");
    expect(std::equal(images->pixels.begin(), images->pixels.end(), file.begin() + 16), "images: pixels");
  }
  const auto unpacked = read_images(packed);
  expect(unpacked.has_value() == images.has_value(), "images: gzip is accepted as the plain file is");
  expect(!images || unpacked->pixels == images->pixels, "images: gzip gives the same pixels");
}

void check_labels(std::span<const uint8_t> file, std::span<const uint8_t> packed) {
  const auto labels = read_labels(file);
  if (labels) {
    expect(!labels->empty(), "labels: at least one");
    for (const int32_t label : *labels) expect(label >= 0 && label < classes, "labels: in range");
  }
  if (is_gzip(file)) return;
  if (labels) {
    const uint64_t type = word(file, 0), bytes = type == 0x801 ? 1 : type == 0xb01 ? 2 : 4;
    expect((bytes < 4 || type == 0xc01) && word(file, 4) == labels->size(), "labels: header");
    expect(file.size() == 8 + bytes * labels->size(), "labels: size equation");
    // Those that are below `classes` are in the last byte.
    for (size_t i = 0; i < labels->size(); ++i) expect((*labels)[i] == file[7 + bytes * (i + 1)], "labels: values");
  }
  const auto unpacked = read_labels(packed);
  expect(unpacked == labels, "labels: gzip is accepted as the plain file is, with the same labels");
}

void check_refused(std::span<const uint8_t> file) {
  expect(!read_images(file), "images: damaged gzip is refused");
  expect(!read_labels(file), "labels: damaged gzip is refused");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> file(data, size);
  Bytes packed = gzip(file);
  check_images(file, packed);
  check_labels(file, packed);
  packed.pop_back();
  check_refused(packed);
  return 0;
}
