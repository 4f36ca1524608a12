// safetensors: named tensors in one file, the format that PyTorch, JAX and others open with the package of that name.
//
//   8 bytes   N, the size of the header
//   N bytes   JSON, padded with spaces to a multiple of 8:
//             {"__metadata__": {"model": "mlp"}, "linear1.bias": {"dtype": "F32", "shape": [500], "data_offsets": [0,
//             2000]}}
//   the rest  the tensors' bytes, row-major, in the order of their offsets, without gaps      numbers are little-endian
//
// A header is never believed: everything it says is checked against the format and the size of the file before memory
// is allocated for it. The format has no checksums, so the files written here have a CRC32C of each tensor, and one of
// the names, types, shapes and metadata, in __metadata__ under crc32c.NAME and crc32c. A file that has any must have
// all.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.h"

namespace hs {

class InputFile;
class OutputFile;

struct NamedTensor {  // a tensor and its name in a file
  std::string name;
  Tensor tensor;
};
using Metadata = std::map<std::string, std::string>;  // texts by name, as in __metadata__

// What a file's header says of one tensor.
struct SafetensorsEntry {
  std::string name;            // the tensor's
  std::string dtype;           // as in the file: "F32"
  std::vector<int64_t> shape;  // of up to 8 dimensions
  uint64_t begin, end;         // bytes of the file
};

class SafetensorsFile : NonCopyable {  // a file, open for reading
 public:
  // Checks all but the tensors' bytes. Throws Error: checkpoint (damaged, or not a safetensors file), io (cannot be
  // opened), bad_input (is not a regular file).
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();

  const std::string& name() const;                                           // of the file, printable
  const Metadata& metadata() const { return metadata_; }                     // without the checksums
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in the order of their bytes
  const SafetensorsEntry* find(std::string_view tensor) const;               // nullptr if there is none

  // The tensor, in memory of its own. Throws Error: checkpoint (its bytes are damaged, or its type or rank is none of
  // the engine's), io. Thread safe.
  Tensor read(const SafetensorsEntry& entry) const;

 private:
  void check_header();

  std::unique_ptr<InputFile> file_;
  Metadata metadata_, checksums_;
  std::vector<SafetensorsEntry> entries_;  // in the order of their bytes
  std::map<std::string_view, const SafetensorsEntry*> by_name_;
};

// A list of texts as one text of the metadata, in JSON.
std::string list_text(const std::vector<std::string>& texts);
// The texts of such a list; nothing if it is none.
std::optional<std::vector<std::string>> listed_texts(const std::string& list);

// Writes and reads back what it wrote; the file appears at its path whole or not at all, and is on the disk then.
// Tensors may be on any device. Throws Error: io; usage (a name occurs twice, names or metadata are not UTF-8, or are
// those of the format: __metadata__, crc32c).
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata = {});
// The same without the last step, which is keep_all() of engine/files/output_file.h.
void write_safetensors(OutputFile& file, const std::vector<NamedTensor>& tensors, const Metadata& metadata = {});

}  // namespace hs
