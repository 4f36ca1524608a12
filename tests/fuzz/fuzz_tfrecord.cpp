// libFuzzer target for TFRecord. Every input is read as a file, and as the bytes of one record (a tf.train.Example)
// with right checksums around it. What must hold beyond "no crash":
//   refused:  hs::Error with bad_input, in one line;
//   accepted: the label is in range, and the sample written again and read again is the same;
//   framed:   never accepted if a byte is missing or too many.
#include "data/formats/tfrecord.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hs;
using namespace hs::fuzz;

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
  check_file({data, size});

  const std::string framed = framed_tfrecord({reinterpret_cast<const char*>(data), size});
  Bytes frame(framed.begin(), framed.end());
  const auto source = check_file(frame);
  if (!source) return 0;
  const SampleInfo& info = source->info();
  expect(info.count == 1, "samples");
  Bytes image(static_cast<size_t>(info.image_bytes()));
  source->read(0, image.data());

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
