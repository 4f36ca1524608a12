// gemm on the CUDA device, where the op table's rows do not reach: operands that start anywhere between margins of NaN,
// as reading beside an operand spoils the result, and writing beside C is seen; products of many tiles; ReLU's masks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/naive.h"
#include "tests/support/checks.h"

namespace hs {

// kernels/gemm/gemm.cuh, which only .cu files can include.
void gemm_naive(const Gemm& call, int64_t row_begin, int64_t row_end);

namespace test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t margin = 64;  // elements; a multiple of 16 bytes in every type

size_t at(int64_t index) { return static_cast<size_t>(index); }

struct Types {
  DType in, out;
};
constexpr Types all_types[] = {{DType::f32, DType::f32},
                               {DType::f16, DType::f16},
                               {DType::f16, DType::f32},
                               {DType::bf16, DType::bf16},
                               {DType::bf16, DType::f32}};

struct Sizes {
  int64_t M, N, K;
};

struct Problem : Sizes {
  bool transpose_a = false, transpose_b = false;
  Types types = {DType::f32, DType::f32};
  bool with_bias = false;
  int64_t a_begin = 0, b_begin = 0, c_begin = 0;  // elements behind an aligned address
  Epilogue epilogue = Epilogue::none;

  GemmOptions options() const { return {.transpose_a = transpose_a, .transpose_b = transpose_b, .epilogue = epilogue}; }
  std::string text() const {
    return std::string(name(types.in)) + " to " + name(types.out) + " " + std::to_string(M) + "x" + std::to_string(N) +
           "x" + std::to_string(K) + " " + (transpose_a ? "T" : "N") + (transpose_b ? "T" : "N") +
           (with_bias ? " bias" : "") + " begins " + std::to_string(a_begin) + "," + std::to_string(b_begin) + "," +
           std::to_string(c_begin);
  }
};

// A tensor on the device with NaN before it and behind it. `begin`: how far it starts behind an aligned address.
struct Guarded {
  Tensor all, part;
  int64_t part_begin;

  Guarded(const Numbers& values, const Shape& shape, DType dtype, int64_t begin = 0, int64_t behind = margin)
      : part_begin(margin + begin) {
    const auto size = static_cast<int64_t>(values.size());
    std::vector<float> padded(at(part_begin + size + behind), std::numeric_limits<float>::quiet_NaN());
    std::copy(values.begin(), values.end(), padded.begin() + part_begin);
    all = cast(Tensor::from(padded, {static_cast<int64_t>(padded.size())}), dtype).to(Device::cuda);
    part = all.slice(part_begin, shape);
  }
  bool margins_untouched() const {
    Numbers outside = to_numbers(all.to(Device::cpu));
    const auto first = outside.begin() + part_begin;
    outside.erase(first, first + part.size());
    return std::all_of(outside.begin(), outside.end(), [](double value) { return std::isnan(value); });
  }
  Numbers values() const { return to_numbers(part.to(Device::cpu)); }
};

// The numbers of a problem, held exactly by its types.
struct Operands {
  Numbers a, b, bias;
};

Operands integers(const Problem& p) {
  RandomSequence random(RandomStream{});
  const auto draw = [&](int64_t size, DType dtype) {
    Numbers values(at(size));
    for (double& value : values) value = static_cast<double>(random.next() % 9) - 4;
    return rounded_to(dtype, values);
  };
  return {draw(p.M * p.K, p.types.in), draw(p.K * p.N, p.types.in), draw(p.with_bias ? p.N : 0, p.types.out)};
}

// op(A) op(B) + bias.
Numbers reference(const Problem& p, const Operands& x) {
  return naive_gemm(x.a, x.b, x.bias, p.M, p.N, p.K, p.options());
}

// The tensors of one call.
struct Call {
  const Problem& p;
  Guarded a, b, bias_memory, c;
  Tensor bias, mask, saved_mask, bias_gradient;
  const char* layout = nullptr;

  Call(const Problem& problem, const Operands& x)
      : p(problem),
        // They end where their memory does: every read beyond them is then noticed.
        a(x.a, p.transpose_a ? Shape{p.K, p.M} : Shape{p.M, p.K}, p.types.in, p.a_begin, 0),
        b(x.b, p.transpose_b ? Shape{p.N, p.K} : Shape{p.K, p.N}, p.types.in, p.b_begin, 0),
        bias_memory(x.bias, {static_cast<int64_t>(x.bias.size())}, p.types.out),
        c(Numbers(at(p.M * p.N), nan), {p.M, p.N}, p.types.out, p.c_begin) {
    if (p.with_bias) bias = bias_memory.part;
  }
  Gemm product() {
    return {.a = a.part,
            .b = b.part,
            .bias = bias,
            .options = p.options(),
            .c = c.part,
            .mask = mask,
            .saved_mask = saved_mask,
            .layout = layout,
            .bias_gradient = bias_gradient};
  }
  const VariantBase& run() { return gemm(product()); }
};

bool takes(const VariantBase& v, Call& call) {
  const auto& options = static_cast<const decltype(gemm)::Variant&>(v).options;
  return !options.supported || options.supported(call.product());
}

// Calls body(name) with each CUDA variant that takes the call forced in turn.
template <class Body>
void for_each_variant(Call& call, const Body& body) {
  for (const VariantBase* v = gemm.variants(); v; v = v->next) {
    if (v->device != Device::cuda || !takes(*v, call)) continue;
    const ForcedVariant forced(gemm, v->name);
    INFO("gemm=", std::string(v->name), " ", call.p.text());
    body(std::string(v->name));
  }
}

void check_integers(const Problem& p) {
  const Operands x = integers(p);
  const Numbers expected = rounded_to(p.types.out, reference(p, x));
  Call probe(p, x);
  for_each_variant(probe, [&](const std::string&) {
    Call call(p, x);
    call.run();
    const Comparison result = compare(call.c.values(), expected, tolerance::exact);
    INFO(result.summary);
    CHECK(result.passed);
    CHECK(call.c.margins_untouched());
  });
}

// Calls body(transpose_a, transpose_b) and body(types, transpose_a, transpose_b) with all there are.
template <class Body>
void for_transpositions(const Body& body) {
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) body(a, b);
  }
}
template <class Body>
void for_each_kind(const Body& body) {
  for (const Types types : all_types) {
    for_transpositions([&](bool a, bool b) { body(types, a, b); });
  }
}

}  // namespace

TEST_CASE("operands that start at any element") {
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    for (const auto& [a, b, c] : {Sizes{1, 0, 0}, Sizes{0, 1, 0}, Sizes{0, 0, 1}, Sizes{3, 5, 7}, Sizes{4, 2, 2}}) {
      check_integers({{72, 64, 80}, transpose_a, transpose_b, types, false, a, b, c});
    }
  });
}

TEST_CASE("products large enough for the large tiles of mma") {
  // 12 x 11 tiles of 128 x 128, the last ones ragged, and of K the second step.
  for_transpositions([&](bool transpose_a, bool transpose_b) {
    Problem p{{11 * 128 + 8, 10 * 128 + 8, 40}, transpose_a, transpose_b, all_types[transpose_a ? 1 : 4]};
    if (transpose_a && transpose_b) p.b_begin = 1;
    const Operands x = integers(p);
    Call call(p, x);
    const ForcedVariant mma(gemm, "mma");
    call.run();
    const Comparison result = compare(call.c.values(), rounded_to(p.types.out, reference(p, x)), tolerance::exact);
    INFO(p.text(), ": ", result.summary);
    CHECK(result.passed);
    CHECK(call.c.margins_untouched());
  });
}

TEST_CASE("ReLU with its mask, and its derivative with the bias gradient") {
  int forward = 0, backward = 0;
  for (const Types types : all_types) {
    for (const Sizes& size : {Sizes{1, 1, 1}, Sizes{37, 33, 5}, Sizes{70, 130, 6}, Sizes{9, 256, 8}}) {
      Problem p{size, false, false, types, true}, q{{size.M, size.N, 4}, false, true, types};
      p.epilogue = Epilogue::relu;
      q.epilogue = Epilogue::relu_backward;
      const Operands x = integers(p), dx = integers(q);
      const Numbers sums = reference(p, x);
      Numbers positive = sums, gradient = reference(q, dx), bias_gradient(at(q.N));
      for (size_t i = 0; i < sums.size(); ++i) {
        positive[i] = std::max(sums[i], 0.0);
        if (!(sums[i] > 0)) gradient[i] = 0;
        bias_gradient[i % at(q.N)] += gradient[i];
      }
      Call probe(p, x);
      probe.mask = gemm_mask(p.M, p.N, Device::cuda);
      for_each_variant(probe, [&](const std::string& variant) {
        const Poisoned poisoned;  // the mask is all ones, the bias gradient NaN
        Call call(p, x);
        call.mask = gemm_mask(p.M, p.N, Device::cuda);
        const VariantBase& maker = call.run();
        ++forward;
        CHECK(compare(call.c.values(), rounded_to(types.out, positive), tolerance::exact).passed);
        CHECK(call.c.margins_untouched());
        if (variant != "cublaslt") {  // which keeps the bits in an order of their own
          const std::vector<uint8_t> bits = call.mask.to_vector<uint8_t>();
          int64_t wrong = 0;
          for (int64_t i = 0; i < static_cast<int64_t>(bits.size()) * 8; ++i) {
            const int64_t row_bits = gemm_mask_row(p.N) * 8, row = i / row_bits, column = i % row_bits;
            const bool expected = column < p.N && sums[at(row * p.N + column)] > 0;
            wrong += (bits[at(i / 8)] >> i % 8 & 1) != expected;
          }
          CHECK(wrong == 0);
        }

        Call derivative(q, dx);
        derivative.saved_mask = call.mask;
        derivative.layout = maker.layout;
        derivative.bias_gradient = Tensor::empty({q.N}, types.out, Device::cuda);
        if (variant == "cublaslt" && !takes(maker, derivative)) return;  // it may make masks that it does not read
        derivative.run();
        ++backward;
        CHECK(compare(derivative.c.values(), rounded_to(types.out, gradient), tolerance::exact).passed);
        CHECK(derivative.c.margins_untouched());
        CHECK(compare(to_numbers(derivative.bias_gradient.to(Device::cpu)), rounded_to(types.out, bias_gradient),
                      tolerance::exact)
                  .passed);
      });
    }
  }
  CHECK(forward >= 5 * 4);
#ifdef HALFSTEP_TEST_EMULATED
  CHECK(backward == forward);
#else
  WARN(backward == forward);  // what a device's library refuses is skipped
#endif
}

TEST_CASE("a mask is refused by the variants that would misread it") {
  Problem p{{9, 40, 4}, false, true};
  p.epilogue = Epilogue::relu_backward;
  const Operands x = integers(p);
  const std::pair<const char*, const char*> strangers[] = {{"naive", "cublaslt"}, {"cublaslt", "rows"}};
  for (const auto& [variant, layout] : strangers) {
    Call call(p, x);
    call.saved_mask = gemm_mask(p.M, p.N, Device::cuda);
    call.bias_gradient = Tensor::empty({p.N}, DType::f32, Device::cuda);
    call.layout = layout;
    const ForcedVariant forced(gemm, variant);
    const std::string refused = std::string("gemm: no cuda kernel named ") + variant +
                                " takes (f32(9, 4), f32(40, 4), u8(9, 16), f32(40), f32(9, 40)) with what was kept in "
                                "layout " +
                                layout;
    CHECK_THROWS_WITH_AS(call.run(), doctest::Contains(refused.c_str()), Error);
    for (const double value : call.c.values()) REQUIRE(std::isnan(value));  // as it was
  }
}

TEST_CASE("the ReLU of the naive kernel keeps NaN") {  // a library's may make it 0
  Problem p{{3, 40, 2}};
  p.epilogue = Epilogue::relu;
  Operands x = integers(p);
  x.a[2] = nan;  // row 1
  Call call(p, x);
  call.mask = gemm_mask(p.M, p.N, Device::cuda);
  const ForcedVariant naive(gemm, "naive");
  call.run();
  const Numbers c = call.c.values();
  for (int64_t i = 0; i < p.M * p.N; ++i) REQUIRE(std::isnan(c[at(i)]) == (i / p.N == 1));
}

TEST_CASE("the naive kernel computes the rows that it is asked for, and no others") {
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu, Epilogue::relu_backward}) {
    for (const bool transpose_a : {false, true}) {
      Problem p{{20, 50, 4}, transpose_a};
      p.epilogue = epilogue;
      const int64_t begin = 7, end = 18;
      const Operands x = integers(p);
      Call call(p, x);
      const auto mask_size = at(p.M * gemm_mask_row(p.N));
      call.mask =
          Tensor::from(std::vector<uint8_t>(mask_size, 255), {static_cast<int64_t>(mask_size)}).to(Device::cuda);
      call.saved_mask = call.mask;
      call.bias_gradient = Tensor::empty({p.N}, DType::f32, Device::cuda);
      gemm_naive(call.product(), begin, end);

      Numbers expected = reference(p, x), sums(at(p.N));
      for (int64_t i = 0; i < p.M * p.N; ++i) {
        double& value = expected[at(i)];
        if (epilogue == Epilogue::relu) value = std::max(value, 0.0);
        if (i / p.N < begin || i / p.N >= end) {
          value = nan;
        } else {
          sums[at(i % p.N)] += value;
        }
      }
      CHECK(compare(call.c.values(), expected, tolerance::exact, {.nan_expected = true}).passed);
      if (epilogue == Epilogue::relu_backward) {
        CHECK(compare(to_numbers(call.bias_gradient.to(Device::cpu)), sums, tolerance::exact).passed);
      }
      const std::vector<uint8_t> bits = call.mask.to_vector<uint8_t>();
      for (int64_t i = 0; i < static_cast<int64_t>(mask_size); ++i) {
        const int64_t row = i / gemm_mask_row(p.N);
        if (epilogue != Epilogue::relu || row < begin || row >= end) REQUIRE(bits[at(i)] == 255);
      }
    }
  }
}

}  // namespace test
}  // namespace hs
