// libFuzzer target for CIFAR-10's files: the input is test_batch.bin with as many records as its size allows. What must
// hold: accepted exactly if it is whole records and every label is below 10; the pixels are the planes of the file.
#include <algorithm>

#include "data/formats/cifar10.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hs;
  using namespace hs::fuzz;
  const auto record = static_cast<size_t>(cifar10_record_bytes);
  const auto folder = scratch().write("test_batch.bin", {data, size}).parent_path();
  const size_t records = std::max<size_t>(size / record, 1);
  bool right = size == records * record;
  for (size_t r = 0; right && r < records; ++r) right = data[r * record] < 10;

  const auto source = accepted([&] { return open_cifar10(folder, false, static_cast<int64_t>(records)); });
  expect(source.has_value() == right, "accepted exactly if right");
  if (!right) return 0;
  for (size_t r = 0; r < records; ++r) {
    Bytes image(record - 1);
    (*source)->read(static_cast<int64_t>(r), image.data());
    expect((*source)->label(static_cast<int64_t>(r)) == data[r * record], "label");
    for (size_t p = 0; p < image.size(); ++p) {
      expect(image[p] == data[r * record + 1 + p % 3 * 1024 + p / 3], "pixel");
    }
  }
  return 0;
}
