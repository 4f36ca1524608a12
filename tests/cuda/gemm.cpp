// gemm on the CUDA device, where the op table's rows do not reach: operands that start anywhere between margins, as
// reading beside an operand spoils the result, and writing beside C is seen; products of many tiles; ReLU's masks. Most
// of it as rows of these tests alone, on whole numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/cast/cast.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/checks.h"
#include "tests/support/random_tensor.h"

namespace hs {

// kernels/gemm/gemm.cuh, which only .cu files can include.
void gemm_naive(const Gemm& call, int64_t row_begin, int64_t row_end);

namespace test {
namespace {

constexpr int64_t margin = 64;  // elements; a multiple of 16 bytes in every type

struct Sizes {
  int64_t M, N, K;
};
struct Begins {  // elements behind an aligned address
  int64_t a = 0, b = 0, c = 0;
};

// f32 also for factors of 16 bits, if it is wide.
DType type_of_result(const Tensor& factor, bool wide) {
  return wide && size_of(factor.dtype()) == 2 ? DType::f32 : factor.dtype();
}

// A copy behind NaN, which ends where its memory does: every read beyond it is noticed. REQUIRES: a Poisoned lives
Tensor moved(const Tensor& x, int64_t begin) {
  const int64_t before = margin + begin;
  Tensor copy = Tensor::empty({before + x.size()}, x.dtype(), x.device()).slice(before, x.shape());
  copy.copy_from(x);
  return copy;
}

OpCase product(const Sizes& sizes, bool transpose_a, bool transpose_b, bool wide, const Begins& begins) {
  const int64_t M = sizes.M, N = sizes.N, K = sizes.K;
  return {.name = std::string("gemm ") + (transpose_a ? "T" : "N") + (transpose_b ? "T" : "N") + (wide ? " wide" : "") +
                  " begins " + std::to_string(begins.a) + "," + std::to_string(begins.b) + "," +
                  std::to_string(begins.c),
          .shapes = {transpose_a ? Shape{K, M} : Shape{M, K}, transpose_b ? Shape{N, K} : Shape{K, N}},
          .run =
              [=](const Inputs& in) {  // C, and the zeros beside it
                const int64_t before = margin + begins.c;
                Tensor all = Tensor::zeros({before + M * N + margin}, type_of_result(in[0], wide), in[0].device());
                Tensor c = all.slice(before, {M, N});
                gemm({.a = moved(in[0], begins.a),
                      .b = moved(in[1], begins.b),
                      .options = {.transpose_a = transpose_a, .transpose_b = transpose_b},
                      .c = c});
                return all;
              },
          .differentiable = false};
}

// Of whole numbers: ReLU with its mask, and its derivative with the bias gradient.
struct Masked {
  Numbers c, gradient, bias_gradient;
  std::vector<uint8_t> mask;
};
Masked masked(const Sizes& sizes, Device device, DType in, DType out) {
  const auto [M, N, K] = sizes;
  uint32_t which = 0;
  const auto numbers = [&](const Shape& shape, DType type) {
    return cast(whole_numbers(shape, ++which), type).to(device);
  };
  Tensor c = Tensor::empty({M, N}, out, device), dc = c.empty_like(), dbias = Tensor::empty({N}, out, device);
  Tensor mask = gemm_mask(M, N, device);
  const VariantBase& maker = gemm({.a = numbers({M, K}, in),
                                   .b = numbers({K, N}, in),
                                   .bias = numbers({N}, out),
                                   .options = {.epilogue = Epilogue::relu},
                                   .c = c,
                                   .mask = mask});
  gemm({.a = numbers({M, 4}, in),
        .b = numbers({N, 4}, in),
        .options = {.transpose_b = true, .epilogue = Epilogue::relu_backward},
        .c = dc,
        .saved_mask = mask,
        .relu_output = c,  // for a library that does not read the masks that it makes
        .layout = maker.layout,
        .bias_gradient = dbias});
  const auto on_cpu = [](const Tensor& x) { return to_numbers(x.to(Device::cpu)); };
  return {on_cpu(c), on_cpu(dc), on_cpu(dbias), mask.to_vector<uint8_t>()};
}

void check_exact(const OpCase& row) {
  const Poisoned poisoned;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const RowRun how = run_on(Device::cuda, dtype);
    guard_row(row, how, [&] { check_integers(row, how); });
  }
}

// Calls body(transpose_a, transpose_b) with all there are.
template <class Body>
void for_transpositions(const Body& body) {
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) body(a, b);
  }
}

}  // namespace

TEST_CASE("operands that start at any element") {
  for (const bool wide : {false, true}) {
    for_transpositions([&](bool transpose_a, bool transpose_b) {
      for (const Begins& begins : {Begins{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {3, 5, 7}, {4, 2, 2}}) {
        check_exact(product({72, 64, 80}, transpose_a, transpose_b, wide, begins));
      }
    });
  }
}

TEST_CASE("products large enough for the large tiles of mma") {
  const Poisoned poisoned;
  // 12 x 11 tiles of 128 x 128, the last ones ragged, and of K the second step.
  for_transpositions([&](bool transpose_a, bool transpose_b) {
    const OpCase row = product({11 * 128 + 8, 10 * 128 + 8, 40}, transpose_a, transpose_b, !transpose_a,
                               {.b = transpose_a && transpose_b});
    RowRun how = run_on(Device::cuda, transpose_a ? DType::f16 : DType::bf16);
    how.integers = true;
    const Tensor exact = run_row(row, reference_run(how))[0];
    const ForcedVariant mma(gemm, "mma");
    const Tensor got = run_row(row, how)[0];
    INFO(row.name);
    CHECK(to_numbers(got) == rounded_to(got.dtype(), to_numbers(exact)));
  });
}

TEST_CASE("ReLU with its mask, and its derivative with the bias gradient") {
  const Poisoned poisoned;
  constexpr std::pair<DType, DType> all_types[] = {{DType::f32, DType::f32},
                                                   {DType::f16, DType::f16},
                                                   {DType::f16, DType::f32},
                                                   {DType::bf16, DType::bf16},
                                                   {DType::bf16, DType::f32}};
  for (const Sizes& sizes : {Sizes{1, 1, 1}, {37, 33, 5}, {70, 130, 6}, {9, 256, 8}}) {
    const Masked expected = masked(sizes, Device::cpu, DType::f32, DType::f32);
    for (const auto& [in, out] : all_types) {
      for (const char* variant : {"", "naive", "unfused"}) {  // the first: cuBLASLt, which has masks of its own
        INFO(variant, ", ", name(in), " to ", name(out), ", ", sizes.M, "x", sizes.N, "x", sizes.K);
        const ForcedVariant forced(gemm, *variant ? variant : nullptr);
        const Masked got = masked(sizes, Device::cuda, in, out);
        CHECK(got.c == rounded_to(out, expected.c));
        CHECK(got.gradient == rounded_to(out, expected.gradient));
        CHECK(got.bias_gradient == rounded_to(out, expected.bias_gradient));
        CHECK((!*variant || got.mask == expected.mask));
      }
    }
  }
}

TEST_CASE("a mask is refused by the variants that would misread it") {
  const Poisoned poisoned;
  const Tensor a = Tensor::zeros({9, 4}, DType::f32, Device::cuda),
               b = Tensor::zeros({40, 4}, DType::f32, Device::cuda);
  Tensor c = Tensor::empty({9, 40}, DType::f32, Device::cuda), dbias = Tensor::empty({40}, DType::f32, Device::cuda);
  for (const auto& [variant, layout] : {std::pair{"naive", "cublaslt"}, {"cublaslt", "rows"}}) {
    const Gemm call{.a = a,
                    .b = b,
                    .options = {.transpose_b = true, .epilogue = Epilogue::relu_backward},
                    .c = c,
                    .saved_mask = gemm_mask(9, 40, Device::cuda),
                    .layout = layout,
                    .bias_gradient = dbias};
    const ForcedVariant forced(gemm, variant);
    const std::string refused = std::string("gemm: no cuda kernel named ") + variant +
                                " takes (f32(9, 4), f32(40, 4), u8(9, 16), f32(40), f32(9, 40)) with what was kept in "
                                "layout " +
                                layout;
    CHECK_THROWS_WITH_AS(gemm(call), doctest::Contains(refused.c_str()), Error);
    for (const double value : to_numbers(c.to(Device::cpu))) REQUIRE(std::isnan(value));  // as it was
  }
}

TEST_CASE("the naive kernel computes the rows that it is asked for, and no others; its ReLU keeps NaN") {
  const Poisoned poisoned;
  constexpr int64_t M = 20, N = 50, K = 4, begin = 7, end = 18;
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu, Epilogue::relu_backward}) {
    for (const bool transpose_a : {false, true}) {
      Tensor a = whole_numbers(transpose_a ? Shape{K, M} : Shape{M, K}, 1);
      a.mutable_data<float>()[transpose_a ? 9 : 9 * K] = std::numeric_limits<float>::quiet_NaN();  // in row 9
      const Tensor b = whole_numbers({K, N}, 2);
      Tensor expected = Tensor::empty({M, N}, DType::f32), c = expected.to(Device::cuda);
      gemm({.a = a, .b = b, .options = {.transpose_a = transpose_a}, .c = expected});
      const auto mask_row = gemm_mask_row(N);
      const std::vector<uint8_t> ones(static_cast<size_t>(M * mask_row), 255);
      Tensor mask = Tensor::from(ones, {M, mask_row}).to(Device::cuda),
             dbias = Tensor::empty({N}, DType::f32, Device::cuda);
      gemm_naive({.a = a.to(Device::cuda),
                  .b = b.to(Device::cuda),
                  .options = {.transpose_a = transpose_a, .epilogue = epilogue},
                  .c = c,
                  .mask = mask,
                  .saved_mask = mask,
                  .bias_gradient = dbias},
                 begin, end);
      Numbers values = to_numbers(expected), sums(static_cast<size_t>(N));
      for (int64_t i = 0; i < M * N; ++i) {
        double& value = values[static_cast<size_t>(i)];
        if (i / N < begin || i / N >= end) {
          value = std::numeric_limits<double>::quiet_NaN();
        } else {
          if (epilogue == Epilogue::relu && value < 0) value = 0;
          sums[static_cast<size_t>(i % N)] += value;
        }
      }
      const CompareOptions nan{.nan_expected = true};
      CHECK(compare(to_numbers(c.to(Device::cpu)), values, tolerance::exact, nan).passed);
      if (epilogue == Epilogue::relu_backward) {
        CHECK(compare(to_numbers(dbias.to(Device::cpu)), sums, tolerance::exact, nan).passed);
      }
      const std::vector<uint8_t> bits = mask.to_vector<uint8_t>();
      for (int64_t i = 0; i < M * mask_row; ++i) {
        const bool is_asked_for = epilogue == Epilogue::relu && i / mask_row >= begin && i / mask_row < end;
        if (!is_asked_for) REQUIRE(bits[static_cast<size_t>(i)] == 255);
      }
    }
  }
}

}  // namespace test
}  // namespace hs
