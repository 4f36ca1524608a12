// Kernel slots: which variant a call takes, how one is forced, and what the library has registered.
#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "engine/cpu_features.h"
#include "engine/error.h"
#include "engine/kernel.h"
#include "kernels/conv2d.h"
#include "kernels/relu.h"
#include "tests/support/child_process.h"

namespace hs {
namespace {

// A slot of the tests: each variant writes its own number.
using Probe = Kernel<void(const Tensor& x, int mode, Tensor& y)>;
constinit Probe test_probe{"test_probe"};
constinit Probe test_without_variants{"test_without_variants"};

template <int id>
void write(const Tensor&, int, Tensor& y) {
  y.mutable_data<int32_t>()[0] = id;
}
bool even(const Tensor& x, int, Tensor&) { return x.size() % 2 == 0; }
bool in_mode_one(const Tensor&, int mode, Tensor&) { return mode == 1; }
bool not_u8(const Tensor& x, int, Tensor&) { return x.dtype() != DType::u8; }

// Registered in an order that is neither that of rank nor that of names.
REGISTER_KERNEL(test_probe, cpu, "simple", {.run = write<0>, .supported = not_u8});
REGISTER_KERNEL(test_probe, cpu, "fast",
                {.run = write<20>,
                 .supported = even,
                 .workspace = [](const Tensor& x, int, Tensor&) { return x.size() * 8; },
                 .rank = 20});
REGISTER_KERNEL(test_probe, cpu, "middle_b", {.run = write<12>, .supported = in_mode_one, .rank = 10});
REGISTER_KERNEL(test_probe, cpu, "middle_a", {.run = write<11>, .supported = in_mode_one, .rank = 10});
// A CPU tensor must never reach it, however high its rank.
REGISTER_KERNEL(test_probe, cuda, "device_only", {.run = write<99>, .rank = 99});
REGISTER_KERNEL(test_probe, cuda, "simple", {.run = write<98>});

struct Unforce {
  ~Unforce() { test_probe.force(nullptr); }
};

Tensor input(int64_t size) { return Tensor::zeros({size}, DType::f32); }

int run(const Tensor& x, int mode = 0) {
  Tensor y = Tensor::zeros({1}, DType::i32);
  test_probe(x, mode, y);
  return static_cast<int>(y.item());
}

template <class Body>
Error thrown_by(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::ok, "nothing was thrown"};
}

bool says(const Error& error, const char* text) { return std::strstr(error.what(), text) != nullptr; }

TEST_CASE("a call takes the variant of highest rank that supports the arguments, on the tensor's device") {
  CHECK(run(input(4)) == 20);
  CHECK(run(input(3), 1) == 11);  // of equal rank the first by name
  CHECK(run(input(3), 0) == 0);
}

TEST_CASE("variants are listed in falling rank, then by name, whatever the order of registration") {
  std::vector<std::string> names;
  for (const VariantBase* v = test_probe.variants(); v; v = v->next) {
    names.push_back(v->name + std::string(v->device == Device::cpu ? "" : "@cuda"));
  }
  // The two "simple" have equal rank and name; their order among themselves is of no importance.
  REQUIRE(names.size() == 6);
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 4) ==
        std::vector<std::string>{"device_only@cuda", "fast", "middle_a", "middle_b"});
}

TEST_CASE("calls are counted per variant") {
  const auto calls = [](const char* name) {
    for (const VariantBase* v = test_probe.variants(); v; v = v->next) {
      if (v->device == Device::cpu && std::strcmp(v->name, name) == 0) return v->calls;
    }
    return uint64_t{0};
  };
  const uint64_t fast = calls("fast"), simple = calls("simple");
  run(input(4)), run(input(2)), run(input(1));
  CHECK(calls("fast") == fast + 2);
  CHECK(calls("simple") == simple + 1);
}

TEST_CASE("a forced variant is used until it is released, even where a better one exists") {
  const Unforce unforce;
  test_probe.force("simple");
  CHECK(run(input(4)) == 0);
  test_probe.force("middle_b");
  CHECK(run(input(4), 1) == 12);
  std::string name = "fast";  // the slot must not keep a pointer into the caller's string
  test_probe.force(name.c_str());
  name = "xxxx";
  CHECK(run(input(4)) == 20);
  test_probe.force(nullptr);
  CHECK(run(input(4)) == 20);
  CHECK(run(input(3)) == 0);
}

TEST_CASE("forcing an unknown variant is a usage error that lists the names, and changes nothing") {
  const Unforce unforce;
  test_probe.force("simple");
  const Error error = thrown_by([] { test_probe.force("quick"); });
  CHECK(error.code() == ExitCode::usage);
  CHECK(says(error, "test_probe=quick"));
  for (const char* name : {"simple (cpu)", "fast (cpu)", "middle_a (cpu)", "middle_b (cpu)", "device_only (cuda)"}) {
    CHECK(says(error, name));
  }
  CHECK(run(input(4)) == 0);  // still forced
}

TEST_CASE("a forced variant that does not take the arguments fails by name and does not fall back") {
  const Unforce unforce;
  test_probe.force("fast");
  const Error error = thrown_by([] { run(input(3)); });
  CHECK(error.code() != ExitCode::ok);
  CHECK(says(error, "test_probe: no cpu kernel named fast takes (f32(3)"));
  CHECK(run(input(4)) == 20);
  test_probe.force("device_only");
  CHECK(says(thrown_by([] { run(input(4)); }), "no cpu kernel named device_only"));
}

TEST_CASE("arguments that no variant takes are described") {
  const Error error = thrown_by([] {
    Tensor y = Tensor::zeros({1}, DType::i32);
    test_probe(Tensor::zeros({3, 1}, DType::u8), 0, y);
  });
  CHECK(says(error, "test_probe: no cpu kernel takes (u8(3, 1), i32(1)); this build has "));
  CHECK(says(error, "fast (cpu)"));
  CHECK(says(thrown_by([] {
               Tensor y = Tensor::zeros({1}, DType::i32);
               test_without_variants(input(1), 0, y);
             }),
             "test_without_variants: no cpu kernel takes"));
}

TEST_CASE("workspace is that of the variant that the call would take") {
  const Unforce unforce;
  Tensor y;
  CHECK(test_probe.workspace(input(4), 0, y) == 32);
  CHECK(test_probe.workspace(input(3), 0, y) == 0);
  test_probe.force("simple");
  CHECK(test_probe.workspace(input(4), 0, y) == 0);
  test_probe.force("fast");
  CHECK_THROWS_AS(test_probe.workspace(input(3), 0, y), Error);
}

TEST_CASE("force_variant takes slot=variant") {
  const Unforce unforce;
  force_variant("test_probe=simple");
  CHECK(run(input(4)) == 0);
  force_variant("test_probe=fast");
  CHECK(run(input(4)) == 20);
}

TEST_CASE("force_variant explains what is wrong with its argument") {
  const Unforce unforce;
  test_probe.force("simple");
  for (const char* assignment : {"", "test_probe", "test_probe:simple"}) {
    CAPTURE(assignment);
    const Error error = thrown_by([&] { force_variant(assignment); });
    CHECK(error.code() == ExitCode::usage);
    CHECK(says(error, "expected SLOT=VARIANT"));
  }
  for (const char* assignment : {"=", "=simple", "test_prob=simple", "test_probe2=simple", " test_probe=simple"}) {
    CAPTURE(assignment);
    const Error error = thrown_by([&] { force_variant(assignment); });
    CHECK(error.code() == ExitCode::usage);
    CHECK(says(error, "no slot"));
    CHECK(says(error, "test_probe"));
    CHECK(says(error, "relu_forward"));
  }
  for (const char* assignment : {"test_probe=", "test_probe=simpl", "test_probe=simple ", "test_probe==simple"}) {
    CAPTURE(assignment);
    const Error error = thrown_by([&] { force_variant(assignment); });
    CHECK(error.code() == ExitCode::usage);
    CHECK(says(error, "no such variant"));
  }
  CHECK(run(input(4)) == 0);  // still forced
}

TEST_CASE("every registered slot has a name of its own, a CPU variant, and no two variants that look the same") {
  std::set<std::string> slot_names;
  std::string previous;
  for (const KernelSlot* slot : kernel_slots()) {
    REQUIRE(slot->name() != nullptr);
    const std::string name = slot->name();
    CAPTURE(name);
    CHECK_FALSE(name.empty());
    CHECK(name.find_first_of("= ,") == std::string::npos);  // or --kernel could not name it
    CHECK(slot_names.insert(name).second);
    CHECK(previous < name);  // sorted
    previous = name;
    int cpu_variants = 0;
    std::set<std::pair<Device, std::string>> variants;
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      REQUIRE(v->name != nullptr);
      CAPTURE(v->name);
      CHECK(std::strlen(v->name) > 0);
      CHECK(variants.insert({v->device, v->name}).second);
      cpu_variants += v->device == Device::cpu;
      if (v->next) CHECK(v->rank >= v->next->rank);
    }
    CHECK(cpu_variants >= 1);
  }
  // The walk above saw something: the linker dropped no registration, the ladder has its rungs.
  for (const char* name :
       {"accumulate", "adam_step", "argmax_matches", "cast_forward", "conv2d_backward", "conv2d_forward",
        "dropout_mask", "gemm", "max_pool2d_backward", "max_pool2d_forward", "normalize_image_forward", "relu_backward",
        "relu_forward", "sgd_step", "softmax_cross_entropy_backward", "softmax_cross_entropy_forward"}) {
    CAPTURE(name);
    CHECK(slot_names.count(name) == 1);
  }
  CHECK(slot_names.count("test_without_variants") == 0);
}

TEST_CASE("the simple rung of a ladder is the last one") {
  for (const KernelSlot* slot : kernel_slots()) {
    CAPTURE(slot->name());
    const VariantBase* last = nullptr;
    for (const VariantBase* v = slot->variants(); v; v = v->next) last = v;
    CHECK(last->rank == 0);
  }
}

TEST_CASE("HALFSTEP_ISA caps the features of the processor that kernels use") {
  const CpuFeatures all = find_cpu_features("");
  const char* const caps[] = {"x86-64", "avx2", "avx512", "avx512_bf16", "amx"};
  for (int level = 0; level < 5; ++level) {
    const CpuFeatures capped = find_cpu_features(caps[level]);
    CAPTURE(capped.cap);
    CHECK(capped.f16c == (all.f16c && level >= 1));
    CHECK(capped.avx512 == (all.avx512 && level >= 2));
    CHECK(capped.avx512_bf16 == (all.avx512_bf16 && level >= 3));
    CHECK(capped.amx_bf16 == (all.amx_bf16 && level >= 4));
    for (const CpuFeature& feature : all.all) CHECK(capped.has(feature.name) == feature.present);
  }
}

TEST_CASE("child: a kernel with a wrong HALFSTEP_ISA" * doctest::skip()) {
  const Error error = thrown_by([] { relu(Tensor::zeros({1 << 18}, DType::bf16)); });
  CHECK(error.code() == ExitCode::usage);
  CHECK(std::string(error.what()).starts_with("HALFSTEP_ISA=avx3: expected x86-64, avx2, avx512, "));
}

TEST_CASE("a wrong HALFSTEP_ISA is an error of the first call, before a kernel starts threads") {
  const test::ChildResult child = test::run_child("HALFSTEP_ISA=avx3", "child: a kernel with a wrong HALFSTEP_ISA");
  INFO(child.output);
  CHECK(child.status == 0);
  CHECK(child.output.find("1 passed") != std::string::npos);
}

}  // namespace
}  // namespace hs
