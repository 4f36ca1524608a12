// How cuBLASLt computes one kind of product: the Key says which kind, a Plan holds the library's descriptors and the
// algorithm that has passed the check (cublaslt_check.cu). Internal to the cublaslt files.
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

#include "kernels/gemm/cublaslt_library.h"
#include "kernels/gemm/gemm.h"

namespace hs::cublaslt {

// The functions that a plan calls, as cublasLt.h declares them; their names without "cublasLt".
struct CublasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtGetStatusName) GetStatusName;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) MatmulAlgoConfigGetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
};

// The largest power of two up to 256 that divides an address.
inline int64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<int64_t>(std::min<uintptr_t>(256, address & (~address + 1)));
}

// Everything that the choice of an algorithm depends on.
struct Key {
  int64_t M, N, K;
  DType in, out;
  bool transpose_a, transpose_b, adds, has_bias, tf32;  // adds: beta is not 0
  Epilogue epilogue;
  int64_t align_a, align_b, align_c;
  int64_t align_bias, align_mask;  // of the bias or its gradient, and of the mask; 256 without
  auto operator<=>(const Key&) const = default;

  // "f16 64x10x1600 NN bias"
  std::string name() const {
    std::string text = std::string(tf32 ? "tf32" : hs::name(in)) + " " + std::to_string(M) + "x" + std::to_string(N) +
                       "x" + std::to_string(K) + " " + (transpose_a ? "T" : "N") + (transpose_b ? "T" : "N");
    if (out != in) text += std::string(" to ") + hs::name(out);
    if (adds) text += " adding";
    if (has_bias) text += " bias";
    if (epilogue == Epilogue::relu) text += " relu";
    if (epilogue == Epilogue::relu_backward) text += " relu_backward";
    const int64_t align = std::min({align_a, align_b, align_c});  // the others are at least 16
    return align >= 16 ? text : text + " aligned to " + std::to_string(align);
  }
};

Key key_of(const Gemm& call);

// After a refusal: throws Error (device) if the device has failed as well, so that no other variant could run either.
// Else forgets the error that the library may have left behind.
void expect_working_device();

class Plan : NonCopyable {
 public:
  // Asks for algorithms for calls like this one, and takes the first that passes the check.
  Plan(const Key& key, const Gemm& call);
  ~Plan();

  void run(const Gemm& call) const;  // throws Refusal; C is then as it was

  std::string fault;                       // why it must not be used, or empty
  std::string algorithm = "no algorithm";  // in words
  std::string passed_over;                 // the better-placed algorithms that failed the check, and why; or empty

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const;
  void describe();
  void set_pointers(const Gemm& call) const;
  struct Candidates {  // best first, as the library sees it
    cublasLtMatmulHeuristicResult_t all[8];
    int count = 0;
  };
  Candidates candidates() const;
  void choose(const Candidates& candidates);

  const Key key_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;  // B', A', C'
  cublasLtMatmulAlgo_t algorithm_{};
};

// What is wrong with the results of the plan's algorithm, or an empty string. Throws Refusal.
std::string find_fault(const Key& key, const Plan& plan);

}  // namespace hs::cublaslt
