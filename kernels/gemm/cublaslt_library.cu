#include "kernels/gemm/cublaslt_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>

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
  return found;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt loaded = load();
  return loaded;
}

}  // namespace hs::cublaslt
