// What this machine's processor can do beyond the instructions that the compiler was told about. Kernels that use such
// instructions are compiled for them function by function, and say so in `supported`: one binary holds them all.
// CPU files only.
#pragma once

namespace hs {

struct CpuFeatures {
  bool f16c = false;         // conversions between f16 and f32
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // dot products of bf16 pairs; implies avx512
  bool amx_bf16 = false;     // tile products of bf16, not switched off and permitted by the system; implies avx512
};

// Asked for once. HALFSTEP_NO_AMX=1 in the environment makes amx_bf16 false.
const CpuFeatures& cpu_features();

}  // namespace hs

// In front of a function that is called only where cpu_features() says so.
#if defined(__x86_64__)
#define HS_TARGET_F16C [[gnu::target("avx,f16c")]]
#define HS_TARGET_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]]
#define HS_TARGET_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]]
#endif
