// float4, uint3, dim3 and their make_ functions, with the sizes and alignments of CUDA's vector_types.h.
#pragma once

#define HS_EMULATOR_VECTOR(type, name, align2, align4)                        \
  struct name##1 {                                                            \
    type x;                                                                   \
  };                                                                          \
  struct alignas(align2) name##2 {                                            \
    type x, y;                                                                \
  };                                                                          \
  struct name##3 {                                                            \
    type x, y, z;                                                             \
  };                                                                          \
  struct alignas(align4) name##4 {                                            \
    type x, y, z, w;                                                          \
  };                                                                          \
  inline name##1 make_##name##1(type x) { return {x}; }                       \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

HS_EMULATOR_VECTOR(signed char, char, 2, 4)
HS_EMULATOR_VECTOR(unsigned char, uchar, 2, 4)
HS_EMULATOR_VECTOR(short, short, 4, 8)
HS_EMULATOR_VECTOR(unsigned short, ushort, 4, 8)
HS_EMULATOR_VECTOR(int, int, 8, 16)
HS_EMULATOR_VECTOR(unsigned int, uint, 8, 16)
HS_EMULATOR_VECTOR(float, float, 8, 16)
HS_EMULATOR_VECTOR(long long, longlong, 16, 16)
HS_EMULATOR_VECTOR(unsigned long long, ulonglong, 16, 16)
HS_EMULATOR_VECTOR(double, double, 16, 16)
#undef HS_EMULATOR_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
