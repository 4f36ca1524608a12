// libFuzzer target for safetensors files. Every input is read as a file, and as a header with a right length before it
// and as many bytes of data after it as its first two bytes say. What must hold beyond "no crash":
//   refused:  hs::Error with the exit code of a checkpoint, in one line, at opening or at reading a tensor;
//   accepted: the tensors fill the file without gaps, each with the bytes that its shape and type say, computed here
//             from the JSON; what is read, written again and read again is the same;
//   framed:   never accepted with a byte of data missing or too many.
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/files/endian.h"
#include "engine/files/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hs;
using namespace hs::fuzz;

// The format's rules once more, by a parser that keeps everything, and numbers that cannot wrap.
void check_by_the_rules(const SafetensorsFile& file, const Bytes& bytes) {
  const auto header = get_little_endian<uint64_t>(bytes.data());
  const nlohmann::json json =
      nlohmann::json::parse(bytes.begin() + 8, bytes.begin() + 8 + static_cast<std::ptrdiff_t>(header));
  expect(file.entries().size() == json.size() - json.count("__metadata__"), "as many tensors as names");
  uint64_t position = 8 + header;
  for (const SafetensorsEntry& entry : file.entries()) {
    const nlohmann::json& said = json.at(entry.name);
    const auto type = said.at("dtype").get<std::string>();
    __uint128_t bits = type == "BOOL" ? 8 : std::stoul(type.substr(type.find_first_of("0123456789")));
    expect(said.at("shape").size() == entry.shape.size(), "rank");
    for (const int64_t dim : entry.shape) {
      bits *= static_cast<uint64_t>(dim);
      expect(bits <= UINT64_MAX, "a product of a shape wraps");
    }
    expect(entry.begin == position && (entry.end - entry.begin) * 8 == bits, "bytes");
    expect(said.at("data_offsets") == nlohmann::json({entry.begin - 8 - header, entry.end - 8 - header}), "offsets");
    position = entry.end;
  }
  expect(position == bytes.size(), "the end");
}

// True if all of it could be read.
bool check_file(const Bytes& bytes) {
  const auto path = scratch().write("a", bytes);
  const auto file = accepted([&] { return std::make_unique<SafetensorsFile>(path); }, ExitCode::checkpoint);
  if (!file) return false;
  check_by_the_rules(**file, bytes);
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    const auto tensor = accepted([&] { return (*file)->read(entry); }, ExitCode::checkpoint);
    if (!tensor) return false;
    expect(tensor->bytes() == entry.end - entry.begin, "size");
    expect(tensor->bytes() == 0 || std::memcmp(tensor->raw_data(), &bytes[entry.begin], tensor->bytes()) == 0,
           "values");
    tensors.push_back({entry.name, *tensor});
  }
  write_safetensors(scratch() / "b", tensors, (*file)->metadata());
  const SafetensorsFile again(scratch() / "b");
  expect(again.metadata() == (*file)->metadata() && again.entries().size() == tensors.size(), "round trip");
  for (const auto& [name, tensor] : tensors) {
    const Tensor same = again.read(*again.find(name));
    expect(same.dtype() == tensor.dtype() && same.shape() == tensor.shape(), "type and shape");
    expect(tensor.bytes() == 0 || std::memcmp(same.raw_data(), tensor.raw_data(), tensor.bytes()) == 0, "bytes");
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check_file({data, data + size});
  if (size < 2) return 0;
  Bytes framed(8);
  put_little_endian(framed.data(), uint64_t{size - 2});
  framed.insert(framed.end(), data + 2, data + size);
  for (int i = 0; i < (data[0] | (data[1] & 15) << 8); ++i) framed.push_back(static_cast<uint8_t>('1' + i));
  if (!check_file(framed)) return 0;
  framed.push_back(0);
  expect(!check_file(framed), "a byte too many");
  framed.resize(framed.size() - 2);
  expect(!check_file(framed), "a byte too few");
  return 0;
}
