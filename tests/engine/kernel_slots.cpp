// Kernel slots: which variant a call takes, its workspace, how one is forced, and what the library has registered.
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "bench/measure/observers/kernel_trace.h"
#include "engine/cpu_features.h"
#include "engine/kernel.h"
#include "engine/registration.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/relu/relu.h"
#include "tests/support/child_process.h"
#include "tests/support/thrown.h"

namespace hs {

using bench::measure::KernelCall;
using bench::measure::KernelTrace;
using bench::measure::TimedCall;
using test::thrown_by;
namespace {

// A slot of the tests: each variant writes its own number.
struct Probe {
  const Tensor& x;
  int mode;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit Kernel<Probe> test_probe{"test_probe"};
constinit Kernel<Probe> test_without_variants{"test_without_variants"};

int asked = 0;  // calls of `even`
// What "fast" was given to work in.
struct Workspace {
  int64_t bytes;
  const uint8_t* memory;
};
std::optional<Workspace> given;

// Bytes of all workspaces, now or at their peak.
size_t workspace_bytes(BytesByPurpose MemoryStats::*which = &MemoryStats::live_by_purpose) {
  return (memory_stats(Device::cpu).*which)[static_cast<size_t>(MemoryPurpose::workspace)];
}

template <int id>
void write(const Probe& call) {
  call.y.mutable_data<int32_t>()[0] = id;
}
void write_fast(const Probe& call, Tensor& workspace) {
  write<20>(call);
  given = {workspace.size(), workspace.mutable_data<uint8_t>()};
}
bool even(const Probe& call) { return ++asked, call.x.size() % 2 == 0; }
bool in_mode_one(const Probe& call) { return call.mode == 1; }
bool below_five(const Probe& call) { return call.x.size() < 5; }
bool not_u8(const Probe& call) { return call.x.dtype() != DType::u8; }

// Registered in an order that is neither that of rank nor that of names.
REGISTER_KERNEL(test_probe, cpu, "simple", {.run = write<0>, .supported = not_u8});
REGISTER_KERNEL(test_probe, cpu, "fast",
                {.run = write_fast,
                 .supported = even,
                 .workspace = [](const Probe& call) { return call.mode < 0 ? -1 : call.x.size() * 8; },
                 .rank = 20});
REGISTER_KERNEL(test_probe, cpu, "middle_b", {.run = write<12>, .supported = in_mode_one, .rank = 10});
REGISTER_KERNEL(test_probe, cpu, "middle_a",
                {.run = write<11>, .supported = in_mode_one, .rank = 10, .pays = below_five});
// A CPU tensor must never reach it, however high its rank.
REGISTER_KERNEL(test_probe, cuda, "device_only", {.run = write<99>, .rank = 99});
REGISTER_KERNEL(test_probe, cuda, "simple", {.run = write<98>});

// Another one, of calls that read what a call before kept in some layout.
struct LayoutProbe {
  const Tensor& x;
  Tensor& y;
  const char* layout = nullptr;
  auto tensors() const { return tensor_list(x, y); }
};
constinit Kernel<LayoutProbe> test_layouts{"test_layouts"};

void write_nothing(const LayoutProbe&) {}

REGISTER_KERNEL(test_layouts, cpu, "blocked", {.run = write_nothing, .rank = 20, .layout = "blocks"});
REGISTER_KERNEL(test_layouts, cpu, "by_rows", {.run = write_nothing, .rank = 10, .layout = "rows"});
REGISTER_KERNEL(test_layouts, cpu, "of_no_layout", {.run = [](const LayoutProbe&) {}, .rank = 5});
REGISTER_KERNEL(test_layouts, cpu, "simple", {.run = write_nothing, .layout = "rows"});

// And one whose kernel calls the first, with a part of its own workspace or without.
struct OuterProbe {
  const Tensor& x;
  bool in_own_memory;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit Kernel<OuterProbe> test_outer{"test_outer"};

void run_outer(const OuterProbe& call, Tensor& workspace) {
  const Probe inner{call.x, 0, call.y};
  if (!call.in_own_memory) {
    test_probe(inner);
    return;
  }
  Tensor part = workspace.slice(100, {workspace.size() - 100});
  test_probe.run_in(part, inner);
}
int64_t outer_workspace(const OuterProbe& call) { return 100 + test_probe.workspace({call.x, 0, call.y}); }
REGISTER_KERNEL(test_outer, cpu, "simple", {.run = run_outer, .workspace = outer_workspace});

struct Unforce {
  ~Unforce() {
    test_probe.force(nullptr);
    test_layouts.force(nullptr);
  }
};

Tensor input(int64_t size) { return Tensor::zeros({size}, DType::f32); }

int run(const Tensor& x, int mode = 0) {
  Tensor y = Tensor::zeros({1}, DType::i32);
  test_probe({x, mode, y});
  return static_cast<int>(y.item());
}

bool says(const Error& error, const char* text) { return std::strstr(error.what(), text) != nullptr; }

TEST_CASE("a call takes the variant of highest rank that supports the arguments, on the tensor's device") {
  CHECK(run(input(4)) == 20);
  CHECK(run(input(3), 1) == 11);  // of equal rank the first by name
  CHECK(run(input(5), 1) == 12);  // which does not pay here,
  CHECK(run(input(3), 0) == 0);
  const Unforce unforce;
  test_probe.force("middle_a");
  CHECK(run(input(5), 1) == 11);  // and runs all the same if there is no other
}

TEST_CASE("a workspace of less than no bytes is an error that names the variant") {
  CHECK(test::error_of([] { run(input(4), -1); }) ==
        "test_probe=fast: .workspace asks for -1 bytes, expected 0 or more");
}

TEST_CASE("a forced variant is used until it is released, even where a better one exists") {
  const Unforce unforce;
  force_variant("test_probe=simple");
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

TEST_CASE("a forced variant that does not take the arguments fails by name and does not fall back") {
  const Unforce unforce;
  test_probe.force("fast");
  const Error error = thrown_by([] { run(input(3)); });
  CHECK(error.code() != ExitCode::ok);
  CHECK(says(error, "test_probe: no cpu kernel named fast takes (f32(3)"));
  CHECK(error.kind() == ErrorKind::forced_variant);
  CHECK(run(input(4)) == 20);
  test_probe.force("device_only");
  CHECK(says(thrown_by([] { run(input(4)); }), "no cpu kernel named device_only"));
}

TEST_CASE("arguments that no variant takes are described") {
  const Error error = thrown_by([] {
    Tensor y = Tensor::zeros({1}, DType::i32);
    test_probe({Tensor::zeros({3, 1}, DType::u8), 0, y});
  });
  CHECK(says(error, "test_probe: no cpu kernel takes (u8(3, 1), i32(1)); this build has "));
  CHECK(error.kind() == ErrorKind::no_variant);
  CHECK(says(error, "fast (cpu)"));
  CHECK(says(thrown_by([] {
               Tensor y = Tensor::zeros({1}, DType::i32);
               test_without_variants({input(1), 0, y});
             }),
             "test_without_variants: no cpu kernel takes"));
}

TEST_CASE("the variant is selected once for each call") {
  const Unforce unforce;
  Tensor y = Tensor::zeros({1}, DType::i32), memory = Tensor::workspace(32, Device::cpu);
  const auto asked_in = [](const auto& body) {
    asked = 0;
    body();
    return asked;
  };
  CHECK(asked_in([&] { test_probe({input(4), 0, y}); }) == 1);
  CHECK(asked_in([&] { test_probe({input(3), 0, y}); }) == 1);
  CHECK(asked_in([&] { test_probe.run_in(memory, {input(4), 0, y}); }) == 1);
  test_probe.force("simple");
  CHECK(asked_in([&] { test_probe({input(4), 0, y}); }) == 0);
}

TEST_CASE("the slot allocates the workspace that the selected variant asks for, for the time of the call") {
  const size_t before = workspace_bytes();
  for (const int64_t size : {4, 0, 3}) {
    given.reset();
    reset_peak(Device::cpu);
    const bool is_fast = size % 2 == 0;  // the other one asks for none
    CHECK(run(input(size)) == (is_fast ? 20 : 0));
    REQUIRE(given.has_value() == is_fast);
    if (is_fast) CHECK(given->bytes == size * 8);
    CHECK(workspace_bytes(&MemoryStats::peak_by_purpose) == before + static_cast<size_t>(is_fast ? size * 8 : 0));
    CHECK(workspace_bytes() == before);
  }
  Tensor wrong_type = Tensor::zeros({1}, DType::f32);  // the kernel throws
  CHECK_THROWS_AS(test_probe({input(4), 0, wrong_type}), Error);
  CHECK(workspace_bytes() == before);
}

TEST_CASE("run_in uses the memory of the caller") {
  Tensor y = Tensor::zeros({1}, DType::i32), memory = Tensor::workspace(32, Device::cpu);
  reset_peak(Device::cpu);
  test_probe.run_in(memory, {input(4), 0, y});
  CHECK(y.item() == 20);
  REQUIRE(given.has_value());
  CHECK(given->memory == memory.data<uint8_t>());
  CHECK(workspace_bytes(&MemoryStats::peak_by_purpose) == workspace_bytes());
  test_probe.run_in(memory, {input(3), 0, y});  // of a variant that needs none
  CHECK(y.item() == 0);
}

TEST_CASE("workspace() is that of the variant that the call would take") {
  const Unforce unforce;
  Tensor y;
  CHECK(test_probe.workspace({input(4), 0, y}) == 32);
  CHECK(test_probe.workspace({input(3), 0, y}) == 0);
  test_probe.force("simple");
  CHECK(test_probe.workspace({input(4), 0, y}) == 0);
  test_probe.force("fast");
  CHECK_THROWS_AS(test_probe.workspace({input(3), 0, y}), Error);
}

TEST_CASE("the first tensor that is defined decides on the device") {
  Tensor y = input(1), undefined;
  CHECK(std::string(test_layouts({undefined, y}).name) == "blocked");
  CHECK_THROWS_AS(test_layouts({undefined, undefined}), Error);
  CHECK_FALSE(no_tensor().defined());
}

TEST_CASE("a call with a layout is run by a variant of this layout, and without one by any") {
  const Unforce unforce;
  Tensor y = input(1);
  const auto variant = [&](const char* layout) { return std::string(test_layouts({input(1), y, layout}).name); };
  CHECK(variant(nullptr) == "blocked");
  CHECK(variant("blocks") == "blocked");
  CHECK(variant(std::string("rows").c_str()) == "by_rows");  // names are compared, not pointers
  test_layouts.force("simple");
  CHECK(variant("rows") == "simple");
  CHECK(variant(nullptr) == "simple");
  test_layouts.force("of_no_layout");
  CHECK(variant(nullptr) == "of_no_layout");
  CHECK(std::string(test_layouts.variants()->layout) == "blocks");
}

TEST_CASE("a call with a layout that no variant has is refused by its name") {
  const Unforce unforce;
  Tensor y = input(1);
  const auto refused = [&](const char* layout) { return thrown_by([&] { test_layouts({input(1), y, layout}); }); };
  const Error unknown = refused("columns");
  CHECK(unknown.code() == ExitCode::usage);
  CHECK(says(unknown, "test_layouts: no cpu kernel takes (f32(1), f32(1)) with what was kept in layout columns; "));
  for (const char* forced : {"by_rows", "of_no_layout"}) {
    test_layouts.force(forced);
    const Error error = refused("blocks");
    CHECK(says(error, (std::string("no cpu kernel named ") + forced + " takes (").c_str()));
    CHECK(says(error, "in layout blocks;"));
  }
}

TEST_CASE("every CPU variant of gemm reads the mask that any other one wrote") {
  Tensor mask = gemm_mask(2, 3, Device::cpu), c = Tensor::zeros({2, 3}, DType::f32), sums = input(3);
  const Tensor a = Tensor::zeros({2, 4}, DType::f32), b = Tensor::zeros({4, 3}, DType::f32);
  for (const VariantBase* v = gemm.variants(); v; v = v->next) {
    if (v->device == Device::cuda) continue;
    CAPTURE(v->name);
    REQUIRE(v->layout != nullptr);
    CHECK(std::string(v->layout) == "rows");
  }
  const VariantBase& wrote = gemm({.a = a, .b = b, .options = {.epilogue = Epilogue::relu}, .c = c, .mask = mask});
  const auto read = [&](const char* layout) {
    gemm({.a = a,
          .b = b,
          .options = {.epilogue = Epilogue::relu_backward},
          .c = c,
          .saved_mask = mask,
          .layout = layout,
          .bias_gradient = sums});
  };
  read(wrote.layout);
  CHECK(says(thrown_by([&] { read("tiles"); }), "with what was kept in layout tiles"));
}

TEST_CASE("a trace notes every call; a timed one counts a kernel that another one calls as part of that") {
  Tensor y = Tensor::zeros({1}, DType::i32);
  const auto call_all = [&] {
    test_outer({input(4), false, y});
    test_outer({input(4), true, y});
    test_probe({input(3), 0, y});
  };
  const std::vector<std::string> all = {"test_outer", "test_probe", "test_outer", "test_probe", "test_probe"};
  const auto slots = [](const std::vector<KernelCall>& calls) {
    std::vector<std::string> names;
    for (const KernelCall& call : calls) names.push_back(call.slot);
    return names;
  };
  {
    const KernelTrace trace;
    call_all();
    CHECK(slots(trace.calls()) == all);
    CHECK(trace.timed_calls().empty());
  }
  const KernelTrace trace(KernelTrace::timed);
  call_all();
  CHECK(slots(trace.calls()) == all);
  std::vector<KernelCall> timed;
  for (const TimedCall& one : trace.timed_calls()) {
    timed.push_back(one.call);
    CHECK(one.begin <= one.end);
  }
  CHECK(timed == std::vector<KernelCall>{trace.calls()[0], trace.calls()[2], trace.calls()[4]});
}

TEST_CASE("a timed call has the shapes of its tensors, and their bytes with those of the workspace") {
  Tensor y = Tensor::zeros({1}, DType::i32), undefined;
  const KernelTrace trace(KernelTrace::timed);
  test_probe({input(4), 0, y});
  test_probe({input(3), 0, y});
  test_layouts({undefined, y});
  REQUIRE(trace.timed_calls().size() == 3);
  const TimedCall &with = trace.timed_calls()[0], &without = trace.timed_calls()[1], &half = trace.timed_calls()[2];
  CHECK(with.shapes == std::vector<Shape>{{4}, {1}});
  CHECK(with.bytes == 4 * 4 + 4 + 32);
  CHECK(with.call == KernelCall{"", "test_probe", "fast", DType::f32});
  CHECK(without.shapes == std::vector<Shape>{{3}, {1}});
  CHECK(without.bytes == 3 * 4 + 4);
  CHECK(half.shapes == std::vector<Shape>{{0}, {1}});
  CHECK(half.bytes == 4);
}

TEST_CASE("force_variant explains what is wrong with its argument") {
  const Unforce unforce;
  test_probe.force("simple");
  const struct {
    std::vector<const char*> assignments, parts;
  } rows[] = {{{"", "test_probe", "test_probe:simple"}, {"expected SLOT=VARIANT"}},
              {{"=", "=simple", "test_prob=simple", "test_probe2=simple", " test_probe=simple"},
               {"no slot", "test_probe", "relu_forward"}},
              {{"test_probe=", "test_probe=simpl", "test_probe=simple ", "test_probe==simple"},
               {"no such variant", "test_probe=", "simple (cpu)", "fast (cpu)", "middle_a (cpu)", "middle_b (cpu)",
                "device_only (cuda)"}}};
  for (const auto& [assignments, parts] : rows) {
    for (const char* assignment : assignments) {
      CAPTURE(assignment);
      const Error error = thrown_by([&] { force_variant(assignment); });
      CHECK(error.code() == ExitCode::usage);
      for (const char* part : parts) CHECK(says(error, part));
    }
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
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      REQUIRE(v->name != nullptr);
      CAPTURE(v->name);
      CHECK(std::strlen(v->name) > 0);
      cpu_variants += v->device == Device::cpu;
      if (v->next) CHECK(v->rank >= v->next->rank);
    }
    CHECK(cpu_variants >= 1);
  }
  for (const RefusedVariant& one : refused_variants()) CHECK(&one.slot == &test_probe);  // by the test below
  CHECK(slot_names.count("test_without_variants") == 0);
}

TEST_CASE("a variant whose name its slot has already, or whose name is none, is left out, and named as refused") {
  using Variant = Kernel<Probe>::Variant;
  static const Variant refused[] = {{test_probe, Device::cpu, "fast", {.run = write<0>, .rank = 99}},
                                    {test_probe, Device::cpu, nullptr, {.run = write<0>}},
                                    {test_probe, Device::cpu, "", {.run = write<0>}},
                                    {test_probe, Device::cpu, "a=b", {.run = write<0>}}};
  REQUIRE(refused_variants().size() == std::size(refused));
  for (size_t i = 0; i < std::size(refused); ++i) {
    CHECK(&refused_variants()[i].variant == &refused[i]);
    for (const VariantBase* v = test_probe.variants(); v; v = v->next) CHECK(v != &refused[i]);
  }
}

TEST_CASE("the simple rung of a ladder is the last one") {
  for (const KernelSlot* slot : kernel_slots()) {
    CAPTURE(slot->name());
    const VariantBase* last = nullptr;
    for (const VariantBase* v = slot->variants(); v; v = v->next) last = v;
    const bool is_last_resort = last->rank == 0 || last->rank == only_if_forced;
    CHECK((std::string(last->name) == "naive" ? last->rank < 0 : is_last_resort));
  }
}

#if defined(__aarch64__)
const std::vector<std::string> caps = {"neon", "neon_bf16"};
#else
const std::vector<std::string> caps = {"x86-64", "avx2", "avx512", "avx512_bf16", "amx"};
#endif

TEST_CASE("HALFSTEP_ISA caps the features of the processor that kernels use") {
  const CpuFeatures all = find_cpu_features("");
  for (size_t level = 0; level < caps.size(); ++level) {
    const CpuFeatures capped = find_cpu_features(caps[level]);
    CAPTURE(capped.cap);
    CHECK(capped.f16c == (all.f16c && level >= 1));
    CHECK(capped.avx512 == (all.avx512 && level >= 2));
    CHECK(capped.avx512_bf16 == (all.avx512_bf16 && level >= 3));
    CHECK(capped.avx512_fp16 == (all.avx512_fp16 && level >= 3));
    CHECK(capped.amx_bf16 == (all.amx_bf16 && level >= 4));
    CHECK(capped.neon_bf16 == (all.neon_bf16 && level >= 1));
    CHECK(capped.neon_fp16 == (all.neon_fp16 && level >= 1));
    for (const CpuFeature& feature : all.all) CHECK(capped.has(feature.name) == feature.present);
  }
}

#if defined(__x86_64__) && defined(__linux__)
TEST_CASE("variants that multiply bf16 in pairs come before those that widen, but on Intel after them") {
  std::ifstream lines("/proc/cpuinfo");
  std::string vendor;
  for (std::string line; vendor.empty() && std::getline(lines, line);) {
    if (line.starts_with("vendor_id")) vendor = line.substr(line.find(':') + 2);
  }
  REQUIRE(vendor != "");
  CHECK((rank_of_bf16_pairs(10) > 10) == (vendor != "GenuineIntel"));
  for (const KernelSlot* slot : kernel_slots()) {
    std::map<std::string, int> ranks;
    for (const VariantBase* v = slot->variants(); v; v = v->next) ranks[v->name] = v->rank;
    if (ranks.count("avx512_bf16") == 0) continue;
    CAPTURE(slot->name());
    const int widening = ranks.at(ranks.count("direct") != 0 ? "direct" : "blocked");
    CHECK(ranks.at("avx512_bf16") == rank_of_bf16_pairs(widening));
    if (ranks.count("amx") != 0) CHECK(ranks.at("amx") > ranks.at("avx512_bf16"));
  }
}
#endif

TEST_CASE("child: a kernel with a wrong HALFSTEP_ISA" * doctest::skip()) {
  const Error error = thrown_by([] { relu(Tensor::zeros({1 << 18}, DType::bf16)); });
  CHECK(error.code() == ExitCode::usage);
  CHECK(std::string(error.what()).starts_with("HALFSTEP_ISA=avx3: expected " + caps[0]));
}

TEST_CASE("a wrong HALFSTEP_ISA is an error of the first call, before a kernel starts threads") {
  const test::ChildResult child = test::run_child("HALFSTEP_ISA=avx3", "child: a kernel with a wrong HALFSTEP_ISA");
  INFO(child.output);
  CHECK(child.status == 0);
  CHECK(child.output.find("1 passed") != std::string::npos);
}

}  // namespace
}  // namespace hs
