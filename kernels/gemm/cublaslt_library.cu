#include "kernels/gemm/cublaslt_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <type_traits>

#include "engine/observe.h"
#include "kernels/gemm/cublaslt_plan.cuh"

namespace hs::cublaslt {
namespace {

// Of an emulated build none: the emulator's functions are among those of the program.
std::string usual_name() {
#ifdef HALFSTEP_CUDA_EMULATED
  return "";
#else
  return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
#endif
}

// The loader may have found the file by its name alone, and links lead from that to the name with the version.
std::string file_of(const void* function) {
  Dl_info found{};
  if (dladdr(function, &found) == 0) return "an unknown file";
  std::error_code missing;
  const std::filesystem::path file = std::filesystem::canonical(found.dli_fname, missing);
  return missing ? found.dli_fname : file.string();
}

// Results depend on the library, and nothing that can be asked before it is loaded tells which one it will be.
void note_library(const CublasLt& library, bool is_emulated) {
  const size_t version = library.GetVersion();
  const std::string file = is_emulated ? "the emulator" : file_of(reinterpret_cast<const void*>(library.GetVersion));
  note_choice("cuBLASLt", std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                              std::to_string(version % 100) + " of " + file);
}

CublasLt load() {
  const char* const named = std::getenv("HALFSTEP_CUBLASLT");
  const std::string name = named && *named ? named : usual_name();
  void* const library = dlopen(name.empty() ? nullptr : name.c_str(), RTLD_NOW);
  if (!library) {
    throw Refusal{std::string(dlerror()) + "; install cuBLASLt, or name the library in the variable HALFSTEP_CUBLASLT"};
  }
  CublasLt found;
  const auto look_up = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (!function) throw Refusal{name + ": has no function " + symbol + "; expected cuBLASLt 12 or newer"};
  };
  look_up(found.Create, "cublasLtCreate");
  look_up(found.GetStatusName, "cublasLtGetStatusName");
  look_up(found.GetVersion, "cublasLtGetVersion");
  look_up(found.Matmul, "cublasLtMatmul");
  look_up(found.MatmulAlgoConfigGetAttribute, "cublasLtMatmulAlgoConfigGetAttribute");
  look_up(found.MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  look_up(found.MatmulDescCreate, "cublasLtMatmulDescCreate");
  look_up(found.MatmulDescDestroy, "cublasLtMatmulDescDestroy");
  look_up(found.MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  look_up(found.MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
  look_up(found.MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  look_up(found.MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
  look_up(found.MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
  look_up(found.MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
  note_library(found, name.empty());
  return found;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt loaded = load();
  return loaded;
}

}  // namespace hs::cublaslt
