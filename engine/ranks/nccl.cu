#include "engine/ranks/nccl.cuh"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "engine/error.h"

namespace hs::cuda {
namespace {

// In an emulated build it is there already, among the emulator's symbols.
#ifdef HALFSTEP_CUDA_EMULATED
constexpr const char* default_library = "libcuda_emulator.so";
#else
constexpr const char* default_library = "libnccl.so.2";
#endif
constexpr int oldest = 21300;  // 2.13: ncclGetLastError

Nccl load() {
  const char* const named = std::getenv("HALFSTEP_NCCL");
  const std::string name = named && *named ? named : default_library;
  void* const library = dlopen(name.c_str(), RTLD_NOW);
  if (!library) {
    throw Error(ExitCode::device, std::string("ranks on cuda need NCCL: ") + dlerror() +
                                      "; install it, or name the library in the variable HALFSTEP_NCCL");
  }
  Nccl found = {};
  const auto look_up = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (function) return;
    throw Error(ExitCode::device, name + ": has no function " + symbol + "; expected NCCL 2.13 or newer");
  };
  look_up(found.GetVersion, "ncclGetVersion");
  look_up(found.GetUniqueId, "ncclGetUniqueId");
  look_up(found.CommInitRank, "ncclCommInitRank");
  look_up(found.CommAbort, "ncclCommAbort");
  look_up(found.CommGetAsyncError, "ncclCommGetAsyncError");
  look_up(found.GroupStart, "ncclGroupStart");
  look_up(found.GroupEnd, "ncclGroupEnd");
  look_up(found.Send, "ncclSend");
  look_up(found.Recv, "ncclRecv");
  look_up(found.AllReduce, "ncclAllReduce");
  look_up(found.GetErrorString, "ncclGetErrorString");
  look_up(found.GetLastError, "ncclGetLastError");
  int version = 0;
  if (found.GetVersion(&version) != 0 || version < oldest) {
    throw Error(ExitCode::device,
                name + ": is version " + std::to_string(version) + ", expected 21300 (NCCL 2.13) or newer");
  }
  return found;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl loaded = load();
  return loaded;
}

}  // namespace hs::cuda
