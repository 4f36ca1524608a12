// cuBLASLt, found at run time: it takes longer to load than the rest of the program, so a process that computes no
// product on the device does without it, and a program built for CUDA also runs where there is none. Internal to the
// cublaslt files.
#pragma once

#include <string>

namespace hs::cublaslt {

// The library cannot do what it was asked for. Not an Error: another variant of gemm can do the work.
struct Refusal {
  std::string what;
};

// The library's functions, cublaslt_plan.cuh: those of the file that the variable HALFSTEP_CUBLASLT names, otherwise of
// the one that this build found, or one of the same major version where the system looks for libraries. Throws Refusal
// if it is not there. Thread safe.
struct CublasLt;
const CublasLt& cublas_lt();

}  // namespace hs::cublaslt
