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
//   REGISTER_KERNEL(relu_forward, cpu, "simd", {.run = HS_DISPATCHED(forward)});
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

#ifndef HS_DISPATCHED  // files that are compiled as one include this more than once
namespace hs {
template <auto baseline, auto avx2, auto avx512>
struct Dispatched;
template <class R, class... A, R (*baseline)(A...), R (*avx2)(A...), R (*avx512)(A...)>
struct Dispatched<baseline, avx2, avx512> {
  static R run(A... arguments) {
    return (cpu_features().avx512 ? avx512 : cpu_features().avx2 ? avx2 : baseline)(arguments...);
  }
};
}  // namespace hs
// A function that calls HS_FOR_THIS_CPU(function), for registration: which one it is must not be asked before main().
#define HS_DISPATCHED(function) Dispatched<baseline::function, avx2::function, avx512::function>::run
#endif

#else

#define HS_FOR_THIS_CPU(function) baseline::function
#define HS_DISPATCHED(function) baseline::function

#endif
