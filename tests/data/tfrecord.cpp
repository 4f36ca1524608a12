// TFRecord: against bytes that TensorFlow wrote, and files that are cut, damaged or lie.
#include "data/formats/tfrecord.h"
#include "engine/files/endian.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

// By tf.io.TFRecordWriter of TensorFlow 2, from two examples that were serialised with deterministic=True: an image of
// 2 x 3 x 1 pixels 1 2 3 4 5 6 with label 7, and one of 4 5 6 1 2 3 with label 300.
const Bytes golden = from_hex(
    "5b000000000000001b01028a0a590a110a086368616e6e656c7312051a030a01010a0f0a0668656967687412051a030a01020a130a05696d"
    "616765120a0a080a060102030405060a0e0a056c6162656c12051a030a01070a0e0a05776964746812051a030a01034256f4555c00000000"
    "000000c9cdf98f0a5a0a110a086368616e6e656c7312051a030a01010a0f0a0668656967687412051a030a01020a130a05696d616765120a"
    "0a080a060405060102030a0f0a056c6162656c12061a040a02ac020a0e0a05776964746812051a030a01030354073f");

TEST_CASE("what TensorFlow wrote is read, and what is written is what TensorFlow writes") {
  const TemporaryFolder folder;
  write_bytes(folder / "golden", golden);
  const auto source = open_tfrecords(folder / "golden", {"two", PixelScale{0.25f, 0.5f}});
  CHECK(source->info().name == "two");
  CHECK(source->info().scale.mean == 0.25f);
  CHECK(same_shape(source->info(), info_for(2, {2, 3, 1}, 301)));
  CHECK(read_image(*source, 0) == Bytes{1, 2, 3, 4, 5, 6});
  CHECK(read_image(*source, 1) == Bytes{4, 5, 6, 1, 2, 3});
  CHECK(source->label(0) == 7);
  CHECK(source->label(1) == 300);

  const auto writer = write_tfrecords(folder / "ours", source->info());
  for (int i = 0; i < 2; ++i) writer->add(read_image(*source, i).data(), source->label(i));
  writer->finish();
  CHECK(read_bytes(folder / "ours-00000-of-00001") == golden);
}

// Reads everything.
DamagedFile any_file() {
  return DamagedFile([](const fs::path& path) {
    const auto source = open_tfrecords(path);
    for (int64_t i = 0; i < source->info().count; ++i) read_image(*source, i);
  });
}

TEST_CASE("cut at every byte, but between two records, a byte too many, and a flipped bit anywhere") {
  const DamagedFile file = any_file();
  const size_t first = 12 + 0x5b + 4;
  // A whole record less is not a cut that the format can show.
  CHECK(file.read(first_bytes(golden, first)).code == ExitCode::ok);
  const Bytes second(golden.begin() + static_cast<std::ptrdiff_t>(first), golden.end());
  file.check_sizes(second, [&](size_t size) {
    return size == 0              ? "is empty"
           : size < second.size() ? "the record at byte 0 is cut"
                                  : "the record at byte 108 is cut in its length";
  });
  for (size_t size = first + 1; size < golden.size(); ++size) {
    file.check_refused(first_bytes(golden, size), "the record at byte 107 is cut");
  }
  file.check_flips(golden, golden.size(), [&](size_t at) {
    return (at < first ? at : at - first) < 12 ? "is damaged in its length" : "is damaged in its data";
  });
}

Bytes framed(const Bytes& record) {
  return bytes_of(framed_tfrecord({reinterpret_cast<const char*>(record.data()), record.size()}));
}

// A record from its parts, each an entry of the map in hexadecimal.
Bytes record_of(const std::string& entries) {
  const Bytes bytes = from_hex(entries);
  REQUIRE(bytes.size() < 128);
  return Bytes{0x0a, static_cast<uint8_t>(bytes.size())} + bytes;
}
const std::string channels = "0a110a086368616e6e656c7312051a030a0101", height = "0a0f0a0668656967687412051a030a0102",
                  image = "0a130a05696d616765120a0a080a06010203040506", label = "0a0e0a056c6162656c12051a030a0107",
                  width = "0a0e0a05776964746812051a030a0103";
const std::string good = channels + height + image + label + width;

TEST_CASE("what protobuf allows is read") {
  const TemporaryFolder folder;
  const auto check_read = [&](const Bytes& record) {
    write_bytes(folder / "a", framed(record));
    const auto source = open_tfrecords(folder / "a");
    CHECK(source->info().shape() == ImageShape{2, 3, 1});
    CHECK(source->label(0) == 7);
    CHECK(read_image(*source, 0) == Bytes{1, 2, 3, 4, 5, 6});
  };
  check_read(record_of(good));
  check_read(record_of(width + label + image + height + channels));
  // A number that is not packed, and one that is written longer than it has to be.
  check_read(record_of(channels + height + image + width + "0a0d0a056c6162656c12041a020807"));
  check_read(record_of(channels + height + image + width + "0a0f0a056c6162656c12061a040a028700"));
  // The last of two counts; the value before the key; other features and fields.
  check_read(record_of(channels + height + image + "0a0e0a056c6162656c12051a030a0109" + label + width));
  check_read(record_of(channels + height + image + width + "0a0e12051a030a01070a056c6162656c"));
  check_read(record_of(good + "0a0d0a0178120812060a040000803f"));  // a list of floats
  check_read(record_of(good + "10051900000000000000002500000000"));
  // An example in two parts, as protobuf merges them.
  check_read(record_of(channels + height + image) + record_of(label + width));
}

TEST_CASE("records that lie, with right checksums") {
  struct Row {
    std::string entries;
    const char* part;
  };
  const Row rows[] = {
      {height + image + label + width, "0 values of channels"},
      {channels + height + label + width, "0 values of image"},
      {good + "0a0e0a05776964746812051a030a0104", "an image of 2 x 4 x 1 in 6 bytes"},
      {good + "0a0e0a05776964746812051a030a0100", "an image of 2 x 0 x 1"},
      {good + "0a0f0a05776964746812061a040a028104", "an image of 2 x 513 x 1"},
      {good + "0a170a057769647468120e1a0c0a0affffffffffffffffff01", "an image of 2 x -1 x 1"},
      {good + "0a0f0a056c6162656c12061a040a02e807", "label 1000, expected 0 to 999"},
      {good + "0a170a056c6162656c120e1a0c0a0affffffffffffffffff01", "label -1, expected"},
      {good + "0a090a056c6162656c1200", "0 values of label"},
      {good + "0a0f0a056c6162656c12061a040a020107", "2 values of label"},
      {good + "0a0e0a056c6162656c12050a030a0107", "0 values of label"},  // bytes
      {good + "0a0e0a05696d61676512051a030a0107", "0 values of image"},  // a number
      {good + "0b", "a field has number 1 and type 3"},
      {good + "0002", "a field has number 0"},
      {good + "0affffffffffffffffff01", "a field is cut"},
      {good + "08ffffffffffffffffff02", "a number has more than 64 bits"},
      {good + "08ffffffffffffffffffff01", "a number has more than 64 bits"},
      {good + "0880", "a field is cut"},
      {good + "09000000", "a field is cut"},
  };
  const DamagedFile file = any_file();
  REQUIRE(file.read(framed(record_of(good))).code == ExitCode::ok);
  for (const Row& row : rows) file.check_refused(framed(record_of(row.entries)), row.part);
  // Images of two sizes.
  const Bytes other =
      record_of(channels + image + label + "0a0e0a05776964746812051a030a0106" + "0a0f0a0668656967687412051a030a0101");
  file.check_refused(framed(record_of(good)) + framed(other), "is 1 x 6 x 1, but the first is 2 x 3 x 1");
  // A length with a right checksum and no data: no memory is taken for it.
  for (const uint64_t length : {UINT64_MAX, UINT64_MAX - 15, uint64_t{1} << 40, uint64_t{1} << 20}) {
    Bytes head(12);
    put_little_endian(&head[0], length);
    put_little_endian(&head[8], masked_crc32c(head.data(), 8));
    file.check_refused(head, length > (uint64_t{1} << 21) ? "expected at most 1114112" : "is cut in its data");
  }
  // Cut inside a record anywhere.
  const Bytes whole = record_of(good);
  for (size_t size = 0; size < whole.size(); ++size) {
    file.check_refused(framed(first_bytes(whole, size)), "the record at byte 0 ");
  }
}

TEST_CASE("a folder, and shards with images of two sizes") {
  const TemporaryFolder folder, other;
  const auto refused = [&](const fs::path& path, const std::string& part) {
    check_refused(outcome_of([&] { open_tfrecords(path); }), ExitCode::bad_input, folder.path.string(), part);
  };
  refused(folder.path, "a folder, expected a regular file");
  const SampleInfo info = info_for(6), large = info_for(6, {4, 2, 1});
  write_all(*write_tfrecords(folder / "a", info, 2), info);
  write_all(*write_tfrecords(other / "a", large, 2), large);
  fs::copy_file(other / "a-00001-of-00002", folder / "a-00001-of-00002", fs::copy_options::overwrite_existing);
  refused(folder / "a", "the first is 3 x 2 x 1");
}

}  // namespace
