// libFuzzer target for record files. Every input is read as it is, and with its three kinds of checksums made right,
// without which hardly any mutation gets past the header. What must hold beyond "no crash":
//   refused:  hs::Error with bad_input, in one line, at opening or at reading a sample;
//   accepted: labels are below the number of classes, and uncompressed pixels are the bytes of the file;
//   as it is: accepted and read to the end only if the checksums were right already.
#include <algorithm>

#include "data/formats/record_file.h"
#include "data/formats/record_format.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hs;
using namespace hs::fuzz;

// Makes the sums right that can be found.
Bytes sealed(std::span<const uint8_t> file) {
  Bytes bytes(file.begin(), file.end());
  if (bytes.size() < record_header_bytes) return bytes;
  const auto index = get_little_endian<uint64_t>(&bytes[96]);
  const auto blocks = get_little_endian<uint64_t>(&bytes[80]);
  if (index <= bytes.size()) {
    for (uint64_t block = 0; block < blocks && (block + 1) * record_block_entry_bytes <= bytes.size() - index;
         ++block) {
      uint8_t* entry = &bytes[index + block * record_block_entry_bytes];
      const auto offset = get_little_endian<uint64_t>(entry);
      const auto size = get_little_endian<uint32_t>(entry + 8);
      if (offset <= index && size <= index - offset) put_little_endian(entry + 12, crc32c(&bytes[offset], size));
    }
    const uint32_t crc = crc32c(bytes.data() + index, bytes.size() - index);
    put_little_endian(&bytes[112], crc);
    put_little_endian(&bytes[116], crc);
  }
  put_little_endian(&bytes[104], uint64_t{bytes.size()});
  put_little_endian(&bytes[record_header_bytes - 4], crc32c(bytes.data(), record_header_bytes - 4));
  return bytes;
}

// True if all of it could be read.
bool check_file(const Bytes& bytes) {
  const auto path = scratch().write("a-00000-of-00001", bytes);
  const auto source = accepted([&] { return open_records(path, {.map_limit = 1 << 22, .cache_bytes = 1 << 20}); });
  if (!source) return false;
  const SampleInfo& info = (*source)->info();
  const auto image_bytes = static_cast<size_t>(info.image_bytes());
  expect(info.count >= 1 && info.classes >= 1 && info.classes <= max_classes, "counts");
  expect(image_bytes >= 1 && info.image_bytes() <= max_image_bytes, "shape");
  const bool compressed = get_little_endian<uint32_t>(&bytes[72]) != 0;
  Bytes image(image_bytes);
  for (int64_t i = 0; i < std::min<int64_t>(info.count, 200); ++i) {
    const int32_t label = (*source)->label(i);
    expect(label >= 0 && label < info.classes, "label");
    const auto read = accepted([&] {
      (*source)->read(i, image.data());
      return true;
    });
    if (!read) return false;
    const auto at =
        bytes.begin() + static_cast<std::ptrdiff_t>(record_header_bytes + static_cast<size_t>(i) * image_bytes);
    expect(compressed || std::equal(image.begin(), image.end(), at), "pixels");
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file(data, data + size), right = sealed({data, size});
  check_file(right);
  const bool header_and_index_right = file == right;
  if (check_file(file)) {
    expect(header_and_index_right || get_little_endian<uint64_t>(&file[16]) > 200, "wrong sums are accepted");
  }
  return 0;
}
