#include "bench/cli/plugins.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "bench/cli/child.h"
#include "bench/cli/environment.h"
#include "bench/cli/interrupt.h"
#include "engine/check.h"
#include "engine/files/input_file.h"
#include "engine/registration.h"

namespace hs::bench::cli {
namespace {

constexpr uint64_t max_plugin_bytes = uint64_t{1} << 30;
constexpr size_t max_variants = 100;  // of a plug-in, each of which takes the judge a minute
// Of a compiler: an #include of a device would keep it busy and fill the memory. nvcc needs 2 GiB for our headers.
constexpr int max_compile_seconds = 600, max_compile_gib = 8;

std::vector<Plugin> plugins;

// A plug-in's static objects register its kernels as soon as it is loaded, so nothing may be loaded that does not fit.
void check_fits(std::string_view bytes, const std::string& path) {
  ElfW(Ehdr) head = {};
  std::memcpy(&head, bytes.data(), std::min(bytes.size(), sizeof head));
  const uint64_t end = head.e_shoff + uint64_t{head.e_shentsize} * head.e_shnum;  // of the last that a file has
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_type != ET_DYN || end > bytes.size()) {
    fail(ExitCode::bad_input,
         "{}: is no whole shared object; halfstep-bench kernel build makes one of a .cpp or .cu file", path);
  }
  const std::string_view stamp = build_info.plugin_stamp;
  if (bytes.find(std::string(stamp) + '\0') != std::string_view::npos) return;
  const std::string_view begin = stamp.substr(0, stamp.rfind(' ', stamp.rfind(' ') - 1) + 1);  // before the version
  const size_t at = bytes.find(begin);
  if (at == std::string_view::npos) {
    fail(ExitCode::bad_input,
         "{}: is no plug-in; expected what halfstep-bench kernel build makes of a file that "
         "includes <halfstep/kernel.h>",
         path);
  }
  const std::string_view found = bytes.substr(at + begin.size(), 40);
  fail(ExitCode::bad_input,
       "{}: was built for version and ABI {}, and this program has {}; build it again with "
       "halfstep-bench kernel build",
       path, printable_text(std::string(found.substr(0, found.find('\0')))), stamp.substr(begin.size()));
}

std::set<const VariantBase*> registered_variants() {
  std::set<const VariantBase*> all;
  for (const KernelSlot* slot : kernel_slots()) {
    for (const VariantBase* v = slot->variants(); v; v = v->next) all.insert(v);
  }
  return all;
}

// The folder of the headers is beside that of the program, where it is installed and where it is built.
std::string headers_folder() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path folder = (program.parent_path() / ".." / "include").lexically_normal();
  if (std::filesystem::exists(folder / "halfstep" / "kernel.h")) return folder;
  fail(ExitCode::io, "{}: has no halfstep/kernel.h; install the library's headers beside the program: cmake --install",
       printable(folder));
}

// Where nvcc finds no device, it takes -arch=native for sm_75: then the code is for what the library's is for.
std::vector<std::string> cuda_architectures() {
  if (is_available(Device::cuda)) return {"-arch=native"};
  std::vector<std::string> words;
  std::istringstream list(build_info.architectures);
  for (std::string each; list >> each;) {  // as CMake has them: 90, 80-real, 90-virtual, all
    const std::string number = each.substr(0, each.find('-'));
    if (number.find_first_not_of("0123456789") != std::string::npos) return {"-arch=" + each};
    for (const std::string kind : {"sm", "compute"}) {
      if (each.ends_with(kind == "sm" ? "-virtual" : "-real")) continue;
      words.push_back(fmt::format("-gencode=arch=compute_{},code={}_{}", number, kind, number));
    }
  }
  return words;
}

// The arguments after the compiler: what the library's kernels are compiled with, so that a variant gives the bits that
// it would give there. -march=native, whatever the library has: a plug-in is built where it runs, and need not choose
// its instructions at run time.
std::vector<std::string> arguments_for(bool is_cuda) {
  const std::string include = headers_folder();
  std::vector<std::string> words = {"-std=c++20", "-O3", "-shared", "-I" + include};
  if (is_cuda) words.emplace_back("-DHALFSTEP_CUDA_PLUGIN");
  if (is_cuda && *build_info.nvcc) {
    words.insert(words.end(), {"--expt-relaxed-constexpr", "--fmad=false", "-lineinfo",
                               "-Xcompiler=-fPIC,-ffp-contract=off,-fno-math-errno"});
    std::ranges::move(cuda_architectures(), std::back_inserter(words));
    return words;
  }
  words.insert(words.end(), {"-fPIC", "-ffp-contract=off", "-fno-math-errno", "-march=native"});
  if (is_cuda) {  // its headers say engine/float16.h, and a misaligned access traps, as CMakeLists.txt has it
    words.insert(words.end(), {std::string("-I") + build_info.emulator, "-I" + include + "/halfstep", "-xc++", "-O1",
                               "-Wno-unknown-pragmas", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",
                               "-DHS_TRAPS_MISALIGNED"});
  }
  return words;
}

// Of the compiler: "my_relu.cpp:7:3: error: ...", or an error in a header and the line of the file that led to it.
std::string first_error(const std::string& said, const std::string& source, const ChildEnd& end) {
  const size_t at = std::min(said.find("error: "), said.find("cannot find "));  // a library, before ld's error
  if (at == std::string::npos) return said.empty() ? end.text() : said.substr(0, said.find('\n'));
  const size_t begin = said.rfind('\n', at) + 1;  // 0 without one
  std::string line = said.substr(begin, said.find('\n', at) - begin);
  if (line.starts_with(source)) return line;
  const std::string place = "\n" + source + ":";
  for (size_t from = said.find(place, at); from != std::string::npos; from = said.find(place, from + 1)) {
    const size_t number = from + place.size(), length = said.find_first_not_of("0123456789", number) - number;
    if (length > 0) return fmt::format("{}; by {}:{}", line, source, said.substr(number, length));
  }
  return line;
}

// By $CXX, which may have arguments, or the first compiler that there is; $LDLIBS comes last, as in make.
void compile(const std::string& source, const std::string& output, bool is_cuda) {
  const bool with_nvcc = is_cuda && *build_info.nvcc;
  const char* given = with_nvcc ? nullptr : std::getenv("CXX");
  const bool is_given = given && *given;
  const std::string compilers = is_given    ? given
                                : with_nvcc ? std::string("nvcc ") + build_info.nvcc
                                            : "c++ g++ clang++";
  const std::string limits = fmt::format("exec 2>&1; export LC_ALL=C; ulimit -v {}; ", max_compile_gib << 20);
  std::vector<std::string> words = {
      "/bin/sh", "-c",
      limits + (is_given ? "exec $0 \"$@\" $LDLIBS"
                         : "for c in $0; do command -v $c >/dev/null && exec $c \"$@\" $LDLIBS; done; exit 127"),
      compilers};
  std::ranges::move(arguments_for(is_cuda), std::back_inserter(words));
  // Compilers take a name for a file of arguments, or for an argument, by how it begins.
  const std::string file = source.starts_with('@') || source.starts_with('-') ? "./" + source : source;
  words.insert(words.end(), {file, "-o", std::filesystem::absolute(output)});
  const ChildEnd end = run_program(words, max_compile_seconds, "while compiling a plug-in; nothing was written");
  if (end.late) {
    fail(ExitCode::usage, "{}: compiling it took longer than {} s; nothing was written", printable_text(source),
         max_compile_seconds);
  }
  if (end.code == 127) {
    fail(ExitCode::usage, "{}: no compiler was found, of {}; install {}", printable_text(source), compilers,
         with_nvcc ? "the CUDA toolkit" : "one, such as the package g++, or name it in CXX");
  }
  if (end.code != 0 || end.signal != 0) fail(ExitCode::usage, "{}", printable_text(first_error(end.out, file, end)));
}

// Its static objects run as it is loaded. What they throw, or a call of exit(), would end this program as if the fault
// were its own, or as if all were done: so a child tries it.
void try_to_load(const std::string& path, const std::string& shown) {
  constexpr int came_back = 99;
  void* (*volatile load)(const char*, int) = ::dlopen;  // which the compiler takes for one that throws nothing
  const auto work = [&] {
    load(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ::_exit(came_back);
  };
  const ChildEnd end = run_function(work, 60, "while loading a plug-in");
  if (end.code == came_back && end.signal == 0) return;
  fail(ExitCode::usage, "{}: its static objects ended the program while it was loaded, by {}", shown,
       end.signal != 0 ? fmt::format("signal {}: {}", end.signal, ::strsignal(end.signal))
                       : fmt::format("exit({})", end.code));
}

void load_plugin(const std::string& path, const std::string& given) {
  const std::string shown = printable_text(given);
  const std::vector<uint8_t> bytes = read_file(path, max_plugin_bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_fits(text, shown);
  Plugin plugin = {std::filesystem::path(path).filename(), sha256_of(text), {}};
  if (std::ranges::count(plugins, plugin.sha256, &Plugin::sha256) > 0) {
    fail(ExitCode::usage, "{}: is loaded already; give it once", shown);
  }
  try_to_load(std::filesystem::absolute(path), shown);
  const std::vector<KernelSlot*> slots = kernel_slots();
  const std::set<const VariantBase*> variants = registered_variants();
  const size_t refused = refused_variants().size();
  // Never closed: slots keep pointers into it.
  if (!::dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL)) {
    fail(ExitCode::bad_input, "{}: cannot be loaded: {}", shown, printable_text(::dlerror()));
  }
  const auto check_name = [&](const char* name) {
    if (is_kernel_name(name)) return;
    fail(ExitCode::usage, "{}: registers a name \"{}\"; expected a to z, 0 to 9 and _", shown,
         printable_text(name ? name : ""));
  };
  if (refused_variants().size() > refused) {
    const auto& [slot, variant] = refused_variants()[refused];
    check_name(variant.name);
    fail(ExitCode::usage, "{}: {} has a variant {} for {} already; give yours another name", shown, slot.name(),
         variant.name, hs::name(variant.device));
  }
  for (const KernelSlot* slot : kernel_slots()) {
    const bool is_new = std::ranges::count(slots, slot) == 0;
    check_name(slot->name());
    if (is_new && std::ranges::count(slots, std::string_view(slot->name()), &KernelSlot::name) > 0) {
      fail(ExitCode::usage, "{}: declares a slot {}, and there is one; include <halfstep/kernel.h> and use that", shown,
           slot->name());
    }
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (!variants.contains(v))
        plugin.registered.push_back({slot->name(), v->name, v->device, is_new, v->error_growth});
    }
  }
  if (plugin.registered.empty()) {
    fail(ExitCode::usage, "{}: registers no kernel; expected REGISTER_KERNEL(relu_forward, cpu, \"my_relu\", ...)",
         shown);
  }
  if (plugin.registered.size() > max_variants) {
    fail(ExitCode::usage, "{}: registers {} variants, at most {} are taken; divide it", shown, plugin.registered.size(),
         max_variants);
  }
  name_suspect(plugin.file);
  plugins.push_back(std::move(plugin));
}

}  // namespace

const std::vector<Plugin>& loaded_plugins() { return plugins; }

void build_plugin(const std::string& source, OutputFile& out) {
  const std::string ending = std::filesystem::path(source).extension(), shown = printable_text(source);
  const bool is_cuda = ending == ".cu";
  if (!is_cuda && ending != ".cpp") fail(ExitCode::usage, "{}: expected a .cpp or a .cu file", shown);
  if (is_cuda && !*build_info.nvcc && !*build_info.emulator) {
    fail(ExitCode::usage, "{}: this build has no CUDA; one with -D HALFSTEP_CUDA=ON or EMULATED compiles it", shown);
  }
  const InputFile readable(source);
  TemporaryPath folder;
  make_temporary(folder);
  const std::string made = folder.path() / "plugin.so";
  compile(source, made, is_cuda);
  const std::vector<uint8_t> bytes = read_file(made, max_plugin_bytes);
  out.write(bytes.data(), bytes.size());
  out.keep();
}

void load_plugins(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::filesystem::path path = file;
    TemporaryPath folder;
    std::string built = file;
    if (path.extension() == ".cpp" || path.extension() == ".cu") {
      make_temporary(folder);
      built = folder.path() / path.stem().concat(".so");
      OutputFile out(built);
      build_plugin(file, out);
    }
    load_plugin(built, file);
  }
}

Json describe_plugins() {
  const auto variant = [](const Plugin::Registered& one) {
    return fmt::format("{}={} ({})", one.slot, one.variant, hs::name(one.device));
  };
  return mapped(plugins, [&](const Plugin& plugin) {
    return Json{{"file", plugin.file}, {"sha256", plugin.sha256}, {"variants", mapped(plugin.registered, variant)}};
  });
}

}  // namespace hs::bench::cli
