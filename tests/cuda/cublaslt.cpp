// The variant of gemm that calls cuBLASLt, against a library that refuses, rounds in another order, or computes
// nonsense: the results stay right, and every fallback is told.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/measure/observers/kernel_trace.h"
#include "engine/captured_work.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/naive.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/checks.h"
#include "tests/support/child_process.h"
#include "tests/support/emulated.h"
#include "tests/support/random_tensor.h"

#ifdef HALFSTEP_TEST_EMULATED
namespace hs::test {
namespace {

using bench::measure::KernelCall;
using bench::measure::KernelTrace;

class Integers {
 public:
  Tensor operator()(const Shape& shape, DType dtype, Device device) {
    return cast(whole_numbers(shape, ++which_), dtype).to(device);
  }

 private:
  uint32_t which_ = 0;
};

Numbers numbers(const Tensor& x) { return to_numbers(x.to(Device::cpu)); }

// What is computed with one epilogue, from integers, which are exact: C; with ReLU also the gradient at the sums and
// the bias gradient, with the mask that the first call wrote.
std::vector<Numbers> products(Device device, DType dtype, int64_t M, bool with_bias, bool with_relu) {
  Integers integers;
  const int64_t N = 24, K = 8, next = 16;
  const Tensor a = integers({M, K}, dtype, device), b = integers({K, N}, dtype, device);
  const Tensor bias = with_bias ? integers({N}, dtype, device) : Tensor();
  Tensor c = Tensor::empty({M, N}, dtype, device);
  if (!with_relu) {
    gemm({.a = a, .b = b, .bias = bias, .c = c});
    return {numbers(c)};
  }
  Tensor mask = gemm_mask(M, N, device);
  const char* layout =
      gemm({.a = a, .b = b, .bias = bias, .options = {.epilogue = Epilogue::relu}, .c = c, .mask = mask}).layout;
  const Tensor dy = integers({M, next}, dtype, device), w = integers({N, next}, dtype, device);
  Tensor dc = Tensor::empty({M, N}, dtype, device), dbias = Tensor::empty({N}, dtype, device);
  gemm({.a = dy,
        .b = w,
        .options = {.transpose_b = true, .epilogue = Epilogue::relu_backward},
        .c = dc,
        .saved_mask = mask,
        .relu_output = c,
        .layout = layout,
        .bias_gradient = dbias});
  return {numbers(c), numbers(dc), numbers(dbias)};
}

// Epilogues of the library, as cublasLt.h numbers them.
struct LibraryEpilogue {
  int number;
  bool with_bias, with_relu;
  const char* name;  // of the product that is refused, after its sizes
};
constexpr LibraryEpilogue epilogues[] = {{1, false, false, "24x8 NN"},
                                         {4, true, false, "24x8 NN bias"},
                                         {130, false, true, "24x8 NN relu"},
                                         {134, true, true, "24x8 NN bias relu"},
                                         {152, true, true, "24x16 NT relu_backward"}};
constexpr std::pair<int, const char*> statuses[] = {
    {1, "CUBLAS_STATUS_NOT_INITIALIZED"}, {3, "CUBLAS_STATUS_ALLOC_FAILED"},      {7, "CUBLAS_STATUS_INVALID_VALUE"},
    {8, "CUBLAS_STATUS_ARCH_MISMATCH"},   {13, "CUBLAS_STATUS_EXECUTION_FAILED"}, {14, "CUBLAS_STATUS_INTERNAL_ERROR"},
    {15, "CUBLAS_STATUS_NOT_SUPPORTED"}};
enum class Place { query, check, later_run };

// Calls body(epilogue, place, status, M) for all; each has an M of its own, because what is found of a product lasts as
// long as the process.
template <class Body>
void for_each_refusal(const Body& body) {
  int64_t M = 5;
  for (const LibraryEpilogue& epilogue : epilogues) {
    for (const Place place : {Place::query, Place::check, Place::later_run}) {
      for (const auto& status : statuses) body(epilogue, place, status, M++);
    }
  }
}

// Where y = feed_forward(x) and its backward pass went.
struct Outcome {
  std::vector<Numbers> values;  // y and the five gradients
  std::vector<std::string> gemms;
  int64_t count(const char* variant) const { return std::ranges::count(gemms, variant); }
};

// With `drop`, the library forgets the last K % drop terms of a sum in the forward pass.
Outcome train_on(Device device, int64_t hidden, int64_t in_size = 40, int64_t drop = 0) {
  Integers integers;
  const Shape shapes[] = {{37, in_size}, {in_size, hidden}, {hidden}, {hidden, 12}, {12}};  // x, weights and biases
  std::vector<Tensor> in;
  for (const Shape& shape : shapes) in.push_back(integers(shape, DType::f32, device));
  for (Tensor& leaf : in) leaf.set_requires_grad(true);
  const KernelTrace trace;
  emulator::options().drop_k_tail = drop;
  const Tensor y = feed_forward(in[0], in[1], in[2], in[3], in[4]);
  emulator::options().drop_k_tail = 0;
  backward(y, integers({37, 12}, DType::f32, device));
  Outcome outcome{{numbers(y)}, {}};
  for (const Tensor& leaf : in) outcome.values.push_back(numbers(leaf.grad()));
  for (const KernelCall& call : trace.calls()) {
    if (std::string(call.slot) == "gemm") outcome.gemms.push_back(call.variant);
  }
  return outcome;
}

}  // namespace

TEST_CASE("child: every epilogue refused everywhere with every status" * doctest::skip()) {
  const Emulator emulator;
  for_each_refusal([](const LibraryEpilogue& epilogue, Place place, const auto& status, int64_t M) {
    INFO("epilogue ", epilogue.number, ", place ", static_cast<int>(place), ", ", std::string(status.second));
    const auto run = [&](Device device) {
      return products(device, DType::f16, M, epilogue.with_bias, epilogue.with_relu);
    };
    const std::vector<Numbers> expected = run(Device::cpu);
    if (place == Place::later_run) CHECK(run(Device::cuda) == expected);
    emulator::options().library.refusals = {{epilogue.number, place != Place::query, status.first}};
    for (int i = 0; i < 2; ++i) CHECK(run(Device::cuda) == expected);
    emulator::options().library.refusals.clear();
    CHECK(run(Device::cuda) == expected);
    const std::string choice = noted_choices().at("gemm f16 " + std::to_string(M) + "x" + epilogue.name);
    CHECK(choice.starts_with(std::string("not usable: ") + status.second));
  });
}

TEST_CASE("whatever cuBLASLt refuses, the results are right and one line says so") {
  const ChildResult child = run_child("", "child: every epilogue refused everywhere with every status");
  CHECK(child.status == 0);
  size_t lines = 0;
  for_each_refusal([&](const LibraryEpilogue& epilogue, Place, const auto& status, int64_t M) {
    const std::string line =
        "halfstep: cuBLASLt is not usable for gemm f16 " + std::to_string(M) + "x" + epilogue.name + " (";
    INFO(line, std::string(status.second), "\n", child.output);
    const size_t begin = child.output.find(line);
    REQUIRE(begin != std::string::npos);
    CHECK(begin == child.output.rfind(line));
    const std::string rest = child.output.substr(begin, child.output.find('\n', begin) - begin);
    CHECK(rest.find(status.second) != std::string::npos);
    ++lines;
  });
  CHECK(lines == 5 * 3 * std::size(statuses));
  CHECK(static_cast<size_t>(std::ranges::count(child.output, '\n')) < lines + 10);  // doctest's own few, and no others
}

TEST_CASE("a ReLU mask is read only by what wrote it, whichever of the two products is refused") {
  const Emulator emulator;
  int64_t hidden = 50;
  for (const int epilogue : {134, 152, -1}) {
    for (const bool at_run : {false, true}) {
      for (const bool later : {false, true}) {
        INFO("epilogue ", epilogue, at_run ? " at the run" : " at the query", later ? ", later" : "");
        const std::vector<Numbers> expected = train_on(Device::cpu, ++hidden).values;
        if (later) {
          const Outcome before = train_on(Device::cuda, hidden);
          CHECK(before.values == expected);
          CHECK(before.count("unfused") == 0);
        }
        emulator::options().library.refusals = {{epilogue, at_run, 13}};
        const Outcome refused = train_on(Device::cuda, hidden);
        CHECK(refused.values == expected);
        CHECK(refused.count("naive") == 0);
        CHECK(train_on(Device::cuda, hidden).values == expected);
        emulator::options().library.refusals.clear();
      }
    }
  }
}

TEST_CASE("where cuBLASLt gets the ReLU wrong, its derivative goes to a variant that reads the other's mask") {
  const Emulator emulator;
  const Outcome cpu = train_on(Device::cpu, 64, 70), cuda = train_on(Device::cuda, 64, 70, 64);
  CHECK(cuda.count("unfused") == 2);  // the ReLU and its derivative, though the library gets the latter right
  CHECK(cuda.values == cpu.values);
}

// In f32 and f16; prints what ran, and what was found of the library.
TEST_CASE("child: two products" * doctest::skip()) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Integers integers;
    const Tensor a = integers({37, 70}, dtype, Device::cuda), b = integers({70, 45}, dtype, Device::cuda);
    Tensor c = Tensor::empty({37, 45}, dtype, Device::cuda);
    const std::string variant = gemm({.a = a, .b = b, .c = c}).name;
    CHECK(numbers(c) == naive_gemm(numbers(a), numbers(b), {}, 37, 45, 70, {}));
    const std::string found = noted_choices().at(std::string("gemm ") + name(dtype) + " 37x45x70 NN");
    std::printf("%s by %s: %s\n", name(dtype), variant.c_str(), found.c_str());
    if (variant == "cublaslt") continue;
    const ForcedVariant forced(gemm, "cublaslt");
    CHECK_THROWS_WITH_AS(gemm({.a = a, .b = b, .c = c}),
                         doctest::Contains("gemm: no cuda kernel named cublaslt takes ("), Error);
  }
}

TEST_CASE("a library that is wrong, not there or another one: the results are right, and one line says so") {
  const struct {
    const char *environment, *algorithm, *fault;
  } cases[] = {{"HALFSTEP_EMULATOR_DROP_K_TAIL=64", "cublaslt algorithm 66, tile 24, stages 12, split-k 1, workspace 0",
                "of ones times ones, 1665 elements are not K; none of its 2 candidates passes"},
               {"HALFSTEP_CUBLASLT=/nowhere/libcublasLt.so", "no algorithm",
                "/nowhere/libcublasLt.so: cannot open shared object file: No such file or directory; install cuBLASLt, "
                "or name the library in the variable HALFSTEP_CUBLASLT"},
               {"HALFSTEP_CUBLASLT=libm.so.6", "no algorithm",
                "libm.so.6: has no function cublasLtCreate; expected cuBLASLt 12 or newer"}};
  for (const auto& [environment, algorithm, fault] : cases) {
    const ChildResult child = run_child(environment, "child: two products");
    INFO(environment, "\n", child.output);
    CHECK(child.status == 0);
    for (const auto& [type, next] : {std::pair{"f32", "tiled"}, {"f16", "mma"}}) {
      const std::string line = fmt::format(
          "halfstep: cuBLASLt is not usable for gemm {} 37x45x70 NN ({}; {}); another variant runs, slowly\n", type,
          algorithm, fault);
      CHECK(child.output.find(line) != std::string::npos);
      CHECK(child.output.find(line) == child.output.rfind(line));
      CHECK(child.output.find(fmt::format("{} by {}: not usable: {}\n", type, next, fault)) != std::string::npos);
    }
  }
}

TEST_CASE("a wrong first candidate is passed over, and one line says so") {
  const ChildResult child = run_child("HALFSTEP_EMULATOR_LT_WRONG=1", "child: two products");
  INFO(child.output);
  CHECK(child.status == 0);
  for (const char* line :
       {"halfstep: cuBLASLt's first choice for gemm f16 37x45x70 NN is not usable (cublaslt algorithm 66, tile 24, "
        "stages 12, split-k 1, workspace 0; of ones times ones, 1665 elements are not K); cublaslt algorithm 21, tile "
        "15, stages 8, split-k 1, workspace 0 runs\n",
        "f16 by cublaslt: cublaslt algorithm 21, "}) {
    CHECK(child.output.find(line) != std::string::npos);
  }
}

TEST_CASE("a refusal inside a capture goes to the next variant") {
  const Emulator emulator;
  Integers integers;
  const Tensor a = integers({64, 48}, DType::f16, Device::cuda), b = integers({48, 56}, DType::f16, Device::cuda);
  Tensor c = Tensor::empty({64, 56}, DType::f16, Device::cuda), mask = gemm_mask(64, 56, Device::cuda);
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu}) {
    const auto work = [&] { gemm({.a = a, .b = b, .options = {.epilogue = epilogue}, .c = c, .mask = mask}); };
    CapturedWork captured(Device::cuda);
    captured.run(work);
    const Numbers expected = numbers(c);
    emulator::options().library.refusals = {{-1, true, 13}};
    captured.run(work);  // is captured, and replayed
    emulator::options().library.refusals.clear();
    runtime(Device::cuda).fill(c.mutable_raw_data(), 0xff, c.bytes());
    captured.run(work);
    CHECK(numbers(c) == expected);
  }
}

TEST_CASE("the emulated library's ReLU makes NaN 0, as max(x, 0) may") {
  const ForcedVariant library(gemm, "cublaslt");
  const Tensor a = cast(Tensor::from<float>({std::nanf(""), 1}, {1, 2}), DType::f16).to(Device::cuda);
  const Tensor b = cast(Tensor::from<float>({1, 1}, {2, 1}), DType::f16).to(Device::cuda);
  Tensor c = Tensor::empty({1, 1}, DType::f32, Device::cuda), mask = gemm_mask(1, 1, Device::cuda);
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu}) {
    gemm({.a = a, .b = b, .options = {.epilogue = epilogue}, .c = c, .mask = mask});
    CHECK(std::isnan(c.item()) == (epilogue == Epilogue::none));
  }
}

TEST_CASE("a library that adds the bias after rounding, or truncates sums as a tensor core does, is no fault") {
  const Emulator emulator;
  struct Case {
    bool late_bias;
    int guard_bits;
    DType dtype;
    int64_t M, N, K;
  };
  std::vector<Case> cases = {{true, -1, DType::f16, 2048, 32, 16},
                             {true, -1, DType::f16, 600, 64, 288},
                             {true, -1, DType::bf16, 64, 24, 1600}};
  int64_t rows = 70;  // each product is a new one
  for (const int guard_bits : {0, 2}) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      for (const int64_t K : {16, 1600, 20000}) cases.push_back({false, guard_bits, dtype, ++rows, 32, K});
    }
  }
  for (const auto& [late_bias, guard_bits, dtype, M, N, K] : cases) {
    emulator::options().library.late_bias = late_bias;
    emulator::options().library.guard_bits = guard_bits;
    Integers integers;
    const Tensor a = integers({M, K}, dtype, Device::cuda), b = integers({K, N}, dtype, Device::cuda);
    (void)matmul(a, b, integers({N}, dtype, Device::cuda));
    const std::string product = fmt::format("gemm {} {}x{}x{} NN bias", name(dtype), M, N, K);
    INFO(product);
    CHECK(noted_choices().at(product).starts_with("cublaslt algorithm"));
  }
  CHECK(noted_choices().at("cuBLASLt") == "13.0.0 of the emulator");
}

TEST_CASE("a bias that is less aligned than an earlier one is within what was promised") {
  const Emulator emulator;
  Integers integers;
  const Tensor a = integers({33, 40}, DType::f16, Device::cuda), b = integers({40, 128}, DType::f16, Device::cuda);
  const Tensor memory = integers({1024}, DType::f16, Device::cuda);
  for (const int64_t begin : {0, 128, 8, 16, 64, 200}) {  // elements of 2 bytes
    Tensor c = Tensor::empty({33, 128}, DType::f16, Device::cuda);
    CHECK(std::string(gemm({.a = a, .b = b, .bias = memory.slice(begin, {128}), .c = c}).name) == "cublaslt");
    CHECK(numbers(c) == naive_gemm(numbers(a), numbers(b), numbers(memory.slice(begin, {128})), 33, 128, 40, {}));
  }
}
}  // namespace hs::test
#endif
