// Rung 5 of the gemm ladder: NVIDIA's cuBLASLt. Three things to know about it:
// - It is column-major. A row-major matrix is its own transpose stored by columns, so C = op(A) op(B) is computed as
//   C' = op(B)' op(A)': the operands are swapped and nothing is copied.
// - Choosing an algorithm takes tens of microseconds, so it is done once per kind of product (a Plan), from shapes,
//   types and alignment only, never from the memory that happens to be free.
// - Libraries have bugs. Before a plan is used it must multiply ones to exactly K, and agree with the naive kernel on
//   random numbers; otherwise this variant does not support the product, and a line on stderr says so.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cmath>
#include <compare>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/gemm.cuh"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

constexpr size_t workspace_bytes = size_t{32} << 20;  // what NVIDIA recommends for Hopper, and the same everywhere

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::device, std::string("cuBLASLt: ") + cublasLtGetStatusName(status) + ", in " + call);
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f16 ? CUDA_R_16F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The largest power of two up to 256 that divides an address.
int64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<int64_t>(std::min<uintptr_t>(256, address & (~address + 1)));
}

struct Key {
  int64_t M, N, K;
  DType in, out;
  bool transpose_a, transpose_b, adds, has_bias, tf32;  // adds: beta is not 0
  Epilogue epilogue;
  int64_t align_a, align_b, align_c;
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
    const int64_t align = std::min({align_a, align_b, align_c});
    return align >= 16 ? text : text + " aligned to " + std::to_string(align);
  }
};

Key key_of(const Gemm& call) {
  const GemmOptions& options = call.options;
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
          .align_c = alignment_of(call.c.raw_data())};
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
    check(cublasLtCreate(&library->handle), "cublasLtCreate");
    library->workspace = Tensor::workspace(static_cast<int64_t>(workspace_bytes), Device::cuda);
    return library.release();  // never destroyed: the driver may be gone before static objects are
  }();
  return *made;
}

class Plan {
 public:
  explicit Plan(const Key& key);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run(const Gemm& call) const;
  bool usable = false;                     // an algorithm was found, and it has passed the check
  std::string algorithm = "no algorithm";  // in words

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    check(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  void choose();

  const Key key_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;  // B', A', C'
  cublasLtMatmulAlgo_t algorithm_{};
};

Plan::Plan(const Key& key) : key_(key) {
  // Plain f32 never becomes TF32: TF32 is a separate compute type, used only on request.
  const cublasComputeType_t compute = key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&product_, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  cublasLtEpilogue_t epilogue = key.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (key.epilogue == Epilogue::relu) {
    epilogue = key.has_bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
  }
  if (key.epilogue == Epilogue::relu_backward) epilogue = CUBLASLT_EPILOGUE_DRELU_BGRAD;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (key.epilogue != Epilogue::none) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{8} * gemm_mask_row(key.N));  // in bits
  }
  // Rows, columns and leading dimension of the transposes: our rows are the library's columns.
  const auto layout = [](cublasLtMatrixLayout_t& made, DType type, int64_t rows, int64_t columns) {
    check(cublasLtMatrixLayoutCreate(&made, type_of(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                     rows),
          "cublasLtMatrixLayoutCreate");
  };
  layout(first_, key.in, key.transpose_b ? key.K : key.N, key.transpose_b ? key.N : key.K);
  layout(second_, key.in, key.transpose_a ? key.M : key.K, key.transpose_a ? key.K : key.M);
  layout(result_, key.out, key.N, key.M);
  choose();
}

Plan::~Plan() {
  (void)cublasLtMatmulDescDestroy(product_);
  for (cublasLtMatrixLayout_t layout : {first_, second_, result_}) (void)cublasLtMatrixLayoutDestroy(layout);
}

void Plan::choose() {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
  // Partial sums of a split K must be added in f32: in f16 they may overflow.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key_.align_b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key_.align_a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key_.align_c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key_.align_c));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library().handle, product_, first_, second_, result_,
                                                               result_, preference, 1, &found, &count);
  check(cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || count == 0) return;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found.state != CUBLAS_STATUS_SUCCESS) return;
  algorithm_ = found.algo;
  usable = true;
  const auto number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint32_t value = 0;
    size_t written = 0;
    const bool known = cublasLtMatmulAlgoConfigGetAttribute(&algorithm_, attribute, &value, sizeof value, &written) ==
                       CUBLAS_STATUS_SUCCESS;
    return known ? std::to_string(value) : std::string("?");
  };
  algorithm = "cublaslt algorithm " + number(CUBLASLT_ALGO_CONFIG_ID) + ", tile " +
              number(CUBLASLT_ALGO_CONFIG_TILE_ID) + ", stages " + number(CUBLASLT_ALGO_CONFIG_STAGES_ID) +
              ", split-k " + number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) + ", workspace " +
              std::to_string(found.workspaceSize);
}

void Plan::run(const Gemm& call) const {
  if (key_.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias.raw_data());
  if (key_.epilogue == Epilogue::relu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.mask.mutable_raw_data());
  if (key_.epilogue == Epilogue::relu_backward) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.saved_mask.raw_data());
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias_gradient.mutable_raw_data());
  }
  void* c = call.c.mutable_raw_data();
  check(cublasLtMatmul(library().handle, product_, &call.options.alpha, call.b.raw_data(), first_, call.a.raw_data(),
                       second_, &call.options.beta, c, result_, c, result_, &algorithm_,
                       library().workspace.mutable_raw_data(), workspace_bytes, cuda::compute_stream()),
        "cublasLtMatmul");
}

// ---- the check of a new plan ----

// Values for the check: a constant, integers from -2 to 2, or values in [-1, 1) from a hash of the index.
enum class Fill { constant, integers, random };

struct FillWith {
  Fill fill;
  uint32_t seed;
  float constant;
  __device__ float operator()(int64_t i) const {
    if (fill == Fill::constant) return constant;
    uint32_t h = static_cast<uint32_t>(i) * 0x9E3779B9u + seed;
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    h ^= h >> 16;
    if (fill == Fill::integers) return static_cast<float>(static_cast<int>(h % 5)) - 2;
    return static_cast<float>(h >> 8) * 0x1p-23f - 1;
  }
};

Tensor filled(const Shape& shape, DType dtype, Fill fill, uint32_t seed, float constant = 0) {
  Tensor tensor = Tensor::empty(shape, dtype, Device::cuda);
  cuda::for_float_type(dtype, [&]<class T>() {
    cuda::elementwise(tensor.size(), FillWith{fill, seed, constant}, tensor.mutable_data<T>());
  });
  return tensor;
}

// Counts the elements in rows [begin, end) for which |got - expected| is not within relative * |expected| + absolute.
template <class T>
__global__ void count_differences(int64_t begin, int64_t end, const T* got, const T* expected, float relative,
                                  float absolute, int* count) {
  for (int64_t i = begin + cuda::global_thread(); i < end; i += cuda::global_threads()) {
    const float want = cuda::to_f32(expected[i]);
    const bool close = fabsf(cuda::to_f32(got[i]) - want) <= relative * fabsf(want) + absolute;
    if (!close) atomicAdd(count, 1);  // integers: the order does not matter
  }
}

int differences(const Tensor& got, const Tensor& expected, int64_t begin, int64_t end, float relative, float absolute) {
  Tensor count = Tensor::zeros({}, DType::i32, Device::cuda);
  cuda::for_float_type(got.dtype(), [&]<class T>() {
    cuda::launch(count_differences<T>, cuda::blocks_for(end - begin), cuda::block_threads, 0, cuda::compute_stream(),
                 begin, end, got.data<T>(), expected.data<T>(), relative, absolute, count.mutable_data<int32_t>());
  });
  return static_cast<int>(count.item());
}

// A mask for the derivative of ReLU can only come from the library's own forward product. False if it has none.
bool make_masks(const Key& key, Tensor& of_library, Tensor& of_naive) {
  const int64_t inner = 32;
  const Tensor a = filled({key.M, inner}, key.in, Fill::integers, 5),
               b = filled({inner, key.N}, key.in, Fill::integers, 6);
  Tensor c = Tensor::empty({key.M, key.N}, key.in, Device::cuda);
  const GemmOptions options{.epilogue = Epilogue::relu};
  const Gemm product{.a = a, .b = b, .options = options, .c = c, .mask = of_library};
  const Plan forward(key_of(product));
  if (!forward.usable) return false;
  forward.run(product);
  gemm_naive({.a = a, .b = b, .options = options, .c = c, .mask = of_naive}, 0, key.M);
  return true;
}

// What is wrong with the plan, or an empty string.
std::string find_fault(const Key& key, const Plan& plan) {
  const Shape shape_a = key.transpose_a ? Shape{key.K, key.M} : Shape{key.M, key.K};
  const Shape shape_b = key.transpose_b ? Shape{key.N, key.K} : Shape{key.K, key.N};
  const GemmOptions options{.transpose_a = key.transpose_a,
                            .transpose_b = key.transpose_b,
                            .beta = key.adds ? 1.0f : 0.0f,
                            .epilogue = key.epilogue};
  const bool masked = key.epilogue != Epilogue::none, backward = key.epilogue == Epilogue::relu_backward;
  Tensor mask, naive_mask, gradient, naive_gradient;
  if (masked) mask = gemm_mask(key.M, key.N, Device::cuda), naive_mask = gemm_mask(key.M, key.N, Device::cuda);
  if (backward) {
    if (!make_masks(key, mask, naive_mask)) return "the library has no ReLU that makes the mask";
    gradient = Tensor::empty({key.N}, key.out, Device::cuda);
    naive_gradient = gradient.empty_like();
  }
  // Rows that are compared: all, or 64 at each end, because the naive kernel is slow.
  const int64_t ends = 64;
  const int64_t head = key.M <= 2 * ends ? key.M : ends, tail = key.M <= 2 * ends ? key.M : key.M - ends;

  for (const Fill fill : {Fill::constant, Fill::random}) {
    const Tensor a = filled(shape_a, key.in, fill, 1, 1), b = filled(shape_b, key.in, fill, 2, 1);
    const Tensor bias = key.has_bias ? filled({key.N}, key.out, fill, 3) : Tensor();
    Tensor got = filled({key.M, key.N}, key.out, fill, 4), expected = got.clone();
    plan.run({.a = a,
              .b = b,
              .bias = bias,
              .options = options,
              .c = got,
              .mask = mask,
              .saved_mask = mask,
              .bias_gradient = gradient});
    const int64_t all = key.M * key.N;
    if (fill == Fill::constant && !backward) {
      expected = filled({key.M, key.N}, key.out, fill, 0, static_cast<float>(key.K));
      if (const int wrong = differences(got, expected, 0, all, 0, 0)) {
        return "of ones times ones, " + std::to_string(wrong) + " elements are not K";
      }
      continue;
    }
    const Gemm by_naive{.a = a,
                        .b = b,
                        .bias = bias,
                        .options = options,
                        .c = expected,
                        .mask = naive_mask,
                        .saved_mask = naive_mask,
                        .bias_gradient = naive_gradient};
    gemm_naive(by_naive, 0, head);
    if (tail < key.M) gemm_naive(by_naive, tail, key.M);
    // Products are below 1 and 1/4 on average; their sum of K may err by a few sqrt(K) roundings of its size, which is
    // far below the error of 1/3 sqrt(n) from n missing products.
    const float unit = key.tf32 ? 0x1p-11f : 0x1p-24f * std::sqrt(static_cast<float>(key.K));
    const float absolute = 8 * unit * std::sqrt(static_cast<float>(key.K) + 2);
    const float relative = key.out == DType::f16 ? 0x1p-10f : key.out == DType::bf16 ? 0x1p-7f : 0x1p-20f;
    const int wrong = differences(got, expected, 0, head * key.N, relative, absolute) +
                      differences(got, expected, tail * key.N, all, relative, absolute);
    if (wrong) return std::to_string(wrong) + " elements differ from the naive kernel's";
    if (backward && key.M <= 2 * ends) {  // sums of M such numbers
      const auto rows = static_cast<float>(key.M);
      const int wrong_sums = differences(gradient, naive_gradient, 0, key.N, relative, (absolute + relative) * rows);
      if (wrong_sums) return std::to_string(wrong_sums) + " elements of the bias gradient differ";
    }
  }
  return "";
}

// ---- the variant ----

const Plan& plan_for(const Key& key) {
  static std::mutex mutex;
  static auto& plans = *new std::map<Key, std::unique_ptr<Plan>>;  // never destroyed, as the library is not
  const std::lock_guard lock(mutex);
  std::unique_ptr<Plan>& plan = plans[key];
  if (plan) return *plan;
  cuda::forbid_in_capture("choosing an algorithm for gemm " + key.name());
  auto made = std::make_unique<Plan>(key);
  std::string fault = made->usable ? "" : "the library knows none";
  if (made->usable) fault = find_fault(key, *made);
  made->usable = fault.empty();
  if (!fault.empty()) {
    std::fprintf(stderr, "halfstep: cuBLASLt is not usable for gemm %s (%s; %s); another variant runs, slowly\n",
                 key.name().c_str(), made->algorithm.c_str(), fault.c_str());
  }
  note_choice("gemm " + key.name(), made->usable ? made->algorithm : "not usable");
  plan = std::move(made);
  return *plan;
}

void gemm_cublaslt(const Gemm& call) { plan_for(key_of(call)).run(call); }  // supported() found it usable

// The library may read these 16 bytes at a time, and is not told their alignment.
bool is_aligned(const Tensor& x) { return !x.defined() || alignment_of(x.raw_data()) >= 16; }

// Checks the plan last: a plan is created only for a product that the library could support.
bool supported(const Gemm& call) {
  return is_aligned(call.bias) && is_aligned(call.mask) && is_aligned(call.saved_mask) &&
         is_aligned(call.bias_gradient) && cuda::gemm_types_supported(call) && call.a.size() > 0 && call.c.size() > 0 &&
         !(call.options.epilogue == Epilogue::relu_backward && call.options.beta != 0) && plan_for(key_of(call)).usable;
}

REGISTER_KERNEL(gemm, cuda, "cublaslt",
                {.run = gemm_cublaslt, .supported = supported, .rank = 40, .layout = "cublaslt"});

}  // namespace
}  // namespace hs
