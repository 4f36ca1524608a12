// Descriptors, the heuristic and its candidates: what cuBLASLt is told about a product. The order matters: the
// heuristic reads the alignment of the bias and of the mask from the pointers themselves, so they are set before it is
// asked. Read next: cublaslt_check.cu.
#include <cuda_runtime.h>

#include <memory>

#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/cublaslt_plan.cuh"

namespace hs::cublaslt {
namespace {

constexpr size_t workspace_bytes = size_t{32} << 20;  // what NVIDIA recommends for Hopper, and the same everywhere

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Refusal{std::string(cublas_lt().GetStatusName(status)) + ", in " + call};
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f16 ? CUDA_R_16F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The handle and the workspace live as long as the process.
struct Library {
  cublasLtHandle_t handle = nullptr;
  Tensor workspace;
};

Library& library() {
  static Library* const made = [] {
    const PoolScope shared(nullptr);  // not from a captured step's own memory
    auto library = std::make_unique<Library>();
    check(cublas_lt().Create(&library->handle), "cublasLtCreate");
    library->workspace = Tensor::workspace(static_cast<int64_t>(workspace_bytes), Device::cuda);
    return library.release();  // never destroyed: the driver may be gone before static objects are
  }();
  return *made;
}

// "cublaslt algorithm 66, tile 24, stages 12, split-k 1, workspace 0"
std::string described(const cublasLtMatmulHeuristicResult_t& found) {
  const auto number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint32_t value = 0;
    size_t written = 0;
    const bool known = cublas_lt().MatmulAlgoConfigGetAttribute(&found.algo, attribute, &value, sizeof value,
                                                                &written) == CUBLAS_STATUS_SUCCESS;
    return known ? std::to_string(value) : std::string("?");
  };
  return "cublaslt algorithm " + number(CUBLASLT_ALGO_CONFIG_ID) + ", tile " + number(CUBLASLT_ALGO_CONFIG_TILE_ID) +
         ", stages " + number(CUBLASLT_ALGO_CONFIG_STAGES_ID) + ", split-k " + number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) +
         ", workspace " + std::to_string(found.workspaceSize);
}

}  // namespace

void expect_working_device() {
  (void)cudaGetLastError();  // of a launch that failed inside the library
  cudaStreamCaptureStatus status;
  cuda::check(cudaStreamIsCapturing(cuda::compute_stream(), &status), "cudaStreamIsCapturing");  // allowed in a capture
}

Key key_of(const Gemm& call) {
  const GemmOptions& options = call.options;
  const bool backward = options.epilogue == Epilogue::relu_backward;
  const Tensor& bias = backward ? call.bias_gradient : call.bias;
  const Tensor& mask = backward ? call.saved_mask : call.mask;
  return {.M = call.c.shape()[0],
          .N = call.c.shape()[1],
          .K = call.a.shape()[options.transpose_a ? 0 : 1],
          .in = call.a.dtype(),
          .out = call.c.dtype(),
          .transpose_a = options.transpose_a,
          .transpose_b = options.transpose_b,
          .adds = options.beta != 0,
          .has_bias = call.bias.defined(),
          .tf32 = options.tf32 && call.a.dtype() == DType::f32,
          .epilogue = options.epilogue,
          .align_a = alignment_of(call.a.raw_data()),
          .align_b = alignment_of(call.b.raw_data()),
          .align_c = alignment_of(call.c.raw_data()),
          .align_bias = alignment_of(bias.defined() ? bias.raw_data() : nullptr),
          .align_mask = alignment_of(mask.defined() ? mask.raw_data() : nullptr)};
}

Plan::Plan(const Key& key, const Gemm& call) : key_(key) {
  try {
    describe();
    set_pointers(call);
    choose(candidates());
  } catch (const Refusal& refusal) {
    expect_working_device();
    fault = refusal.what;
  }
}

Plan::~Plan() {
  if (product_) (void)cublas_lt().MatmulDescDestroy(product_);
  for (cublasLtMatrixLayout_t layout : {first_, second_, result_}) {
    if (layout) (void)cublas_lt().MatrixLayoutDestroy(layout);
  }
}

template <class T>
void Plan::set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
  check(cublas_lt().MatmulDescSetAttribute(product_, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}

void Plan::describe() {
  // Plain f32 never becomes TF32: TF32 is a separate compute type, used only on request.
  const cublasComputeType_t compute = key_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublas_lt().MatmulDescCreate(&product_, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(CUBLASLT_MATMUL_DESC_TRANSA, key_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  cublasLtEpilogue_t epilogue = key_.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (key_.epilogue == Epilogue::relu) {
    epilogue = key_.has_bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
  }
  if (key_.epilogue == Epilogue::relu_backward) epilogue = CUBLASLT_EPILOGUE_DRELU_BGRAD;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (key_.epilogue != Epilogue::none) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{8} * gemm_mask_row(key_.N));  // in bits
  }
  // Rows, columns and leading dimension of the transposes: our rows are the library's columns.
  const auto layout = [](cublasLtMatrixLayout_t& made, DType type, int64_t rows, int64_t columns) {
    check(cublas_lt().MatrixLayoutCreate(&made, type_of(type), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
  };
  layout(first_, key_.in, key_.transpose_b ? key_.K : key_.N, key_.transpose_b ? key_.N : key_.K);
  layout(second_, key_.in, key_.transpose_a ? key_.M : key_.K, key_.transpose_a ? key_.K : key_.M);
  layout(result_, key_.out, key_.N, key_.M);
}

void Plan::set_pointers(const Gemm& call) const {
  if (key_.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias.raw_data());
  if (key_.epilogue == Epilogue::relu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.mask.mutable_raw_data());
  if (key_.epilogue == Epilogue::relu_backward) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.saved_mask.raw_data());
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias_gradient.mutable_raw_data());
  }
}

Plan::Candidates Plan::candidates() const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublas_lt().MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublas_lt().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
  // Partial sums of a split K must be added in f32: in f16 they may overflow.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key_.align_b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key_.align_a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key_.align_c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key_.align_c));
  Candidates found{};
  const cublasStatus_t status =
      cublas_lt().MatmulAlgoGetHeuristic(library().handle, product_, first_, second_, result_, result_, preference,
                                         static_cast<int>(std::size(found.all)), found.all, &found.count);
  check(cublas_lt().MatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  return found;
}

void Plan::choose(const Candidates& candidates) {
  fault = "the library knows none";
  std::string first_fault, first_algorithm;
  int tried = 0;
  for (int i = 0; i < candidates.count && !fault.empty(); ++i) {
    if (candidates.all[i].state != CUBLAS_STATUS_SUCCESS) continue;
    algorithm_ = candidates.all[i].algo;
    algorithm = described(candidates.all[i]);
    try {
      fault = find_fault(key_, *this);
    } catch (const Refusal& refusal) {
      expect_working_device();
      fault = refusal.what;
    }
    if (tried++ == 0) first_algorithm = algorithm, first_fault = fault;
  }
  if (first_fault.empty()) return;  // the first one passed, or there was none
  if (fault.empty()) {
    passed_over = first_algorithm + "; " + first_fault;
    return;
  }
  algorithm = first_algorithm;
  fault = first_fault;
  if (tried > 1) fault += "; none of its " + std::to_string(tried) + " candidates passes";
}

void Plan::run(const Gemm& call) const {
  set_pointers(call);
  void* c = call.c.mutable_raw_data();
  check(cublas_lt().Matmul(library().handle, product_, &call.options.alpha, call.b.raw_data(), first_,
                           call.a.raw_data(), second_, &call.options.beta, c, result_, c, result_, &algorithm_,
                           library().workspace.mutable_raw_data(), workspace_bytes, cuda::compute_stream()),
        "cublasLtMatmul");
}

}  // namespace hs::cublaslt
