// safetensors files: what is written is read, and everything that a header can lie about is refused with a sentence and
// the exit code of a damaged checkpoint, before memory is allocated for it. (tests/models/interchange.cpp opens the
// same files with the Python package, and that package's files here.)
#include "engine/files/safetensors.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ctime>

#include "engine/files/crc32c.h"
#include "tests/support/bad_input.h"
#include "tests/support/sanitized.h"

namespace {
int64_t comparisons = 0;  // of texts
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have their own
// The library's calls come here, because a program's symbols are found before those of the C library.
extern "C" int memcmp(const void* a, const void* b, size_t size) {
  ++comparisons;
  const auto *x = static_cast<const volatile uint8_t*>(a), *y = static_cast<const volatile uint8_t*>(b);
  for (size_t i = 0; i < size; ++i) {
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  }
  return 0;
}
#endif

namespace {

using namespace hs;
using namespace hs::test;

void read_all(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  for (const SafetensorsEntry& entry : file.entries()) file.read(entry);
}

struct Damaged : DamagedFile {
  Damaged() : DamagedFile(read_all, "a.safetensors", ExitCode::checkpoint) {}
};

Bytes with_length(const std::string& header, const Bytes& data = {}) {
  Bytes bytes(8);
  put_little_endian(bytes.data(), uint64_t{header.size()});
  return bytes + bytes_of(header) + data;
}

// A file of one tensor "a" with this text for its shape and offsets, and this many bytes.
Bytes one_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t bytes) {
  return with_length(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                     Bytes(bytes));
}

std::vector<NamedTensor> samples() {
  const float nan = std::nanf("");
  return {{"conv1.weight", Tensor::from<float>({1, -2, nan, INFINITY, 5, -0.0f}, {3, 2})},
          {"half", Tensor::from<Half>({Half(1), Half(2)}, {2})},
          {"bfloat", Tensor::from<BFloat16>({BFloat16(1), BFloat16(-2)}, {1, 2})},
          {"double", Tensor::from<double>({1e300}, {1})},
          {"int", Tensor::from<int32_t>({-1, 2, 3}, {3})},
          {"byte \"\u00e9\"", Tensor::from<uint8_t>({1, 2, 255}, {3, 1, 1, 1})},
          {"scalar", Tensor::from<float>({7}, {})},
          {"empty", Tensor::zeros({0, 3}, DType::f32)}};
}

const char* const not_an_entry = "tensor a is not a dtype, a shape of up to 8 whole numbers";
const Metadata sample_metadata = {{"model", "mlp"}, {"note", "two\nlines, \"quoted\""}};

TEST_CASE("what is written is read, bit for bit") {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, samples(), sample_metadata);
  CHECK(folder.names() == std::set<std::string>{"a.safetensors"});
  const SafetensorsFile file(path);
  CHECK(file.metadata() == sample_metadata);
  CHECK(file.entries().size() == samples().size());
  CHECK(file.find("none") == nullptr);
  uint64_t element = 8;
  for (const SafetensorsEntry& entry : file.entries()) {
    CAPTURE(entry.name);
    const Tensor read = file.read(entry);
    CHECK(size_of(read.dtype()) <= element);  // so every tensor is aligned
    element = size_of(read.dtype());
    CHECK(entry.begin % element == 0);
  }
  for (const auto& [name, tensor] : samples()) {
    CAPTURE(name);
    REQUIRE(file.find(name) != nullptr);
    const Tensor read = file.read(*file.find(name));
    CHECK(read.dtype() == tensor.dtype());
    CHECK(read.shape() == tensor.shape());
    // memcmp may not be called with the null pointer of an empty tensor, even for no bytes.
    CHECK((tensor.bytes() == 0 || std::memcmp(read.raw_data(), tensor.raw_data(), tensor.bytes()) == 0));
  }
  const Bytes bytes = read_bytes(path);
  const auto header = get_little_endian<uint64_t>(bytes.data());
  CHECK(header % 8 == 0);
  CHECK(bytes[8] == '{');

  write_safetensors(path, {}, {});
  CHECK(SafetensorsFile(path).entries().empty());
}

// Written by safetensors 0.8.0, from NumPy arrays.
TEST_CASE("a file of the Python package") {
  const Bytes bytes = with_length(
      R"({"__metadata__":{"k":"v"},"d":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"a":{"dtype":"F32",)"
      R"("shape":[2,2],"data_offsets":[8,24]},"s":{"dtype":"I32","shape":[],"data_offsets":[24,28]},"e":{"dtype":"F16",)"
      R"("shape":[0,3],"data_offsets":[28,28]},"b":{"dtype":"U8","shape":[3],"data_offsets":[28,31]}}    )",
      from_hex("00000000000100000000803f00000040000040400000804007000000010203"));
  REQUIRE(bytes.size() == 343);
  const TemporaryFolder folder;
  write_bytes(folder / "a", bytes);
  const SafetensorsFile file(folder / "a");
  CHECK(file.metadata() == Metadata{{"k", "v"}});
  CHECK(file.read(*file.find("a")).to_vector<float>() == std::vector<float>{1, 2, 3, 4});
  CHECK(file.read(*file.find("a")).shape() == Shape{2, 2});
  CHECK(file.read(*file.find("s")).item() == 7);
  CHECK(file.read(*file.find("e")).shape() == Shape{0, 3});
  CHECK(file.read(*file.find("b")).to_vector<uint8_t>() == std::vector<uint8_t>{1, 2, 3});
  check_refused(outcome_of([&] { file.read(*file.find("d")); }), ExitCode::checkpoint, file.name() + ": ",
                "tensor d is I64(1), expected F32, F16, BF16, F64, I32 or U8");
}

TEST_CASE("valid files that look odd") {
  const Damaged file;
  for (const Bytes& bytes :
       {with_length("{}"), with_length(" \n\t\r{}  "), with_length(R"({"__metadata__":{}})"),
        one_tensor("F32", "[]", "[0,4]", 4), one_tensor("F32", "[0, 5]", "[0,0]", 0),
        one_tensor("F64", "[0,1]", "[0,0]", 0), one_tensor("BOOL", "[0]", "[0,0]", 0) /* read() is not asked */}) {
    write_bytes(file.path, bytes);
    CHECK_NOTHROW(SafetensorsFile(file.path));
  }
  // What stands at one byte and has none comes before what has some.
  write_bytes(file.path, with_length(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                     R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                     {9}));
  CHECK_NOTHROW(read_all(file.path));
}

TEST_CASE("lengths that lie") {
  const Damaged file;
  const auto length = [](uint64_t size, const std::string& rest) {
    Bytes bytes(8);
    put_little_endian(bytes.data(), size);
    return bytes + bytes_of(rest);
  };
  for (size_t size = 0; size < 8; ++size) {
    file.check_refused(Bytes(size), std::to_string(size) + " bytes, expected 8 or more");
  }
  file.check_refused(length(0, "{}"), "the header does not begin with {");
  file.check_refused(length(UINT64_MAX, "{}"), "a header of 18446744073709551615 bytes, expected at most 100000000");
  file.check_refused(length(100'000'001, "{}"), "a header of 100000001 bytes");
  file.check_refused(length(100'000'000, "{}"), "a header of 100000000 bytes, but only 2 follow");
  file.check_refused(length(3, "{}"), "a header of 3 bytes, but only 2 follow");
  file.check_refused(length(1, "{}"), "the header is not JSON, at byte");
}

TEST_CASE("headers that are not the format's JSON") {
  const Damaged file;
  struct Row {
    std::string header;
    const char* part;
  };
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const Row rows[] = {
      {"", "the header does not begin with {"},
      {"    ", "the header does not begin with {"},
      {"[]", "the header does not begin with {"},
      {"\xef\xbb\xbf{}", "the header does not begin with {"},
      {std::string("{}\0", 3), "the header is not JSON, at byte 3 of 3"},
      {std::string("{\0}", 3), "the header is not JSON, at byte 2 of 3"},
      {"{}x", "the header is not JSON"},
      {"{\"\xff\":" + entry + "}", "the header is not JSON"},
      {"{/**/\"a\":" + entry + "}", "the header is not JSON"},
      {R"({"a":NaN})", "the header is not JSON"},
      {"{\"a\":" + entry + ",\"a\":" + entry + "}", "a is given twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "__metadata__ is given twice"},
      {R"({"__metadata__":{"k":"v","k":"v"}})", "k is given twice"},
      {R"({"__metadata__":{"k":1}})", "__metadata__ is not texts by name"},
      {R"({"__metadata__":{"k":["v"]}})", "__metadata__ is not texts by name"},
      {R"({"__metadata__":null})", "__metadata__ is not texts by name"},
      {R"({"__metadata__":"v"})", "__metadata__ is not texts by name"},
      {R"({"a":[]})", not_an_entry},
      {R"({"a":1})", not_an_entry},
      {R"({"a":{}})", not_an_entry},
      {R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", not_an_entry},
      {R"({"a":{"dtype":"U8","shape":[0]}})", not_an_entry},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "dtype is given twice"},
      {R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})", "shape is given twice"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", not_an_entry},
      {R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})", not_an_entry},
      {R"({"a":{"dtype":["U8"],"shape":[0],"data_offsets":[0,0]}})", not_an_entry},
      {R"({"a":{"dtype":"U8","shape":0,"data_offsets":[0,0]}})", not_an_entry},
      {R"({"a":{"dtype":"U8","shape":{"0":0},"data_offsets":[0,0]}})", not_an_entry},
      {R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})", "a list or an object inside of"},
      {R"({"a":{"dtype":"U8","shape":["0"],"data_offsets":[0,0]}})", not_an_entry},
      {R"({"a":{"dtype":"\u001b[2J","shape":[0],"data_offsets":[0,0]}})", "the unknown dtype \\x1b[2J"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.header);
    file.check_refused(with_length(row.header), row.part);
  }
}

TEST_CASE("shapes, types and offsets that lie") {
  const Damaged file;
  struct Row {
    const char *dtype, *shape, *offsets;
    size_t bytes;
    const char* part;
  };
  const Row rows[] = {
      {"F33", "[1]", "[0,4]", 4, "tensor a has the unknown dtype F33"},
      {"f32", "[1]", "[0,4]", 4, "tensor a has the unknown dtype f32"},
      {"F32", "[2]", "[0,4]", 4, "tensor a is said to be 8 bytes but stands from 0 to 4"},
      {"F64", "[1]", "[0,4]", 4, "tensor a is said to be 8 bytes but stands from 0 to 4"},
      {"F32", "[1]", "[4,0]", 4, "tensor a is said to be 4 bytes but stands from 4 to 0"},
      {"U8", "[18446744073709551612]", "[4,0]", 4, "more than 2^64 bits"},
      {"F32", "[1]", "[4,8]", 8, "tensor a begins at byte 4 of the data, expected 0"},
      {"F32", "[1]", "[0,4]", 5, "the tensors are 4 bytes, but 5 follow the header"},
      {"F32", "[1]", "[0,4]", 3, "the tensors are 4 bytes, but 3 follow the header"},
      {"F32", "[1]", "[18446744073709551612,0]", 4, "stands from 18446744073709551612 to 0"},
      {"F32", "[1]", "[0,-4]", 4, not_an_entry},
      {"F32", "[1]", "[-0,4]", 4, not_an_entry},
      {"F32", "[1]", "[0,4.0]", 4, not_an_entry},
      {"F32", "[1]", "[0,18446744073709551616]", 4, not_an_entry},
      {"F32", "[1]", "[4]", 4, not_an_entry},
      {"F32", "[1]", "[0,4,4]", 4, not_an_entry},
      {"F32", "[-1]", "[0,4]", 4, not_an_entry},
      {"F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]", 4, "more than 8 members"},
      // Products that wrap to 0, and what they would read.
      {"F32", "[4294967296,4294967296]", "[0,0]", 0, "tensor a of shape (4294967296, 4294967296) has more than 2^64"},
      {"F32", "[1099511627776,16777216,0]", "[0,0]", 0, "has more than 2^64 bits"},
      {"U8", "[2305843009213693952]", "[0,0]", 0, "has more than 2^64 bits"},
      {"U8", "[0,18446744073709551615]", "[0,0]", 0, "has more than 2^64 bits"},
      // Its bits fit, and it has no elements; found by the fuzzer.
      {"U8", "[429496726,4294967296,0]", "[0,0]", 0, "U8(429496726, 4294967296, 0), whose strides exceed 63 bits"},
      {"F4", "[3]", "[0,2]", 2, "tensor a of 12 bits does not fill its last byte"},
      {"F32", "[1,1,1,1,1]", "[0,4]", 4, "tensor a is F32(1, 1, 1, 1, 1), expected"},
      {"BOOL", "[4]", "[0,4]", 4, "tensor a is BOOL(4), expected"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.part);
    file.check_refused(one_tensor(row.dtype, row.shape, row.offsets, row.bytes), row.part);
  }
  const auto two = [](const char* first, const char* second) {
    return with_length(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + first +
                           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                       Bytes(12));
  };
  file.check_refused(two("[0,4]", "[8,12]"), "tensor b begins at byte 8 of the data, expected 4");
  file.check_refused(two("[0,4]", "[2,6]"), "tensor b begins at byte 2 of the data, expected 4");
  file.check_refused(two("[0,4]", "[0,4]"), "tensor b begins at byte 0 of the data, expected 4");
  file.check_refused(two("[4,8]", "[8,12]"), "tensor a begins at byte 4 of the data, expected 0");
  file.check_refused(two("[0,4]", "[4,8]"), "the tensors are 8 bytes, but 12 follow the header");
}

TEST_CASE("headers that are expensive to read end at once") {
  const Damaged file;
  std::string deep = R"({"a":)";
  deep.append(1'000'000, '[');
  std::string objects;
  for (int i = 0; i < 300'000; ++i) objects += R"({"a":)";
  std::string spaces = R"({"a":)" + std::string(50'000'000, ' ') + "1}";
  for (const std::string& header : {deep, objects, spaces}) {
    const std::clock_t start = std::clock();      // the time of a processor, however busy the machine is
    const size_t most = 2 * header.size() + mib;  // the text, and the parser's buffer of what it skips
    file.check_refused(with_length(header), "", most);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    CHECK((with_sanitizer || seconds < 10));  // measured: below half a second
  }
  // A tensor of a tebibyte in a file of as many bytes, none of them on the disk: only reading it takes memory.
  const Bytes header = one_tensor("U8", "[1099511627776]", "[0,1099511627776]", 0);
  write_bytes(file.path, header);
  if (::truncate(file.path.c_str(), static_cast<off_t>(header.size()) + (off_t{1} << 40)) == 0) {
    const Outcome outcome = outcome_of([&] { SafetensorsFile{file.path}; });
    CHECK(outcome.code == ExitCode::ok);
    CHECK(outcome.largest < mib);
  }
}

TEST_CASE("the work of writing and of reading grows as the number of tensors, and not as its square") {
  const Damaged file;
  const auto comparisons_of = [&](int count) {
    std::vector<NamedTensor> tensors;
    for (int i = 0; i < count; ++i) tensors.push_back({fmt::format("{:08}", i), Tensor::zeros({0}, DType::u8)});
    comparisons = 0;
    write_safetensors(file.path, tensors);  // and reads it back
    return comparisons;
  };
  const int64_t few = comparisons_of(1000);
  CHECK((with_sanitizer || few > 1000));
  CHECK(comparisons_of(4000) <= 6 * few);  // it grows by the logarithm, too
}

TEST_CASE("a file cut at every byte, and every flipped bit, is refused") {
  const Damaged file;
  write_safetensors(file.path, samples(), sample_metadata);
  const Bytes good = read_bytes(file.path);
  file.check_sizes(good, [](size_t) { return ""; });
  file.check_flips(good, good.size(), [](size_t) { return ""; });

  const auto header = 8 + get_little_endian<uint64_t>(good.data());
  Bytes flipped = good;
  flipped[header] ^= 1;
  file.check_refused(flipped, "tensor double has the CRC32C ");
}

TEST_CASE("checksums are all there or none is") {
  const Damaged file;
  const auto with = [](const std::string& metadata) {
    return with_length(R"({"__metadata__":{)" + metadata + R"(},"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})",
                       bytes_of("123456789"));
  };
  CHECK(file.read(with("")).code == ExitCode::ok);
  file.check_refused(with(R"("crc32c.a":"e3069283")"), "1 checksums for the header and 1 tensors");
  file.check_refused(with(R"("crc32c":"00000000")"), "1 checksums for the header and 1 tensors");
  file.check_refused(with(R"("crc32c":"00000000","crc32c.b":"e3069283")"),
                     "the checksum crc32c.b belongs to no tensor");
  file.check_refused(with(R"("crc32c":"00000000","crc32c.a":"e3069283")"), "the header has the CRC32C ");
  file.check_refused(with(R"("crc32c":"zz","crc32c.a":"e3069283")"), ", expected zz");
  // By hand, from the description in docs/model_files.md.
  const Bytes bytes = bytes_of("123456789");
  write_safetensors(file.path, {{"a", Tensor::from(bytes, {9})}}, {{"k", "v"}});
  const std::string contents("k\0v\0a\0U8(9)\0", 12);
  const std::string sums = fmt::format(R"("crc32c":"{:08x}","crc32c.a":"e3069283")", crc32c(contents.data(), 12));
  const Bytes written = read_bytes(file.path);
  CHECK(std::string(written.begin(), written.end()).find(sums) != std::string::npos);
}

TEST_CASE("what cannot be written is refused, and a full disk leaves the old file") {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  const Tensor one = Tensor::from<float>({1}, {1});
  const auto refused = [&](const std::vector<NamedTensor>& tensors, const Metadata& metadata, const std::string& part) {
    check_refused(outcome_of([&] { write_safetensors(path, tensors, metadata); }), ExitCode::usage,
                  "write_safetensors: ", part);
    CHECK(folder.names().empty());
  };
  refused({{"a", one}, {"a", one}}, {}, "two tensors are called a");
  refused({{"__metadata__", one}}, {}, "a tensor cannot be called __metadata__");
  refused({{"a", Tensor()}}, {}, "tensor a is undefined");
  refused({{"\xff", one}}, {}, "names and metadata must be UTF-8");
  refused({}, {{"k", "\xff"}}, "names and metadata must be UTF-8");
  refused({}, {{"crc32c", "v"}}, "crc32c of the metadata is a name of the format's");
  refused({{"a", one}}, {{"crc32c.a", "v"}}, "crc32c.a of the metadata is a name of the format's");

  write_safetensors(path, {{"a", one}});
  const Bytes before = read_bytes(path);
  const Outcome full = outcome_on_full_disk(1000, [&] {
    write_safetensors(path, {{"b", Tensor::zeros({4000}, DType::f32)}});
  });
  check_refused(full, ExitCode::io, path.string(), "cannot be written: File too large");
  CHECK(read_bytes(path) == before);
  CHECK(folder.names() == std::set<std::string>{"a.safetensors"});

  check_refused(outcome_of([&] { SafetensorsFile{folder.path}; }), ExitCode::bad_input, folder.path.string(),
                "a folder");
  check_refused(outcome_of([&] { SafetensorsFile{folder / "none"}; }), ExitCode::io, (folder / "none").string(),
                "cannot be opened");
}

// The file that is replaced is the one that the tensors come from.
TEST_CASE("a file can be saved over itself") {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, samples());
  const Bytes before = read_bytes(path);
  const SafetensorsFile file(path);
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) tensors.push_back({entry.name, file.read(entry)});
  write_safetensors(path, tensors);
  CHECK(read_bytes(path) == before);
}

}  // namespace
