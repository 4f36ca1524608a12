// halfstep-bench info: the build, the machine, and the available kernels.
#include "bench/cli/environment.h"
#include "bench/commands/commands.h"
#include "engine/cpu_features.h"
#include "engine/kernel.h"

namespace hs::bench::commands {
namespace {

class InfoCommand : public cli::Command {
  std::string json_;

  void declare(cli::Flags& flags) override {
    flags.examples({"info", "info --json -"}, "docs/command_line.md says in which order variants are tried.");
    flags.text("--json", common(Group::output), json_, "FILE", "Write it as JSON, - for stdout");
  }

  Json as_json() const {
    Json features = Json::object(), devices = Json::array(), kernels = Json::object();
    for (const CpuFeature& feature : cpu_features().all) features[feature.name] = feature.present;
    for (const Device device : cli::available_devices()) devices.push_back(hs::name(device));
    for (const KernelSlot* slot : kernel_slots()) {
      for (const VariantBase* v = slot->variants(); v; v = v->next) {
        kernels[slot->name()].push_back({{"variant", v->name}, {"device", hs::name(v->device)}, {"rank", v->rank}});
      }
    }
    return {{"schema", report::schema_name}, {"command", name()},  {"environment", cli::environment(Device::cpu)},
            {"cpu_features", features},      {"devices", devices}, {"kernels", kernels}};
  }

  std::string as_text() const {
    const Json machine = cli::environment(Device::cpu);
    std::string present, absent;
    for (const CpuFeature& feature : cpu_features().all) (feature.present ? present : absent) += " " + feature.name;
    std::string text;
    const auto line = [&text](const char* what, const std::string& value) {
      text += fmt::format("{:<12}{}\n", what, value);
    };
    line("halfstep", cli::build_info.version);
    line("commit", cli::build_info.commit);
    line("compiler", cli::build_info.compiler);
    line("build type", cli::build_info.build_type);
    line("flags", cli::build_info.flags);
    line("built for", cli::build_info.native ? "the CPU of the machine that built it" : "any CPU of this architecture");
    line("OpenMP", "no: loops run on threads of the engine");
    line("system", machine["os"].get<std::string>());
    line("CPU", fmt::format("{}, {} cores, {} threads used", cli::cpu_name(), machine["cores"].get<int>(),
                            machine["threads"].get<int>()));
    line("has", present.empty() ? "-" : present.substr(1));
    line("has not", absent.empty() ? "-" : absent.substr(1));
    if (const std::string& cap = cpu_features().cap; !cap.empty()) {
      line("capped", fmt::format("HALFSTEP_ISA={}: what is chosen at run time uses no more than that", cap));
    }
    line("memory", fmt::format("{:.1f} GiB", machine["memory_bytes"].get<double>() / (1 << 30)));
    line("CUDA", cli::build_info.cuda);
    line("devices",
         cli::device_names() + (is_available(Device::cuda) ? "" : " (" + why_unavailable(Device::cuda) + ")"));
    if (is_available(Device::cuda)) {
      for (const auto& [what, value] : runtime(Device::cuda).describe()) line("", fmt::format("{}: {}", what, value));
    }
    text += "\nkernels: variant (device, rank), in the order in which they are tried\n";
    for (const KernelSlot* slot : kernel_slots()) {
      std::string variants;
      for (const VariantBase* v = slot->variants(); v; v = v->next) {
        variants += fmt::format("{}{} ({}, {})", variants.empty() ? "" : ", ", v->name, hs::name(v->device), v->rank);
      }
      text += fmt::format("  {:<30} {}\n", slot->name(), variants);
    }
    return text;
  }

  void run(const cli::Flags&) override {
    OutputFile file(json_, "--json");
    file.write(to_text(as_json()));
    file.keep();
    if (!file.is_stdout()) cli::write_stdout(as_text());
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_info_command() { return std::make_unique<InfoCommand>(); }

}  // namespace hs::bench::commands
