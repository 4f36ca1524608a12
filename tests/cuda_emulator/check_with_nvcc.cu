// Compiled by nvcc, never run: that the kernels of the emulator's tests, and the real kernels/cuda/shared.cuh and
// kernels/cuda/mma.cuh, are CUDA C++ as nvcc accepts it. The device gets each kernel, of templates what is named. And
// that engine/ranks/nccl.cuh declares NCCL as its own header does, where there is one.
#include "kernels.cuh"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

#include "engine/ranks/nccl.cuh"

namespace {

// How an argument is passed: an enumeration as an int, any pointer as a pointer, a struct by its size.
template <class A, class B>
constexpr bool alike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> == std::is_class_v<B>;

template <class R, class... A, class S, class... B>
constexpr bool same_call(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) == sizeof...(B)) return alike<R, S> && (alike<A, B> && ...);
  return false;
}

constexpr hs::cuda::Nccl ours = {};
static_assert(same_call(ours.GetVersion, &ncclGetVersion) && same_call(ours.GetUniqueId, &ncclGetUniqueId) &&
              same_call(ours.CommInitRank, &ncclCommInitRank) && same_call(ours.CommAbort, &ncclCommAbort) &&
              same_call(ours.CommGetAsyncError, &ncclCommGetAsyncError) &&
              same_call(ours.GroupStart, &ncclGroupStart) && same_call(ours.GroupEnd, &ncclGroupEnd) &&
              same_call(ours.Send, &ncclSend) && same_call(ours.Recv, &ncclRecv) &&
              same_call(ours.AllReduce, &ncclAllReduce) && same_call(ours.GetErrorString, &ncclGetErrorString) &&
              same_call(ours.GetLastError, &ncclGetLastError));
static_assert(hs::cuda::nccl_f32 == ncclFloat32 && hs::cuda::nccl_bf16 == ncclBfloat16 &&
              hs::cuda::nccl_sum == ncclSum && ncclSuccess == 0 && sizeof(hs::cuda::NcclId) == sizeof(ncclUniqueId));

}  // namespace
#endif

template <class... Kernel>
bool are_there(Kernel... kernels) {
  return ((kernels != nullptr) && ...);
}
const bool compiled = are_there(axpy<float>, axpy<double>, block_sum<true>, block_sum<false>, reverse_in_warp<true>,
                                reverse_in_warp<false>, copy_async<true>, copy_async<false>, sum_by_last_block<true>,
                                sum_by_last_block<false>);
