#include "models/files/model_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>

#include "engine/check.h"
#include "models/files/metadata.h"

namespace hs {
namespace {

constexpr const char* format_name = "halfstep model";
constexpr int64_t newest_version = 1;
constexpr const char* layout =
    "row-major; convolution weights (KH*KW*C, OC), linear weights (in, out); images (N, H, W, C)";
constexpr size_t max_differences = 5;  // that a message lists

// The members of ModelSizes, with limits, so that a file cannot ask for any amount of memory. Those of a text are in
// the files of its models alone.
struct SizeMember {
  const char* key;
  int64_t ModelSizes::*member;
  int64_t max;
};
constexpr SizeMember size_members[] = {{"rows", &ModelSizes::rows, 512},
                                       {"columns", &ModelSizes::columns, 1 << 20},  // of a vector
                                       {"channels", &ModelSizes::channels, 4},
                                       {"classes", &ModelSizes::classes, 1000},
                                       {"blocks", &ModelSizes::blocks, 4096}};
constexpr SizeMember text_members[] = {{"width", &ModelSizes::width, 4096}, {"heads", &ModelSizes::heads, 256}};

std::string text_of(const SafetensorsEntry& entry) {
  return fmt::format("{}({})", entry.dtype, fmt::join(entry.shape, ", "));
}
std::string text_of(const Tensor& parameter) { return "F32" + parameter.shape().to_string(); }

// Two hexadecimal digits a byte: metadata are UTF-8, and the symbols of a text of bytes need not be.
Vocabulary bytes_of_hex(const MetadataReader& reader, const std::string& key) {
  const std::string& digits = reader.text(key);
  Vocabulary bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    uint8_t byte = 0;
    const char* end = digits.data() + std::min(i + 2, digits.size());
    const auto [read, error] = std::from_chars(digits.data() + i, end, byte, 16);
    if (error != std::errc() || read != end || digits.size() % 2 != 0) {
      reader.refuse(key, "two hexadecimal digits a symbol");
    }
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  return bytes;
}

// A JSON list of characters, or bytes.
Vocabulary read_vocabulary(const MetadataReader& reader, const std::string& key) {
  if (!reader.text(key).starts_with('[')) return bytes_of_hex(reader, key);
  const auto listed = listed_texts(reader.text(key));
  const auto is_character = [](const std::string& symbol) {
    return !symbol.empty() && first_character(symbol).bytes == symbol;
  };
  if (!listed || !std::ranges::all_of(*listed, is_character)) reader.refuse(key, "a JSON list of characters");
  return *listed;
}

std::vector<std::string> read_class_names(const MetadataReader& reader, int64_t classes) {
  const char* key = "class_names";
  auto names = listed_texts(reader.text(key));
  if (!names || std::ssize(*names) != classes) reader.refuse(key, fmt::format("a JSON list of {} names", classes));
  for (std::string& name : *names) name = printable_text(name);
  return *std::move(names);
}

ModelDescription read_description(const SafetensorsFile& file) {
  const MetadataReader reader(file, "a model that halfstep saved");
  if (reader.text("format") != format_name) {
    fail(ExitCode::checkpoint, "{}: its format is {}, expected {}", file.name(), printable_text(reader.text("format")),
         format_name);
  }
  const auto version = reader.number<int64_t>("version", 1, 1'000'000);
  if (version > newest_version) {
    fail(ExitCode::checkpoint, "{}: written by version {} of the format, this program reads up to {}; update it",
         file.name(), version, newest_version);
  }
  ModelDescription description;
  description.model = reader.text("model");
  if (!std::ranges::count(model_names(), description.model)) {
    fail(ExitCode::checkpoint, "{}: a model {}, expected one of {}", file.name(), printable_text(description.model),
         fmt::join(model_names(), ", "));
  }
  for (const auto& [key, member, max] : size_members) description.sizes.*member = reader.number<int64_t>(key, 1, max);
  const bool is_vector = description.sizes.rows * description.sizes.channels == 1 &&
                         model_options(description.model).input == InputKind::images;
  if (description.sizes.columns > 512 && !is_vector) reader.refuse("columns", "1 to 512");
  if (model_options(description.model).input == InputKind::tokens) {
    description.sizes.input = InputKind::tokens;
    for (const auto& [key, member, max] : text_members) {
      description.sizes.*member = reader.number<int64_t>(key, 1, max);
    }
    description.vocabulary = read_vocabulary(reader, "vocabulary");
    if (std::ssize(description.vocabulary) != description.sizes.classes) {
      fail(ExitCode::checkpoint, "{}: its metadata have a vocabulary of {} symbols, expected {}", file.name(),
           description.vocabulary.size(), description.sizes.classes);
    }
  }
  description.scale.mean = reader.number<float>("mean", -1e6f, 1e6f);
  description.scale.deviation = reader.number<float>("deviation", 1e-6f, 1e6f);
  description.data = reader.text("data");
  if (reader.has("type")) {
    if (reader.text("type") != name(DType::f32)) reader.refuse("type", "f32");
    description.type = DType::f32;
  }
  if (reader.has("class_names")) description.class_names = read_class_names(reader, description.sizes.classes);
  if (reader.has("data_source")) {
    description.origin = {reader.text("data_source"),
                          reader.text("data_size"),
                          reader.number<double>("data_test_split", 0, 1),
                          reader.number<int64_t>("data_test", 1, int64_t{1} << 40),
                          reader.has("data_contents") ? printable_text(reader.text("data_contents")) : "",
                          reader.has("data_skip_damaged")};
  }
  return description;
}

}  // namespace

Metadata describe(const ModelDescription& description) {
  Metadata metadata = {{"format", format_name},
                       {"version", std::to_string(newest_version)},
                       {"layout", layout},
                       {"model", description.model},
                       {"mean", fmt::format("{}", description.scale.mean)},
                       {"deviation", fmt::format("{}", description.scale.deviation)},
                       {"data", printable_text(description.data)}};
  if (description.type != DType::u8) metadata["type"] = name(description.type);
  if (!description.class_names.empty()) metadata["class_names"] = list_text(description.class_names);
  if (const auto& origin = description.origin) {
    metadata["data_source"] = printable_text(origin->source);
    metadata["data_size"] = origin->size;
    metadata["data_test_split"] = fmt::format("{}", origin->test_split);
    metadata["data_test"] = std::to_string(origin->test);
    if (!origin->contents.empty()) metadata["data_contents"] = origin->contents;
    if (origin->skip_damaged) metadata["data_skip_damaged"] = "on";
  }
  ModelSizes sizes = description.sizes;
  sizes.blocks = model_options(description.model).depth(sizes.blocks);
  const auto add = [&](const SizeMember& size) {
    const int64_t value = sizes.*size.member;
    check(value >= 1 && value <= size.max, "a model's file: {} {}, expected 1 to {}", value, size.key, size.max);
    metadata[size.key] = std::to_string(value);
  };
  for (const SizeMember& size : size_members) add(size);
  if (sizes.input == InputKind::tokens) {
    for (const SizeMember& size : text_members) add(size);
    const Vocabulary& symbols = description.vocabulary;
    const bool has_bytes = std::ranges::all_of(symbols, [](const std::string& symbol) { return symbol.size() == 1; });
    std::string& vocabulary = metadata["vocabulary"];
    if (!has_bytes) vocabulary = list_text(symbols);
    for (const std::string& symbol : symbols) {
      if (has_bytes) vocabulary += fmt::format("{:02x}", static_cast<uint8_t>(symbol[0]));
    }
  }
  return metadata;
}

std::vector<NamedTensor> parameters_of(Module& module) {
  std::vector<NamedTensor> tensors;
  for (const NamedParameter& parameter : module.parameters()) {
    tensors.push_back({parameter.name, parameter.value->detach()});
  }
  return tensors;
}

void load_parameters(Module& module, const SafetensorsFile& file) {
  const std::vector<NamedTensor> parameters = parameters_of(module);
  std::vector<std::string> differences;
  for (const auto& [name, value] : parameters) {
    const SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr) {
      differences.push_back(name + " is missing");
    } else if (text_of(*entry) != text_of(value)) {
      differences.push_back(fmt::format("{} is {}, expected {}", name, text_of(*entry), text_of(value)));
    }
  }
  std::set<std::string_view> names;
  for (const NamedTensor& parameter : parameters) names.insert(parameter.name);
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!names.contains(entry.name)) {
      differences.push_back(printable_text(entry.name) + " is no parameter of it");
    }
  }
  if (!differences.empty()) {
    const size_t shown = std::min(differences.size(), max_differences);
    fail(ExitCode::checkpoint, "{}: its tensors do not fit the model: {}{}", file.name(),
         fmt::join(differences.begin(), differences.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
         differences.size() > shown ? fmt::format("; and {} more", differences.size() - shown) : "");
  }
  std::vector<Tensor> values;
  values.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) values.push_back(file.read(*file.find(parameter.name)));
  for (size_t i = 0; i < values.size(); ++i) Tensor(parameters[i].tensor).copy_from(values[i]);
}

void save(Module& module, const std::filesystem::path& path) { write_safetensors(path, parameters_of(module)); }

void load(Module& module, const std::filesystem::path& path) { load_parameters(module, SafetensorsFile(path)); }

std::vector<NamedParameter> load_body(Module& module, const SafetensorsFile& file) {
  std::vector<NamedParameter> anew;
  for (const NamedParameter& parameter : module.parameters()) {
    const SafetensorsEntry* entry = parameter.is_head ? nullptr : file.find(parameter.name);
    if (entry && text_of(*entry) == text_of(*parameter.value)) {
      parameter.value->detach().copy_from(file.read(*entry));
    } else {
      anew.push_back(parameter);
    }
  }
  std::stable_partition(anew.begin(), anew.end(), std::mem_fn(&NamedParameter::is_head));
  return anew;
}

void save_model(const std::filesystem::path& path, Module& model, const ModelDescription& description) {
  write_safetensors(path, parameters_of(model), describe(description));
}

LoadedModel load_model(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  LoadedModel loaded{read_description(file), nullptr};
  try {
    loaded.model = make_model(loaded.description.model, 0, loaded.description.sizes);
  } catch (const Error& error) {  // images too small for it
    if (error.code() != ExitCode::bad_input) throw;
    fail(ExitCode::checkpoint, "{}: {}", file.name(), error.what());
  }
  load_parameters(*loaded.model, file);
  return loaded;
}

}  // namespace hs
