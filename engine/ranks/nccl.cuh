// NCCL's calls, found at run time: a program built for CUDA also runs where there is no NCCL. These are our own
// declarations, so that building needs no header of it; tests/cuda_emulator/check_with_nvcc.cu compares them with
// nccl.h where there is one. Names without "nccl", arguments and values as in NCCL's documentation; results are
// ncclResult_t, 0 for success.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace hs::cuda {

struct NcclId {  // ncclUniqueId
  char internal[128];
};
struct NcclComm;

inline constexpr int nccl_f32 = 7, nccl_bf16 = 9, nccl_sum = 0;  // of ncclDataType_t and ncclRedOp_t

struct Nccl {
  int (*GetVersion)(int* version);
  int (*GetUniqueId)(NcclId* id);
  int (*CommInitRank)(NcclComm** comm, int ranks, NcclId id, int rank);
  int (*CommAbort)(NcclComm* comm);
  int (*CommGetAsyncError)(NcclComm* comm, int* error);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*Send)(const void* from, size_t count, int type, int peer, NcclComm* comm, cudaStream_t stream);
  int (*Recv)(void* to, size_t count, int type, int peer, NcclComm* comm, cudaStream_t stream);
  int (*AllReduce)(const void* from, void* to, size_t count, int type, int op, NcclComm* comm, cudaStream_t stream);
  const char* (*GetErrorString)(int result);
  const char* (*GetLastError)(NcclComm* comm);
};

// The library that HALFSTEP_NCCL names, otherwise libnccl.so.2 where the system looks for libraries. Throws Error
// (device) if there is none, or if it is older than 2.13. Thread safe.
const Nccl& nccl();

}  // namespace hs::cuda
