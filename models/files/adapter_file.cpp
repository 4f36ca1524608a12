#include <fmt/ranges.h>

#include <set>

#include "engine/files/output_file.h"
#include "models/files/metadata.h"
#include "models/files/model_file.h"
#include "models/lora.h"

namespace hs {
namespace {

constexpr const char *adapter_format = "halfstep adapters", *adapter_version = "1";
constexpr const char *tensors_name = "adapter_model.safetensors", *config_name = "adapter_config.json";

// The adapters of a model alone, by peft's names.
class AllAdapters : public Module {
 public:
  explicit AllAdapters(Module& model) {
    for (const NamedParameter& parameter : model.parameters()) {
      if (is_adapter(parameter.name))
        add_parameter("base_model.model." + parameter.name, *parameter.value, parameter.role);
    }
  }
  Tensor forward(const Tensor& x) override { return x; }
};

// The names of the adapted layers, without those of the modules around them.
std::set<std::string> target_modules(const std::vector<NamedTensor>& adapters) {
  std::set<std::string> names;
  for (const NamedTensor& adapter : adapters) {
    const size_t end = adapter.name.rfind(".lora_"), begin = adapter.name.rfind('.', end - 1) + 1;
    names.insert(adapter.name.substr(begin, end - begin));
  }
  return names;
}

}  // namespace

void write_adapters(const OutputFolder& folder, Module& model, const LoraOptions& options, const std::string& base) {
  AllAdapters adapters(model);
  const std::vector<NamedTensor> tensors = parameters_of(adapters);
  write_safetensors(folder.path() / tensors_name, tensors,
                    {{"format", adapter_format},
                     {"version", adapter_version},
                     {"rank", std::to_string(options.rank)},
                     {"alpha", fmt::format("{}", options.used_alpha())},
                     {"base_sha256", base}});
  OutputFile config(folder.path() / config_name);
  config.write(fmt::format(
      R"({{"peft_type": "LORA", "task_type": null, "base_model_name_or_path": null, "inference_mode": true,
 "r": {}, "lora_alpha": {}, "use_rslora": false, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": false,
 "target_modules": ["{}"]}}
)",
      options.rank, options.used_alpha(), fmt::join(target_modules(tensors), R"(", ")")));
  config.keep();
}

LoraOptions load_adapters(StagedModel& model, const std::string& base, const std::filesystem::path& folder) {
  const SafetensorsFile file(folder / tensors_name);
  const MetadataReader reader(file, "adapters that halfstep saved");
  if (reader.text("format") != adapter_format) reader.refuse("format", adapter_format);
  if (reader.text("version") != adapter_version) reader.refuse("version", adapter_version);
  const LoraOptions options{reader.number<int64_t>("rank", 1, 4096), reader.number<double>("alpha", 1e-6, 1e6)};
  if (reader.text("base_sha256") != base) {
    fail(ExitCode::checkpoint, "{}: trained on the model with the SHA-256 {}, and this one has {}; give that one",
         file.name(), printable_text(reader.text("base_sha256")), base);
  }
  LayerKeys keys(0);
  model.adapt(options, keys);
  AllAdapters adapters(model);
  load_parameters(adapters, file);
  return options;
}

}  // namespace hs
