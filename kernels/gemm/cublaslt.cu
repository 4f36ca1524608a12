// Rung 5 of the gemm ladder: NVIDIA's cuBLASLt. Three things to know about it:
// - It is column-major. A row-major matrix is its own transpose stored by columns, so C = op(A) op(B) is computed as
//   C' = op(B)' op(A)': the operands are swapped and nothing is copied.
// - Choosing an algorithm takes tens of microseconds, so it is done once per kind of product (a Plan), from shapes,
//   types and alignment only, never from the memory that happens to be free.
// - Libraries have bugs. An algorithm must pass a check before it is used, and whatever the library refuses, when it is
//   asked, in the check or later, goes to the next variant by rank: a line on stderr and the record of choices say so.
// Read next: cublaslt_plan.cu, cublaslt_check.cu.
#include <cuda_runtime.h>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/cublaslt_plan.cuh"
#include "kernels/gemm/gemm.cuh"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

using cublaslt::Key;
using cublaslt::key_of;
using cublaslt::Plan;

void tell_unusable(const Key& key, const Plan& plan) {
  std::fprintf(stderr, "halfstep: cuBLASLt is not usable for gemm %s (%s; %s); another variant runs, slowly\n",
               key.name().c_str(), plan.algorithm.c_str(), plan.fault.c_str());
  note_choice("gemm " + key.name(), "not usable: " + plan.fault);
}

Plan& plan_for(const Gemm& call) {
  static std::mutex mutex;
  static auto& plans = *new std::map<Key, std::unique_ptr<Plan>>;  // never destroyed, as the library is not
  const std::lock_guard lock(mutex);
  const Key key = key_of(call);
  std::unique_ptr<Plan>& plan = plans[key];
  if (plan) return *plan;
  cuda::forbid_in_capture("choosing an algorithm for gemm " + key.name());
  plan = std::make_unique<Plan>(key, call);
  if (!plan->fault.empty()) {
    tell_unusable(key, *plan);
    return *plan;
  }
  if (!plan->passed_over.empty()) {
    std::fprintf(stderr, "halfstep: cuBLASLt's first choice for gemm %s is not usable (%s); %s runs\n",
                 key.name().c_str(), plan->passed_over.c_str(), plan->algorithm.c_str());
  }
  note_choice("gemm " + key.name(), plan->algorithm);
  return *plan;
}

// Sizes (M, N) for which this variant had to let another one compute a ReLU: of the masks of such a size nobody knows
// any more who wrote them. One thread at a time calls kernels.
std::set<std::pair<int64_t, int64_t>>& doubtful_masks() {
  static auto& sizes = *new std::set<std::pair<int64_t, int64_t>>;
  return sizes;
}
std::pair<int64_t, int64_t> size_of(const Gemm& call) { return {call.c.shape()[0], call.c.shape()[1]}; }

bool runs_in_library(const Gemm& call) {
  const bool reads_mask = call.options.epilogue == Epilogue::relu_backward;
  return !(reads_mask && doubtful_masks().contains(size_of(call))) && plan_for(call).fault.empty();
}

bool running_elsewhere = false;  // then the library is not asked for anything, not even for a part of the call

// The library refuses what supported() has promised. This may happen in a capture, where no plan can be made.
void run_elsewhere(const Gemm& call) {
  running_elsewhere = true;
  struct End {
    ~End() { running_elsewhere = false; }
  } end;
  if (call.options.epilogue == Epilogue::relu_backward) {
    if (!call.relu_output.defined()) {
      throw Error(ExitCode::device, "cuBLASLt does not read the ReLU mask that it wrote; pass relu_output as well");
    }
    return gemm_unfused(call);  // no other variant can read the mask
  }
  if (call.options.epilogue == Epilogue::relu) doubtful_masks().insert(size_of(call));
  gemm(call);
}

void gemm_cublaslt(const Gemm& call) {
  if (!runs_in_library(call)) return run_elsewhere(call);
  Plan& plan = plan_for(call);
  try {
    return plan.run(call);
  } catch (const cublaslt::Refusal& refusal) {
    cublaslt::expect_working_device();
    plan.fault = refusal.what;
  }
  tell_unusable(key_of(call), plan);
  run_elsewhere(call);
}

// The library may read these 16 bytes at a time.
bool is_aligned(const Tensor& x) { return !x.defined() || cublaslt::alignment_of(x.raw_data()) >= 16; }

// Asks for the plan last: it is created only for a product that the library could support.
bool supported(const Gemm& call) {
  return !running_elsewhere && is_aligned(call.bias) && is_aligned(call.mask) && is_aligned(call.saved_mask) &&
         is_aligned(call.bias_gradient) && cuda::gemm_types_supported(call) && call.a.size() > 0 && call.c.size() > 0 &&
         !(call.options.epilogue == Epilogue::relu_backward && call.options.beta != 0) &&
         (runs_in_library(call) || call.relu_output.defined());
}

REGISTER_KERNEL(gemm, cuda, "cublaslt",
                {.run = gemm_cublaslt, .supported = supported, .rank = 40, .layout = "cublaslt"});

}  // namespace
}  // namespace hs
