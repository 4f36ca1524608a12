// cuBLASLt's interface: descriptors, checked as the manual says, and the choice of an algorithm, which remembers what
// it was chosen for and is refused for anything else. gemm.cpp computes.
#include "cublasLt.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "gemm.h"
#include "internal.h"

struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK, alignment[4] = {256, 256, 256, 256};
};

namespace hs::emulator {
namespace {

constexpr uint32_t made_here = 0x48531a1;  // in every algorithm of the heuristic's

// An attribute of a descriptor, and where its value is kept.
struct Attribute {
  template <class T>
  Attribute(int number_, T& value) : number(number_), at(&value), bytes(sizeof value) {}
  int number;
  void* at;
  size_t bytes;
};

cublasStatus_t set(int number, const void* value, size_t bytes, std::initializer_list<Attribute> attributes) {
  const auto* const found = std::ranges::find(attributes, number, &Attribute::number);
  if (found == attributes.end()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!value || bytes != found->bytes) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(found->at, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t examine(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Problem& p) {
  if (!desc || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
  p = {*desc, *a, *b, *c, *d, 0, 0, 0, false};
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (layout->rows == 0 || layout->columns == 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (layout->ld < static_cast<int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto rows = [](const Layout& l, int32_t trans) { return static_cast<int64_t>(trans ? l.columns : l.rows); };
  p.m = rows(p.a, p.op.trans_a);
  p.k = rows(p.a, !p.op.trans_a);
  p.n = rows(p.b, !p.op.trans_b);
  if (rows(p.b, p.op.trans_b) != p.k || static_cast<int64_t>(p.d.rows) != p.m ||
      static_cast<int64_t>(p.d.columns) != p.n || p.c.rows != p.d.rows || p.c.columns != p.d.columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool tf32 = p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (p.op.compute != CUBLAS_COMPUTE_32F && !tf32) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool narrow = p.a.type == CUDA_R_16F || p.a.type == CUDA_R_16BF;
  if (p.a.type != p.b.type || p.c.type != p.d.type || (!narrow && p.a.type != CUDA_R_32F) || (tf32 && narrow) ||
      (p.d.type != CUDA_R_32F && p.d.type != p.a.type)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  constexpr int known[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_BIAS,
                           CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU_BGRAD};
  if (std::ranges::find(known, p.op.epilogue) == std::end(known)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.uses_aux() && (p.op.aux_ld % 128 != 0 || p.op.aux_ld < p.m)) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t hash_of(const Problem& p) {
  uint64_t hash = 14695981039346656037ull;
  for (const int64_t part :
       {int64_t{p.op.compute}, int64_t{p.op.trans_a}, int64_t{p.op.trans_b}, int64_t{p.op.epilogue}, int64_t{p.a.type},
        int64_t{p.d.type}, p.m, p.n, p.k, p.a.ld, p.b.ld, p.c.ld, p.d.ld}) {
    hash = (hash ^ static_cast<uint64_t>(part)) * 1099511628211ull;
  }
  return hash;
}

// What the heuristic believes of a pointer: the largest power of two up to 256 that it is a multiple of. NULL is.
uint16_t alignment_of(const void* pointer) {
  uint16_t alignment = 256;
  while (!is_aligned(pointer, alignment)) alignment /= 2;
  return alignment;
}

// What options().library has this call return.
cublasStatus_t refusal(const Problem& p, bool at_run) {
  for (const Refusal& refusal : options().library.refusals) {
    if (refusal.at_run != at_run || (refusal.epilogue != -1 && refusal.epilogue != p.op.epilogue)) continue;
    return static_cast<cublasStatus_t>(refusal.status);
  }
  return CUBLAS_STATUS_SUCCESS;
}

// The extent of a matrix in bytes; every operand has to lie in one allocation.
bool on_device(const void* data, const Layout& l) {
  const uint64_t elements = (l.columns - 1) * static_cast<uint64_t>(l.ld) + l.rows;
  return data && where(data, elements * size_of(l.type)) == Where::device;
}

}  // namespace
}  // namespace hs::emulator

using namespace hs::emulator;

size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
#define HS_STATUS(name) \
  { CUBLAS_STATUS_##name, "CUBLAS_STATUS_" #name }
  static const std::map<cublasStatus_t, const char*> names = {
      HS_STATUS(SUCCESS),       HS_STATUS(NOT_INITIALIZED), HS_STATUS(ALLOC_FAILED),     HS_STATUS(INVALID_VALUE),
      HS_STATUS(ARCH_MISMATCH), HS_STATUS(INTERNAL_ERROR),  HS_STATUS(EXECUTION_FAILED), HS_STATUS(NOT_SUPPORTED)};
#undef HS_STATUS
  const auto found = names.find(status);
  return found == names.end() ? "CUBLAS_STATUS_OTHER" : found->second;
}

struct cublasLtContext {};
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  if (options().no_device) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t) {
  *desc = new cublasLtMatmulDescOpaque_t{compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (!desc) return CUBLAS_STATUS_INVALID_VALUE;
  return set(attribute, value, bytes,
             {{CUBLASLT_MATMUL_DESC_TRANSA, desc->trans_a},
              {CUBLASLT_MATMUL_DESC_TRANSB, desc->trans_b},
              {CUBLASLT_MATMUL_DESC_EPILOGUE, desc->epilogue},
              {CUBLASLT_MATMUL_DESC_BIAS_POINTER, desc->bias},
              {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, desc->aux},
              {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, desc->aux_ld}});
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = new Layout{type, rows, columns, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
  return set(attribute, value, bytes,
             {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, preference->workspace},
              {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, preference->reduction},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, preference->alignment[0]},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, preference->alignment[1]},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, preference->alignment[2]},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, preference->alignment[3]}});
}

// Three made-up algorithms, best first: split-K (wants workspace, and the leave to reduce in the compute type), a big
// tile, a small tile.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  std::lock_guard guard(mutex());
  if (!handle || !preference || !results || !returned || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *returned = 0;
  Problem p;
  if (const cublasStatus_t status = examine(desc, a, b, c, d, p)) return status;
  if (const cublasStatus_t status = refusal(p, false)) return status;
  const Layout* layouts[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; ++i) {  // an operand has at least the alignment of its elements
    if (preference->alignment[i] < size_of(layouts[i]->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const uint16_t bias = alignment_of(p.op.bias), aux = alignment_of(p.op.aux);
  const cublasLtMatmulAlgo_t all[] = {
      {0, 1u << 20, 67, 20, 8, 2, {}, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, made_here, bias, aux, 0},
      {0, 0, 66, 24, 12, 1, {}, CUBLASLT_REDUCTION_SCHEME_NONE, made_here, bias, aux, 0},
      {0, 0, 21, 15, 8, 1, {}, CUBLASLT_REDUCTION_SCHEME_NONE, made_here, bias, aux, 0}};
  for (cublasLtMatmulAlgo_t algorithm : all) {
    if (*returned == requested) break;
    if (algorithm.workspace > preference->workspace || (algorithm.reduction & ~preference->reduction)) continue;
    if (algorithm.split_k > 1 && p.k < 512) continue;
    algorithm.problem = hash_of(p);
    algorithm.wrong = *returned < options().library.wrong_candidates;
    std::copy_n(preference->alignment, 4, algorithm.alignment);
    results[(*returned)++] = {algorithm, algorithm.workspace, CUBLAS_STATUS_SUCCESS, 1.0f, {}};
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t bytes, size_t* written) {
  if (!algo) return CUBLAS_STATUS_INVALID_VALUE;
  if (written) *written = sizeof(int32_t);
  if (!value || bytes < sizeof(int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  const int32_t number = attribute == CUBLASLT_ALGO_CONFIG_ID           ? algo->id
                         : attribute == CUBLASLT_ALGO_CONFIG_TILE_ID    ? algo->tile
                         : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? algo->split_k
                                                                        : algo->stages;
  memcpy(value, &number, sizeof number);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  std::lock_guard guard(mutex());
  if (options().no_device || !handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (sticky_error() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  Problem p;
  if (const cublasStatus_t status = examine(desc, a_layout, b_layout, c_layout, d_layout, p)) return status;
  if (!alpha || !beta || !on_device(a, p.a) || !on_device(b, p.b) || !on_device(d, p.d))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c == d && p.c.ld != p.d.ld) return CUBLAS_STATUS_INVALID_VALUE;
  const float product_factor = *static_cast<const float*>(alpha), c_factor = *static_cast<const float*>(beta);
  if (c_factor != 0 && !on_device(c, p.c)) return CUBLAS_STATUS_INVALID_VALUE;
  if (p.uses_bias()) {
    const size_t length = static_cast<size_t>(p.m);
    if (!p.op.bias || where(p.op.bias, length * size_of(p.d.type)) != Where::device) return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(p.op.bias, 16))
      return CUBLAS_STATUS_NOT_SUPPORTED;  // may fault on the device: no preference tells it
  }
  if (p.uses_aux()) {
    const size_t bytes = static_cast<size_t>(p.n * p.op.aux_ld / 8);
    if (!p.op.aux || where(p.op.aux, bytes) != Where::device || !is_aligned(p.op.aux, 16))
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (algo) {  // without one the library asks its heuristic
    if (algo->made_here != made_here) return CUBLAS_STATUS_INVALID_VALUE;
    if (algo->problem != hash_of(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (workspace_bytes < algo->workspace) return CUBLAS_STATUS_INVALID_VALUE;
    const void* operands[] = {a, b, c ? c : d, d};
    for (int i = 0; i < 4; ++i) {
      if (!is_aligned(operands[i], algo->alignment[i])) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if ((p.uses_bias() && !is_aligned(p.op.bias, algo->bias_alignment)) ||
        (p.uses_aux() && !is_aligned(p.op.aux, algo->aux_alignment))) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    p.wrong = algo->wrong != 0;
  }
  if (workspace_bytes > 0 && (where(workspace, workspace_bytes) != Where::device || !is_aligned(workspace, 256))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (const cublasStatus_t status = refusal(p, true)) return status;
  const cudaError_t error = enqueue(stream, [=] { multiply(p, product_factor, a, b, c_factor, c, d); });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
