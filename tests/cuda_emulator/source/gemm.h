// A GEMM as cuBLASLt's descriptors tell it, once they have been checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cublasLt.h"

struct cublasLtMatmulDescOpaque_t {
  int32_t compute = 0, trans_a = 0, trans_b = 0, epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int64_t aux_ld = 0;
  void *bias = nullptr, *aux = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  int32_t type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0;
};

namespace hs::emulator {

using Layout = cublasLtMatrixLayoutOpaque_t;

struct Problem {
  cublasLtMatmulDescOpaque_t op;
  Layout a, b, c, d;
  int64_t m, n, k;
  bool wrong = false;  // computed by a candidate that leaves out the last term of each sum

  bool has(int bit) const { return (op.epilogue & bit) != 0; }
  bool uses_aux() const { return has(128); }
  bool uses_bias() const { return has(4 | 16); }
};

inline size_t size_of(int32_t type) { return type == CUDA_R_32F ? 4 : 2; }

// d = epilogue(alpha * op(a) * op(b) + beta * c). Runs when the stream gets there.
void multiply(const Problem& p, float alpha, const void* a, const void* b, float beta, const void* c, void* d);

}  // namespace hs::emulator
