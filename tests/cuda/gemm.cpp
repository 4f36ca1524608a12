// gemm on the CUDA device: every variant, all four transpositions, every pair of types, against plain loops in f64.
// Operands lie between margins of NaN: reading beside an operand spoils the result, writing beside C is seen, and C,
// which is NaN before a call with beta = 0, must not be read.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/measure/observers/kernel_trace.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/naive.h"
#include "kernels/feed_forward/feed_forward.h"
#include "tests/support/child_process.h"
#include "tests/support/emulated.h"
#include "tests/support/sanitized.h"
#include "tests/support/variants.h"

namespace hs {

using bench::measure::KernelCall;
using bench::measure::KernelTrace;

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
  bool add = false;  // beta = 1
  float alpha = 1;
  int64_t a_begin = 0, b_begin = 0, c_begin = 0;  // elements behind an aligned address
  bool at_end = false;  // A and B end where their memory does: AddressSanitizer then sees every read beyond them
  Epilogue epilogue = Epilogue::none;

  GemmOptions options() const {
    return {.transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .alpha = alpha,
            .beta = add ? 1.0f : 0.0f,
            .epilogue = epilogue};
  }
  std::string text() const {
    return std::string(name(types.in)) + " to " + name(types.out) + " " + std::to_string(M) + "x" + std::to_string(N) +
           "x" + std::to_string(K) + " " + (transpose_a ? "T" : "N") + (transpose_b ? "T" : "N") +
           (with_bias ? " bias" : "") + (add ? " adding" : "") + " begins " + std::to_string(a_begin) + "," +
           std::to_string(b_begin) + "," + std::to_string(c_begin);
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
  Numbers a, b, bias, c;  // c: what C holds before; NaN if it must not be read
};

// Calls value() for each number.
template <class Value>
Operands make_operands(const Problem& p, const Value& value) {
  Operands made{Numbers(at(p.M * p.K)), Numbers(at(p.K * p.N)), Numbers(at(p.with_bias ? p.N : 0)),
                Numbers(at(p.M * p.N), nan)};
  std::generate(made.a.begin(), made.a.end(), value);
  std::generate(made.b.begin(), made.b.end(), value);
  std::generate(made.bias.begin(), made.bias.end(), value);
  if (p.add) std::generate(made.c.begin(), made.c.end(), value);
  made.a = rounded_to(p.types.in, made.a);
  made.b = rounded_to(p.types.in, made.b);
  made.bias = rounded_to(p.types.out, made.bias);
  made.c = rounded_to(p.types.out, made.c);
  return made;
}

class Generator {
 public:
  double integer() { return static_cast<double>(random_bits(stream_, next_++) % 9) - 4; }  // -4 .. 4
  double uniform() { return 2.0 * to_unit_float(random_bits(stream_, next_++)) - 1; }      // [-1, 1)

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

Operands integers(const Problem& p) {
  Generator generator;
  return make_operands(p, [&] { return generator.integer(); });
}

// alpha op(A) op(B) + beta C + bias; `absolute` of the magnitudes.
Numbers reference(const Problem& p, Operands x, bool absolute = false) {
  if (absolute) {
    for (Numbers* numbers : {&x.a, &x.b, &x.bias, &x.c}) {
      for (double& value : *numbers) value = std::fabs(value);
    }
  }
  Numbers c = naive_gemm(x.a, x.b, x.bias, p.M, p.N, p.K, p.options());
  for (size_t i = 0; p.add && i < c.size(); ++i) c[i] += x.c[i];
  return c;
}

// The tensors of one call.
struct Call {
  const Problem& p;
  Guarded a, b, bias_memory, c;
  Tensor bias, mask, saved_mask, bias_gradient;
  const char* layout = nullptr;

  Call(const Problem& problem, const Operands& x)
      : p(problem),
        a(x.a, p.transpose_a ? Shape{p.K, p.M} : Shape{p.M, p.K}, p.types.in, p.a_begin, p.at_end ? 0 : margin),
        b(x.b, p.transpose_b ? Shape{p.N, p.K} : Shape{p.K, p.N}, p.types.in, p.b_begin, p.at_end ? 0 : margin),
        bias_memory(x.bias, {static_cast<int64_t>(x.bias.size())}, p.types.out),
        c(x.c, {p.M, p.N}, p.types.out, p.c_begin) {
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

struct Forced {
  explicit Forced(const char* variant) { gemm.force(variant); }
  ~Forced() { gemm.force(nullptr); }
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
    const Forced forced(v->name);
    INFO("gemm=", std::string(v->name), " ", call.p.text());
    body(std::string(v->name));
  }
}

// Runs every variant on operands with an exact result, rounded to the type once. Returns how many there were.
int check_exact(const Problem& p, const Operands& x, const Numbers& expected) {
  int variants = 0;
  Call probe(p, x);
  for_each_variant(probe, [&](const std::string&) {
    Call call(p, x);
    call.run();
    const Comparison result = compare(call.c.values(), expected, tolerance::exact);
    INFO(result.summary);
    CHECK(result.passed);
    CHECK(call.c.margins_untouched());
    ++variants;
  });
  return variants;
}

int check_integers(Problem p) {
  p.at_end = true;
  const Operands x = integers(p);
  return check_exact(p, x, rounded_to(p.types.out, reference(p, x)));
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

// One, multiples of the tiles and around them, in each place; K of one step and of more steps than are under way.
constexpr Sizes many_sizes[] = {{1, 1, 1},    {1, 1, 100},  {1, 100, 1},   {100, 1, 1},  {2, 3, 5},     {8, 8, 8},
                                {16, 16, 16}, {15, 17, 31}, {17, 15, 33},  {31, 33, 15}, {33, 31, 17},  {64, 64, 32},
                                {65, 63, 64}, {63, 65, 65}, {128, 64, 16}, {129, 65, 7}, {40, 72, 104}, {24, 8, 300}};
constexpr Sizes some_sizes[] = {{1, 1, 1}, {7, 5, 3}, {33, 17, 40}, {130, 67, 35}};

}  // namespace

TEST_CASE("ones times ones are K in every element" * doctest::skip(with_address_sanitizer)) {
  int runs = 0;
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    for (const Sizes& size : many_sizes) {
      const Problem p{size, transpose_a, transpose_b, types};
      const Numbers k(at(p.M * p.N), static_cast<double>(p.K));
      runs += check_exact(p, make_operands(p, [] { return 1.0; }), rounded_to(types.out, k));
    }
  });
  CHECK(runs >= 4 * 18 * (2 + 4 * 4));
}

TEST_CASE("small integers are exact, with a bias, added to what C holds, or both") {
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    for (const Sizes& size : some_sizes) {
      check_integers({size, transpose_a, transpose_b, types});
      check_integers({size, transpose_a, transpose_b, types, true});
      check_integers({size, transpose_a, transpose_b, types, false, true});
      check_integers({size, transpose_a, transpose_b, types, true, true, -0.5f});
    }
  });
}

TEST_CASE("random numbers are within tolerance of the f64 reference") {
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    for (const Sizes& size : {Sizes{50, 70, 130}, Sizes{128, 96, 64}}) {
      const Problem p{size, transpose_a, transpose_b, types, transpose_a, transpose_b, 0.75f};
      Generator generator;
      const Operands x = make_operands(p, [&] { return generator.uniform(); });
      const Numbers expected = reference(p, x);
      Numbers allowance = reference(p, x, true);
      for (double& value : allowance) value = tolerance::sum_allowance(p.K + 2, value);
      Call probe(p, x);
      for_each_variant(probe, [&](const std::string&) {
        Call call(p, x);
        call.run();
        const Comparison result =
            compare(call.c.values(), expected, tolerance::rounded_to(types.out, tolerance::gemm, true),
                    {.allowance = allowance});
        INFO(result.summary);
        CHECK(result.passed);
      });
    }
  });
}

TEST_CASE("operands that start at any element") {
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    for (const auto& [a, b, c] : {Sizes{1, 0, 0}, Sizes{0, 1, 0}, Sizes{0, 0, 1}, Sizes{3, 5, 7}, Sizes{4, 2, 2}}) {
      check_integers({{72, 64, 80}, transpose_a, transpose_b, types, false, false, 1, a, b, c});
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
    const Forced mma("mma");
    call.run();
    const Comparison result = compare(call.c.values(), rounded_to(p.types.out, reference(p, x)), tolerance::exact);
    INFO(p.text(), ": ", result.summary);
    CHECK(result.passed);
    CHECK(call.c.margins_untouched());
  });
}

TEST_CASE("nothing to sum gives beta C + bias, and empty matrices nothing at all") {
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    for (const Sizes& size : {Sizes{19, 40, 0}, Sizes{0, 5, 3}, Sizes{5, 0, 3}, Sizes{0, 0, 0}}) {
      for (const bool more : {false, true}) {
        const int variants = check_integers({size, transpose_a, transpose_b, types, more, more});
        CHECK(variants >= (types.in == DType::f32 ? 2 : 4));
      }
    }
  });
}

TEST_CASE("a NaN in A reaches its row of C and no other, in B its column") {
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    const Problem p{{37, 45, 41}, transpose_a, transpose_b, types};
    const int64_t row = 34, column = 44, k = 40;
    for (const bool in_a : {true, false}) {
      Operands x = integers(p);
      if (in_a) x.a[at(transpose_a ? k * p.M + row : row * p.K + k)] = nan;
      if (!in_a) x.b[at(transpose_b ? column * p.K + k : k * p.N + column)] = nan;
      Call probe(p, x);
      for_each_variant(probe, [&](const std::string&) {
        Call call(p, x);
        call.run();
        const Numbers c = call.c.values();
        int64_t wrong = 0;
        for (int64_t i = 0; i < p.M * p.N; ++i) {
          wrong += std::isnan(c[at(i)]) != (in_a ? i / p.N == row : i % p.N == column);
        }
        INFO("NaN in ", in_a ? "A" : "B");
        CHECK(wrong == 0);
      });
    }
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
    const Forced forced(variant);
    const std::string refused = std::string("gemm: no cuda kernel named ") + variant +
                                " takes (f32(9, 4), f32(40, 4), u8(9, 16), f32(40), f32(9, 40)) with what was kept in "
                                "layout " +
                                layout;
    CHECK_THROWS_WITH_AS(call.run(), doctest::Contains(refused.c_str()), Error);
    for (const double value : call.c.values()) REQUIRE(std::isnan(value));  // as it was
  }
}

#ifdef HALFSTEP_TEST_EMULATED
// In these tests the library forgets the last K % 64 terms of a sum. No other test may have their shapes: what a
// product is found to be good for lasts as long as the process.
TEST_CASE("child: products that cuBLASLt gets wrong" * doctest::skip()) {
  const std::pair<DType, const char*> next_variants[] = {{DType::f32, "tiled"}, {DType::f16, "mma"}};
  for (const auto& [dtype, next] : next_variants) {
    const Problem p{{37, 45, 70}, false, false, {dtype, dtype}};
    const Operands x = integers(p);
    Call call(p, x);
    INFO(p.text());
    CHECK(std::string(call.run().name) == next);
    CHECK(compare(call.c.values(), reference(p, x), tolerance::exact).passed);
    CHECK(noted_choices().at(std::string("gemm ") + name(dtype) + " 37x45x70 NN") ==
          "not usable: of ones times ones, 1665 elements are not K; none of its 2 candidates passes");
    const Forced cublaslt("cublaslt");
    CHECK_THROWS_WITH_AS(call.run(), doctest::Contains("gemm: no cuda kernel named cublaslt takes ("), Error);
  }
}

TEST_CASE("a product that cuBLASLt gets wrong goes to the next variant, and one line says so") {
  const ChildResult child = run_child("HALFSTEP_EMULATOR_DROP_K_TAIL=64", "child: products that cuBLASLt gets wrong");
  INFO(child.output);
  CHECK(child.status == 0);
  for (const char* type : {"f32", "f16"}) {
    const std::string line = std::string("halfstep: cuBLASLt is not usable for gemm ") + type +
                             " 37x45x70 NN (cublaslt algorithm 66, tile 24, stages 12, split-k 1, workspace 0; of ones "
                             "times ones, 1665 elements are not K; none of its 2 candidates passes); another "
                             "variant runs, slowly\n";
    CHECK(child.output.find(line) != std::string::npos);
    CHECK(child.output.find(line) == child.output.rfind(line));
  }
}

TEST_CASE("where cuBLASLt gets the ReLU wrong, its derivative goes to a variant that reads the other's mask") {
  const Emulator emulator;
  const Shape shapes[] = {{37, 70}, {70, 64}, {64}, {64, 12}, {12}};  // x, and two layers' weights and biases
  struct Outcome {
    std::vector<Numbers> values;  // y and the five gradients
    int64_t unfused = 0;          // products
  };
  const auto train_on = [&](Device device) {
    Generator generator;
    const auto integers = [&](const Shape& shape) {
      std::vector<float> values(at(shape.size()));
      std::generate(values.begin(), values.end(), [&] { return static_cast<float>(generator.integer()); });
      return Tensor::from(values, shape).to(device);
    };
    std::vector<Tensor> in;
    for (const Shape& shape : shapes) in.push_back(integers(shape));
    for (Tensor& leaf : in) leaf.set_requires_grad(true);
    const Tensor dy = integers({37, 12});
    const KernelTrace trace;
    emulator::options().drop_k_tail = 64;
    const Tensor y = feed_forward(in[0], in[1], in[2], in[3], in[4]);
    emulator::options().drop_k_tail = 0;
    backward(y, dy);
    Outcome outcome{{to_numbers(y.to(Device::cpu))}};
    for (const Tensor& leaf : in) outcome.values.push_back(to_numbers(leaf.grad().to(Device::cpu)));
    outcome.unfused = std::ranges::count(trace.calls(), "unfused", &KernelCall::variant);
    return outcome;
  };
  const Outcome cpu = train_on(Device::cpu), cuda = train_on(Device::cuda);
  CHECK(cuda.unfused == 2);  // the ReLU and its derivative, though the library gets the latter right
  CHECK(cuda.values == cpu.values);
}
#endif

TEST_CASE("the ReLU of the naive kernel keeps NaN") {  // a library's may make it 0
  Problem p{{3, 40, 2}};
  p.epilogue = Epilogue::relu;
  Operands x = integers(p);
  x.a[2] = nan;  // row 1
  Call call(p, x);
  call.mask = gemm_mask(p.M, p.N, Device::cuda);
  const Forced naive("naive");
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

TEST_CASE("a second run, and any order of threads, give the same bits") {
  for_each_kind([&](Types types, bool transpose_a, bool transpose_b) {
    const Problem p{{70, 66, 75}, transpose_a, transpose_b, types, true};
    Generator generator;
    const Operands x = make_operands(p, [&] { return generator.uniform(); });
    const auto run = [&] {
      Call call(p, x);
      call.run();
      return call.c.part.to(Device::cpu);
    };
    Call probe(p, x);
    for_each_variant(probe, [&](const std::string&) {
      const Tensor first = run();
      CHECK(same_bytes(first, run()));
#ifdef HALFSTEP_TEST_EMULATED
      const Emulator emulator;
      for (const emulator::Order order : {emulator::Order::reverse, emulator::Order::random}) {
        emulator::options().threads = order;
        CHECK(same_bytes(first, run()));
      }
#endif
    });
  });
}

}  // namespace test
}  // namespace hs
