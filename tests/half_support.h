// What the tests of the 16-bit CPU kernels share: inputs, bounds, a run of every variant, and emulated AMX tiles.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "engine/error.h"
#include "engine/kernel.h"
#include "engine/random.h"
#include "kernels/cast.h"
#include "engine/cpu_features.h"
#include "tests/support/op_table.h"

namespace hs::test::half {

inline Numbers numbers(const Tensor& x) { return cast(x, DType::f64).to_vector<double>(); }

// Values in [-1, 1), or whole numbers from -4 to 4, rounded to `dtype`. `density`: the share that is not zero.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint32_t purpose, bool integers = false,
                            double density = 1) {
  // Tests ask for the same tensors again and again, and drawing them takes longer than the kernels do.
  static std::map<std::string, Tensor> drawn;
  Tensor& tensor = drawn[fmt::format("{} {} {} {}", shape.to_string(), purpose, integers, density)];
  if (!tensor.defined()) {
    const RandomStream stream{2027, RandomPurpose::init, purpose, 5, 0};
    std::vector<float> values(static_cast<size_t>(shape.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = random_bits(stream, 2 * i);
      values[i] = integers ? static_cast<float>(bits % 9) - 4 : 2 * to_unit_float(bits) - 1;
      if (to_unit_float(random_bits(stream, 2 * i + 1)) >= density) values[i] = 0;
    }
    tensor = Tensor::from(values, shape);
  }
  return cast(tensor, dtype).clone();
}

inline Numbers absolute(Numbers values) {
  for (double& value : values) value = std::fabs(value);
  return values;
}

inline double roundoff(DType dtype) {
  return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : tolerance::u32;
}
inline Tolerance frobenius(DType dtype, size_t size) {
  if (size < 16) return {};  // a norm speaks of many roundings; of a few, each has its own bound
  return {0, 0, dtype == DType::f16 ? 4e-4 : dtype == DType::bf16 ? 3.2e-3 : 2e-6};
}

// Sums of `terms` products, rounded to the type of `got`.
inline void check_sums(const std::string& what, const Tensor& got, const Numbers& expected, const Numbers& magnitude,
                       int64_t terms) {
  Numbers allowance(expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    allowance[i] = tolerance::sum_allowance(terms, magnitude[i]) +
                   roundoff(got.dtype()) * std::fabs(expected[i]) * 1.01 + (got.dtype() == DType::f16 ? 0x1p-25 : 0);
  }
  CompareOptions options;
  options.allowance = allowance;
  const Comparison result = compare(numbers(got), expected, frobenius(got.dtype(), expected.size()), options);
  INFO(what, ": ", result.summary);
  CHECK(result.passed);
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.bytes()) == 0);
}

// Every variant that any test of this program ran.
inline std::set<std::string> tried;

// Calls body(name) with each CPU variant of the slot forced in turn. One that does not support the arguments, because
// of its types, its shapes or this machine, is passed over.
template <class Slot, class Body>
void for_each_variant(Slot& slot, const Body& body) {
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (v->device != Device::cpu) continue;
    slot.force(v->name);
    try {
      body(std::string(v->name));
      tried.insert(fmt::format("{}={}", slot.name(), v->name));
    } catch (const Error& error) {
      if (std::string(error.what()).find(" takes (") == std::string::npos) FAIL(std::string(error.what()));
    }
    slot.force(nullptr);
  }
}

// Fails for a variant of the slot that no test of this program ran, unless this machine cannot run it or it is not for
// 16-bit types.
inline void check_all_tried(const KernelSlot& slot) {
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    const std::string name = fmt::format("{}={}", slot.name(), v->name);
    const bool missing = (name.ends_with("=amx") && !cpu_features().amx_bf16) ||
                         (name.ends_with("=avx512_bf16") && !cpu_features().avx512_bf16);
    if (missing) MESSAGE("skipped: ", name, ", which this machine cannot run");
    if (v->device == Device::cpu && name != "gemm=eigen" && !missing) CHECK_MESSAGE(tried.contains(name), name);
  }
}

// The tiles of kernels/amx.h in plain C++, as the manual describes TDPBF16PS: sums of the even and of the odd k apart,
// subnormal numbers taken for zero.
struct EmulatedTiles {
  static inline thread_local uint32_t tiles[8][16][16];
  static inline thread_local bool configured = false;
  static inline bool broken = false;  // as if a switch of threads had lost the tiles

  static void configure() { configured = true; }
  static void release() { configured = false; }
  template <int tile>
  static void zero() {
    if (!configured) std::abort();  // on a machine with AMX, an illegal instruction
    std::memset(tiles[tile], 0, sizeof tiles[tile]);
  }
  template <int tile>
  static void load(const void* from, int64_t stride) {
    if (!configured) std::abort();  // on a machine with AMX, an illegal instruction
    for (int64_t i = 0; i < 16; ++i) std::memcpy(tiles[tile][i], static_cast<const uint8_t*>(from) + i * stride, 64);
  }
  template <int tile>
  static void store(void* to, int64_t stride) {
    if (!configured) std::abort();  // on a machine with AMX, an illegal instruction
    for (int64_t i = 0; i < 16; ++i) std::memcpy(static_cast<uint8_t*>(to) + i * stride, tiles[tile][i], 64);
  }
  static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
  static float bf16(uint32_t pair, int half) {
    return flushed(std::bit_cast<float>(half ? pair & 0xffff0000u : pair << 16));
  }
  template <int sum, int a, int b>
  static void multiply() {
    if (!configured) std::abort();  // on a machine with AMX, an illegal instruction
    for (size_t m = 0; m < 16; ++m) {
      float total[2][16] = {};
      for (size_t k = 0; k < 16; ++k) {
        for (const int half : {0, 1}) {
          const float factor = bf16(tiles[a][m][k], half);
          for (size_t n = 0; n < 16; ++n) {
            total[half][n] = flushed(std::fma(factor, bf16(tiles[b][k][n], half), total[half][n]));
          }
        }
      }
      for (size_t n = 0; n < 16; ++n) {
        const float before = broken ? 0 : flushed(std::bit_cast<float>(tiles[sum][m][n]));
        tiles[sum][m][n] = std::bit_cast<uint32_t>(flushed(before + flushed(total[0][n] + total[1][n])));
      }
    }
  }
};

}  // namespace hs::test::half
