// Compiles a kernel's vector code once for each instruction set, so that one binary has them all, whatever -march is.
// A kernel file names itself and includes this file, which includes the kernel file again for each instruction set,
// with HS_ISA (the namespace) defined and with that instruction set enabled for all functions:
//   #include ...                                  // everything that the file needs, before anything is enabled
//   #ifdef HS_ISA
//   namespace hs::HS_ISA { namespace {
//   void forward(const ReluForward& call) { ... } // Vec, load(), store(), fma() ... of kernels/cpu/simd.h
//   } }
//   #else
//   #define HS_SOURCE "kernels/relu/simd.cpp"
//   #include "kernels/cpu/each_isa.h"
//   REGISTER_KERNEL(relu_forward, cpu, "simd",
//                   {.run = +[](const ReluForward& call) { HS_FOR_THIS_CPU(forward)(call); }});
//   #endif
// CPU files only. No `#pragma once`: a file includes it once.
#include "engine/cpu_features.h"

#define HS_ISA baseline
#define HS_VECTOR_BYTES 16
#include "kernels/cpu/simd.h"
#include HS_SOURCE
#undef HS_VECTOR_BYTES
#undef HS_ISA

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx,avx2,fma,f16c")
#endif
#define HS_ISA avx2
#define HS_VECTOR_BYTES 32
#include "kernels/cpu/simd.h"
#include HS_SOURCE
#undef HS_VECTOR_BYTES
#undef HS_ISA
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define HS_ISA avx512
#define HS_VECTOR_BYTES 64
#include "kernels/cpu/simd.h"
#include HS_SOURCE
#undef HS_VECTOR_BYTES
#undef HS_ISA
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#define HS_FOR_THIS_CPU(function) \
  (hs::cpu_features().avx512 ? avx512::function : hs::cpu_features().avx2 ? avx2::function : baseline::function)

#else

#define HS_FOR_THIS_CPU(function) baseline::function

#endif
