// Options, reports and the names of errors and symbols.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "internal.h"

namespace hs::emulator {
namespace {

auto& reports = *new std::vector<std::string>;
cudaError_t sticky = cudaSuccess;
size_t named = 0;
thread_local cudaError_t last_error = cudaSuccess;

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv((std::string("HALFSTEP_EMULATOR_") + name).c_str());
  return value && *value ? value : otherwise;
}

Options options_from_environment() {
  Options o;
  const std::string threads = environment("THREADS", "forward");
  o.threads = threads == "reverse" ? Order::reverse : threads == "random" ? Order::random : Order::forward;
  o.delay_streams = environment("STREAMS", "eager") == "random";
  o.seed = std::stoull(environment("SEED", "1"));
  o.no_device = environment("NO_DEVICE", "0") == "1";
  o.device = std::stoi(environment("DEVICE", "90"));
  o.code = std::stoi(environment("CODE", "90"));
  o.drop_k_tail = std::stoll(environment("DROP_K_TAIL", "0"));
  o.every_order = environment("EVERY_ORDER", "0") == "1";
  o.pageable_access = environment("PAGEABLE_ACCESS", "0") == "1";
  o.private_pages = environment("PRIVATE_PAGES", "0") == "1";
  o.library.wrong_candidates = std::stoi(environment("LT_WRONG", "0"));
  o.nccl = environment("NCCL", "");
  o.count = environment("COUNTS", "0") == "1";
  o.registers = std::stoi(environment("REGISTERS", "0"));
  o.print = environment("PRINT", "1") == "1";
  o.protect = environment("PROTECT", "1") == "1";
  o.total_memory = std::stoull(environment("MEMORY", "2147483648"));
  return o;
}

// dladdr() knows exported symbols only, but kernels in anonymous namespaces and static arrays have local ones: those
// are in the file's full symbol table.
struct Symbol {
  uintptr_t begin, end;
  std::string name;
};

std::vector<Symbol> read_symbols(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<Symbol> symbols;
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header)) return symbols;
  memcpy(&header, bytes.data(), sizeof(header));
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[sections[i].sh_link].sh_offset;
    const auto* table = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[i].sh_offset);
    for (size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      if (table[k].st_size == 0) continue;
      symbols.push_back({table[k].st_value, table[k].st_value + table[k].st_size, names + table[k].st_name});
    }
  }
  return symbols;
}

}  // namespace

std::recursive_mutex& mutex() {
  static auto& instance = *new std::recursive_mutex;
  return instance;
}

Options& options() {
  static auto& instance = *new Options(options_from_environment());
  return instance;
}

std::mt19937_64& randomness() {
  static auto& instance = *new std::mt19937_64(options().seed);
  return instance;
}

void reset() {
  std::lock_guard guard(mutex());
  forget_queues();
  forget_captures();
  forget_launches();
  forget_failures();
  reports.clear();
  sticky = last_error = cudaSuccess;
  randomness().seed(options().seed);
}

std::vector<std::string> take_reports() {
  std::lock_guard guard(mutex());
  return std::exchange(reports, {});
}

void report(cudaError_t code, const std::string& text) {
  if (options().print) std::fprintf(stderr, "CUDA emulator: %s\n", text.c_str());
  reports.push_back(text);
  if (sticky == cudaSuccess) sticky = code;
}

cudaError_t sticky_error() { return sticky; }

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

std::string format(const char* text, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(buffer, sizeof(buffer), text, arguments);
  va_end(arguments);
  return buffer;
}

size_t symbols_named() { return named; }

std::string symbol_name(const void* address) {
  ++named;
  static auto& files = *new std::map<std::string, std::vector<Symbol>>;
  Dl_info info;
  link_map* module = nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) || !module) {
    return format("%p", address);
  }
  const std::string path = module->l_name && *module->l_name ? module->l_name : "/proc/self/exe";
  if (!files.count(path)) files[path] = read_symbols(path);
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - module->l_addr;
  for (const Symbol& symbol : files[path]) {
    if (offset < symbol.begin || offset >= symbol.end) continue;
    int status = 0;
    std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(symbol.name.c_str(), nullptr, nullptr, &status),
                                                 std::free);
    std::string name = status == 0 ? plain.get() : symbol.name;
    for (const char* noise : {"(anonymous namespace)::", "hs::", "void "}) {
      for (size_t at; (at = name.find(noise)) != std::string::npos;) name.erase(at, strlen(noise));
    }
    return name;
  }
  return format("%p", address);
}

}  // namespace hs::emulator

using namespace hs::emulator;

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return sticky_error() != cudaSuccess ? sticky_error() : error;
}

namespace {

constexpr struct {
  cudaError_t code;
  const char* text;
} errors[] = {
    {cudaSuccess, "no error"},
    {cudaErrorInvalidValue, "invalid argument"},
    {cudaErrorMemoryAllocation, "out of memory"},
    {cudaErrorInvalidConfiguration, "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "invalid device function"},
    {cudaErrorInvalidDevice, "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "invalid resource handle"},
    {cudaErrorIllegalState, "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "device not ready"},
    {cudaErrorIllegalAddress, "an illegal memory access was encountered"},
    {cudaErrorMisalignedAddress, "misaligned address"},
    {cudaErrorLaunchFailure, "unspecified launch failure"},
    {cudaErrorNotSupported, "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "unknown error"}};

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  const auto* const found = std::ranges::find(errors, error, [](const auto& each) { return each.code; });
  return found == std::end(errors) ? "unrecognized error code" : found->text;
}
