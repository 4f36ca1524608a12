// What the op table does not see on the CPU: the conversions of arrays to f16 and bf16 and back against the definition,
// gemm with alpha, beta, a mask and f32 results against plain loops in f64, for any number of threads, and where a NaN
// goes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu_features.h"
#include "engine/error.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/pack.h"
#include "kernels/examples/naive.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/emulated_tiles.h"
#include "tests/support/variants.h"

namespace hs::test {
namespace {

Numbers numbers(const Tensor& x) { return cast(x, DType::f64).to_vector<double>(); }

// Values in [-1, 1), or whole numbers from -4 to 4, rounded to `dtype`.
Tensor random_tensor(const Shape& shape, DType dtype, uint32_t purpose, bool integers = false) {
  // Tests ask for the same tensors again and again, and drawing them takes longer than the kernels do.
  static std::map<std::string, Tensor> drawn;
  Tensor& tensor = drawn[fmt::format("{} {} {}", shape.to_string(), purpose, integers)];
  if (!tensor.defined()) {
    const RandomStream stream{2027, RandomPurpose::init, purpose, 5, 0};
    std::vector<float> values(static_cast<size_t>(shape.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = random_bits(stream, i);
      values[i] = integers ? static_cast<float>(bits % 9) - 4 : 2 * to_unit_float(bits) - 1;
    }
    tensor = Tensor::from(values, shape);
  }
  return cast(tensor, dtype).clone();
}

Numbers absolute(Numbers values) {
  for (double& value : values) value = std::fabs(value);
  return values;
}

double roundoff(DType dtype) { return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : tolerance::u32; }
Tolerance frobenius(DType dtype, size_t size) {
  if (size < 16) return {};  // a norm speaks of many roundings; of a few, each has its own bound
  return {0, 0, dtype == DType::f16 ? 4e-4 : dtype == DType::bf16 ? 3.2e-3 : 2e-6};
}

// Sums of `terms` products, rounded to the type of `got`.
void check_sums(const std::string& what, const Tensor& got, const Numbers& expected, const Numbers& magnitude,
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

// Calls body(name) with each CPU variant of the slot forced in turn. One that does not support the arguments, because
// of its types, its shapes or this machine, is passed over.
template <class Slot, class Body>
void with_each_variant(Slot& slot, const Body& body) {
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (v->device != Device::cpu) continue;
    slot.force(v->name);
    try {
      body(std::string(v->name));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::forced_variant) FAIL(std::string(error.what()));
    }
    slot.force(nullptr);
  }
}

struct Product {
  int64_t M, N, K;
  GemmOptions options;
  bool bias;
  Shape a() const { return options.transpose_a ? Shape{K, M} : Shape{M, K}; }
  Shape b() const { return options.transpose_b ? Shape{N, K} : Shape{K, N}; }
  std::string name(DType in, DType out) const {
    return fmt::format("gemm {}{} {}x{}x{} {} -> {} alpha {} beta {}", options.transpose_a ? "T" : "N",
                       options.transpose_b ? "T" : "N", M, N, K, hs::name(in), hs::name(out), options.alpha,
                       options.beta);
  }
};

std::vector<Product> products() {
  std::vector<Product> all;
  const int64_t sizes[][3] = {{1, 1, 1},
                              {5, 3, 7},
                              {37, 19, 65},
                              {64, 72, 140},
                              {130, 65, 33},
                              {33, 10, 300},
                              {9, 200, 10},
                              {270, 70, 17},
                              {0, 4, 3},
                              {3, 4, 0},
                              // Few tiles and a long K: the sums of parts of K are added.
                              {64, 10, 1101},
                              {40, 70, 900}};
  for (const auto& [M, N, K] : sizes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        all.push_back({M, N, K, {.transpose_a = ta, .transpose_b = tb}, true});
        const float beta = ta ? 1.0f : -2.0f;
        all.push_back({M, N, K, {.transpose_a = ta, .transpose_b = tb, .alpha = 0.5f, .beta = beta}, tb});
      }
    }
  }
  return all;
}

Tensor run_product(const Product& p, DType in, DType out, bool integers = false) {
  Tensor c = random_tensor({p.M, p.N}, out, 4, integers);
  gemm({.a = random_tensor(p.a(), in, 1, integers),
        .b = random_tensor(p.b(), in, 2, integers),
        .bias = p.bias ? random_tensor({p.N}, out, 3, integers) : Tensor(),
        .options = p.options,
        .c = c});
  return c;
}

constexpr std::pair<DType, DType> gemm_types[] = {  // of the factors and of the result
    {DType::f32, DType::f32},
    {DType::f16, DType::f16},
    {DType::f16, DType::f32},
    {DType::bf16, DType::bf16},
    {DType::bf16, DType::f32}};

// The same in f64; of absolute values if `magnitude`.
Numbers expected_product(const Product& p, DType in, DType out, bool integers, bool magnitude) {
  Numbers a = numbers(random_tensor(p.a(), in, 1, integers)), b = numbers(random_tensor(p.b(), in, 2, integers));
  Numbers bias = p.bias ? numbers(random_tensor({p.N}, out, 3, integers)) : Numbers();
  Numbers before = numbers(random_tensor({p.M, p.N}, out, 4, integers));
  GemmOptions options = p.options;
  if (magnitude) {
    for (Numbers* values : {&a, &b, &bias, &before}) *values = absolute(*values);
    options.beta = std::fabs(options.beta);
  }
  Numbers c = naive_gemm(a, b, bias, p.M, p.N, p.K, options);
  for (size_t i = 0; i < c.size(); ++i) c[i] += options.beta * before[i];
  return c;
}

}  // namespace

TEST_CASE("arrays of f16 and bf16 widen and narrow as engine/float16.h says") {
  std::vector<Half> halves(65536);
  std::vector<BFloat16> brains(65536);
  for (uint32_t i = 0; i < 65536; ++i) halves[i].bits = brains[i].bits = static_cast<uint16_t>(i);
  std::vector<float> from_half(65536), from_brain(65536);
  widen(halves.data(), from_half.data(), 65536);
  widen(brains.data(), from_brain.data(), 65536);
  int wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const bool signalling = (i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0 && !(i & 0x200);
    wrong += signalling ? !std::isnan(from_half[i])
                        : std::bit_cast<uint32_t>(from_half[i]) != std::bit_cast<uint32_t>(to_float(halves[i]));
    wrong += std::bit_cast<uint32_t>(from_brain[i]) != std::bit_cast<uint32_t>(to_float(brains[i]));
  }
  CHECK(wrong == 0);
  // Every upper half of a float, with the lower halves that decide how it is rounded.
  for (const uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> floats(65536);
    for (uint32_t i = 0; i < 65536; ++i) floats[i] = std::bit_cast<float>(i << 16 | low);
    narrow(floats.data(), halves.data(), 65536);
    narrow(floats.data(), brains.data(), 65536);
    for (uint32_t i = 0; i < 65536; ++i) {
      wrong += halves[i].bits != to_half(floats[i]).bits;
      wrong += brains[i].bits != to_bfloat16(floats[i]).bits;
    }
    CHECK(wrong == 0);
  }
  for (int64_t count = 0; count < 40; ++count) {  // tails: nothing beyond the end is written
    std::vector<float> floats(64, 1.5f);
    std::vector<Half> half(64, Half{0x1234});
    std::vector<BFloat16> brain(64, BFloat16{0x1234});
    narrow(floats.data(), half.data(), count);
    narrow(floats.data(), brain.data(), count);
    for (int64_t i = 0; i < 64; ++i) {
      const size_t at = static_cast<size_t>(i);
      wrong += half[at].bits != (i < count ? 0x3e00 : 0x1234);
      wrong += brain[at].bits != (i < count ? 0x3fc0 : 0x1234);
    }
    std::vector<float> wide(64, 7.0f);
    widen(half.data(), wide.data(), count);
    for (int64_t i = 0; i < 64; ++i) wrong += wide[static_cast<size_t>(i)] != (i < count ? 1.5f : 7.0f);
  }
  CHECK(wrong == 0);
}

TEST_CASE("interleave and transpose") {
  std::vector<uint16_t> matrix(5 * 40);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i + 1);
  for (const int64_t rows : {1, 2, 5}) {
    for (const int64_t count : {1, 16, 23, 40}) {
      std::vector<uint32_t> pairs(3 * 50, 7);
      interleave_rows(matrix.data(), 40, rows, count, pairs.data(), 50);
      for (int64_t i = 0; i < 150; ++i) {
        const int64_t row = i / 50, column = i % 50;
        const auto value = [&](int64_t r) {
          return column < count && r < rows ? uint32_t{matrix[static_cast<size_t>(r * 40 + column)]} : 0;
        };
        const bool written = 2 * row < rows && column < round_up(count, 16);
        CHECK(pairs[static_cast<size_t>(i)] == (written ? value(2 * row) | value(2 * row + 1) << 16 : 7));
      }
    }
  }
  std::vector<uint32_t> from(32 * 50), to(48 * 40);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i);
  transpose(from.data(), 50, 30, 33, to.data(), 40);
  for (size_t i = 0; i < 32; ++i) {
    for (size_t j = 0; j < 48; ++j) CHECK(to[j * 40 + i] == from[i * 50 + j]);
  }
}

TEST_CASE("the self-test of AMX accepts tiles that multiply and refuses tiles that forget") {
  CHECK(amx::tiles_multiply<EmulatedTiles>());
  EmulatedTiles::broken = true;
  CHECK_FALSE(amx::tiles_multiply<EmulatedTiles>());
  EmulatedTiles::broken = false;
  CHECK(amx::is_usable() <= cpu_features().amx_bf16);
}

TEST_CASE("gemm: every variant is within tolerance of the f64 reference, and exact on integers") {
  for (const Product& p : products()) {
    for (const auto& types : gemm_types) {
      const DType in = types.first, out = types.second;  // a lambda may not capture structured bindings
      const Numbers expected = expected_product(p, in, out, false, false);
      const Numbers magnitude = expected_product(p, in, out, false, true);
      const Numbers exact = expected_product(p, in, out, true, false);
      std::vector<float> wanted(exact.begin(), exact.end());
      for (float& value : wanted) value += 0.0f;  // -0 and 0 are the same integer
      const Tensor integers = cast(Tensor::from(wanted, {p.M, p.N}), out);
      with_each_variant(gemm, [&](const std::string& variant) {
        check_sums(p.name(in, out) + " " + variant, run_product(p, in, out), expected, magnitude, p.K + 2);
        const Tensor got = cast(run_product(p, in, out, true), DType::f32);
        for (int64_t i = 0; i < got.size(); ++i) wanted[static_cast<size_t>(i)] = got.data<float>()[i] + 0.0f;
        INFO(p.name(in, out), " ", variant, " on integers");
        CHECK(same_bytes(cast(Tensor::from(wanted, {p.M, p.N}), out), integers));
      });
    }
  }
}

TEST_CASE("gemm: 1, 2 and 5 threads give the same bits") {
  for (const Product& p : products()) {
    for (const auto& types : gemm_types) {
      with_each_variant(gemm, [&](const std::string& variant) {
        Tensor of_one;
        for (const int threads : {1, 2, 5}) {
          set_threads(threads);
          const Tensor c = run_product(p, types.first, types.second);
          if (!of_one.defined()) of_one = c;
          INFO(p.name(types.first, types.second), " ", variant, " on ", threads, " threads");
          CHECK(same_bytes(c, of_one));
        }
      });
    }
  }
  set_threads(0);
}

TEST_CASE("gemm: ReLU with its mask, and its backward with the sum for the bias") {
  for (const auto& [M, N, K] :
       {std::array<int64_t, 3>{5, 3, 7}, {64, 128, 40}, {33, 130, 10}, {70, 200, 64}, {40, 70, 900}}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      const Product p{M, N, K, {.epilogue = Epilogue::relu}, true};
      const Numbers before = expected_product(p, type, type, false, false);
      const Numbers magnitude = expected_product(p, type, type, false, true);
      Numbers after = before;
      for (double& value : after) value = std::max(value, 0.0);
      int written = 0, read = 0;  // masks
      with_each_variant(gemm, [&](const std::string& variant) {
        const std::string what = fmt::format("{} {}", p.name(type, type), variant);
        Tensor mask = gemm_mask(M, N, Device::cpu), h = Tensor::empty({M, N}, type);
        const VariantBase& wrote = gemm({.a = random_tensor(p.a(), type, 1),
                                         .b = random_tensor(p.b(), type, 2),
                                         .bias = random_tensor({N}, type, 3),
                                         .options = p.options,
                                         .c = h,
                                         .mask = mask});
        ++written;
        CHECK(wrote.name == variant);
        check_sums(what, h, after, magnitude, K + 1);
        // The gate of the backward pass is the mask: exactly where h > 0.
        const Tensor dy = random_tensor({M, K}, type, 5), w = random_tensor({N, K}, type, 6);
        const GemmOptions back{.transpose_b = true, .epilogue = Epilogue::relu_backward};
        Tensor sums = Tensor::empty({N}, type), dh = Tensor::empty({M, N}, type);
        gemm({.a = dy,
              .b = w,
              .options = back,
              .c = dh,
              .saved_mask = mask,
              .layout = wrote.layout,
              .bias_gradient = sums});
        ++read;
        const GemmOptions plain{.transpose_b = true};
        Numbers gated = naive_gemm(numbers(dy), numbers(w), {}, M, N, K, plain);
        const Numbers size = naive_gemm(absolute(numbers(dy)), absolute(numbers(w)), {}, M, N, K, plain);
        const Numbers open = numbers(h), stored = numbers(dh);
        Numbers total(static_cast<size_t>(N)), total_size(static_cast<size_t>(N));
        for (size_t i = 0; i < gated.size(); ++i) {
          if (!(open[i] > 0)) gated[i] = 0;
          total[i % static_cast<size_t>(N)] += stored[i];
          total_size[i % static_cast<size_t>(N)] += std::fabs(stored[i]);
        }
        check_sums(what + " backward", dh, gated, size, K);
        check_sums(what + " bias gradient", sums, total, total_size, 1);
        // Bits beyond N are zero.
        for (int64_t i = 0; i < M; ++i) {
          const uint8_t* row = mask.data<uint8_t>() + i * gemm_mask_row(N);
          for (int64_t j = N; j < 8 * gemm_mask_row(N); ++j) CHECK((row[j / 8] >> (j % 8) & 1) == 0);
        }
      });
      CHECK(written > 0);
      CHECK(read == written);
    }
  }
}

TEST_CASE("gemm: a NaN stays in its row") {
  for (const auto& [M, N, K] : {std::array<int64_t, 3>{64, 128, 300}, {270, 70, 17}}) {
    for (const bool ta : {false, true}) {
      for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
        const Product p{M, N, K, {.transpose_a = ta, .transpose_b = !ta}, true};
        with_each_variant(gemm, [&](const std::string& variant) {
          INFO(p.name(type, type), " ", variant);
          Tensor a = random_tensor(p.a(), type, 1), c = Tensor::empty({M, N}, type);
          const int64_t row = M - 1, place = ta ? (K / 2) * M + row : row * K + K / 2;
          if (type == DType::f32) {
            a.mutable_data<float>()[place] = std::numeric_limits<float>::quiet_NaN();
          } else {
            static_cast<uint16_t*>(a.mutable_raw_data())[place] = 0x7fff;  // a NaN in both types
          }
          gemm({.a = a, .b = random_tensor(p.b(), type, 2), .options = p.options, .c = c});
          const Numbers values = numbers(c);
          int64_t wrong = 0;
          for (int64_t i = 0; i < M * N; ++i) wrong += std::isnan(values[static_cast<size_t>(i)]) != (i / N == row);
          CHECK(wrong == 0);
        });
      }
    }
  }
}

TEST_CASE("conv2d: a NaN in the image or the weights reaches exactly the outputs that use it") {
  struct Convolution {
    Shape x;
    int64_t OC;
    Conv2dOptions options;
  };
  for (const auto& [shape, OC, options] : {Convolution{{2, 5, 5, 1}, 2, {}},
                                           {{17, 9, 9, 1}, 32, {}},
                                           {{2, 7, 7, 6}, 20, {.stride = 2, .padding = 1}},
                                           {{2, 8, 9, 32}, 64, {}},
                                           {{2, 6, 7, 32}, 70, {.padding = 1}},
                                           {{2, 7, 6, 96}, 17, {.stride = 2, .padding = 2}},
                                           {{2, 6, 6, 64}, 40, {.kernel_h = 5, .kernel_w = 3, .padding = 2}},
                                           {{2, 8, 8, 40}, 33, {.kernel_h = 3, .kernel_w = 2, .padding = 1}}}) {
    for (const DType type : {DType::f16, DType::bf16}) {
      for (const bool in_image : {true, false}) {
        Tensor x = random_tensor(shape, type, 11), bias = random_tensor({OC}, type, 13);
        Tensor weight = random_tensor({options.kernel_h * options.kernel_w * shape[3], OC}, type, 12);
        Tensor& target = in_image ? x : weight;
        static_cast<uint16_t*>(target.mutable_raw_data())[target.size() / 2] = 0x7fff;
        const Numbers wanted = naive_conv2d(numbers(x), numbers(weight), numbers(bias), shape, OC, options);
        with_each_variant(conv2d_forward, [&](const std::string& variant) {
          const Numbers got = numbers(conv2d(x, weight, bias, options));
          int64_t wrong = 0;
          // A NaN weight may or may not meet the zeros of the padding.
          const bool exactly = in_image || options.padding == 0;
          for (size_t i = 0; i < got.size(); ++i) {
            if (exactly || std::isnan(wanted[i])) wrong += std::isnan(got[i]) != std::isnan(wanted[i]);
          }
          INFO(shape.to_string(), " -> ", OC, " ", std::string(name(type)), " ", variant);
          INFO((in_image ? "in the image" : "in a weight"));
          CHECK(wrong == 0);
        });
      }
    }
  }
}

}  // namespace hs::test
