// The instruction sets of this machine's processor beyond those that the compiler may use everywhere. Kernels that need
// them are compiled for them function by function and check for them in `supported`, so one binary contains all
// kernels. CPU files only.
//
// The environment variable HALFSTEP_ISA=x86-64|avx2|avx512|avx512_bf16|amx, on ARM neon|neon_bf16, caps what is chosen
// at run time: kernel variants, the vectors of kernels/cpu/each_isa.h, type conversions, packing. In a build with
// HALFSTEP_NATIVE it does not affect what the compiler uses everywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hs {

// An instruction set, spelled as in Linux: avx512f, amx_bf16.
struct CpuFeature {
  std::string name;
  bool present;  // this processor has it, and the operating system saves its registers
};

struct CpuFeatures {
  std::vector<CpuFeature> all;  // that kernels may use, present or not
  std::string cap;              // HALFSTEP_ISA; empty: none

  // What kernels check: present, and allowed by the cap.
  bool f16c = false;         // conversions between f16 and f32
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // dot products of bf16 pairs; implies avx512
  bool avx512_fp16 = false;  // arithmetic of f16; implies avx512, and is capped like avx512_bf16
  bool amx_bf16 = false;     // tile products of bf16, permitted by the operating system; implies avx512
  bool neon_bf16 = false;    // ARM's dot products of bf16 pairs
  bool neon_fp16 = false;    // ARM's arithmetic of f16, capped like neon_bf16

  bool has(std::string_view name) const;  // whether it is in `all` and present
};

// Detected once. Throws Error (usage) if HALFSTEP_ISA names no instruction set: parallel() asks before it starts
// threads, in which an error would end the program.
const CpuFeatures& cpu_features();

// The same for any cap; "" means no cap.
CpuFeatures find_cpu_features(const std::string& cap);

// The rank of a variant that multiplies bf16 in pairs (AVX-512 BF16), beside one of rank `widening` that widens to f32:
// above it, but on Intel's processors below it. AMD's do twice as many multiply-adds in pairs as in f32, Intel's half
// as many. No cap matters here, because variants are registered before main().
int rank_of_bf16_pairs(int widening);

// Whether this CPU multiplies pairs of bf16 faster than f32.
bool has_fast_bf16_pairs();
// Whether it multiplies bf16 faster than f32: on tiles, or in pairs.
bool multiplies_bf16_faster();

}  // namespace hs

// Marks a function that is called only if cpu_features() allows it.
#if defined(__x86_64__)
#define HS_TARGET_F16C [[gnu::target("avx,f16c")]]
#define HS_TARGET_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]]
#define HS_TARGET_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]]
#define HS_TARGET_AVX512_FP16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512fp16,avx2,fma")]]
#elif defined(__aarch64__)
#define HS_TARGET_NEON_BF16 [[gnu::target("arch=armv8.2-a+bf16")]]
#define HS_TARGET_NEON_FP16 [[gnu::target("arch=armv8.2-a+fp16")]]
#endif
