// libFuzzer target for TFRecord. Every input is read as the bytes of one record (a tf.train.Example), as a file, and as
// a file with right checksums around it. What must hold beyond "no crash":
//   refused:  hs::Error with bad_input, in one line;
//   accepted: the image has as many bytes as its shape says, the label is in range, and the example written again and
//             read again is the same;
//   framed:   accepted exactly if the record alone is; never if a byte is missing or too many.
#include <algorithm>

#include "data/formats/tfrecord.h"
#include "engine/files/endian.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hs;
using namespace hs::fuzz;

Bytes framed(std::span<const uint8_t> record) {
  Bytes frame(12);
  put_little_endian(&frame[0], uint64_t{record.size()});
  put_little_endian(&frame[8], masked_crc32c(frame.data(), 8));
  frame.insert(frame.end(), record.begin(), record.end());
  frame.resize(frame.size() + 4);
  put_little_endian(&frame[frame.size() - 4], masked_crc32c(record.data(), record.size()));
  return frame;
}

std::unique_ptr<SampleSource> check_file(std::span<const uint8_t> file) {
  const auto path = scratch().write("a", file);
  auto source = accepted([&] { return open_tfrecords(path); });
  if (!source) return nullptr;
  const SampleInfo& info = (*source)->info();
  Bytes image(static_cast<size_t>(info.image_bytes()));
  for (int64_t i = 0; i < info.count; ++i) {
    (*source)->read(i, image.data());  // what was accepted at opening can be read
    expect((*source)->label(i) >= 0 && (*source)->label(i) < info.classes, "label");
  }
  return std::move(*source);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> record(data, size);
  const std::string name = "FILE";
  check_file(record);

  const auto example = accepted([&] { return parse_tfrecord_example(record, name); });
  Bytes frame = framed(record);
  const auto source = check_file(frame);
  expect((source != nullptr) == example.has_value(), "a frame changes nothing");
  if (!source) return 0;
  const SampleInfo& info = source->info();
  expect(info.count == 1 && info.shape() == example->shape, "shape");
  expect(example->image.size() == static_cast<size_t>(info.image_bytes()), "pixels");
  Bytes image(example->image.size());
  source->read(0, image.data());
  expect(std::equal(image.begin(), image.end(), example->image.begin()) && source->label(0) == example->label,
         "sample");

  const auto writer = write_tfrecords(scratch() / "b", info);
  writer->add(image.data(), source->label(0));
  writer->finish();
  const auto again = open_tfrecords(scratch() / "b");
  Bytes same(image.size());
  again->read(0, same.data());
  expect(same == image && again->label(0) == source->label(0), "round trip");

  frame.push_back(0);
  expect(!check_file(frame), "a byte too many");
  frame.resize(frame.size() - 2);
  expect(!check_file(frame), "a byte too few");
  return 0;
}
