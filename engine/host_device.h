// HS_HOST_DEVICE marks a function that kernels of both devices share: the same arithmetic on CPU and GPU.
#pragma once

#ifdef __CUDACC__
#define HS_HOST_DEVICE __host__ __device__
#else
#define HS_HOST_DEVICE
#endif
