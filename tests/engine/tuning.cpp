// Tuning tables: which variant a call takes while one is in use, and what a damaged or foreign one is refused with.
#include "engine/tuning.h"

#include <vector>

#include "engine/kernel.h"
#include "kernels/relu/relu.h"
#include "tests/support/thrown.h"

namespace hs {
namespace {

struct Probe {
  const Tensor& x;
  const Tensor& other;
  Tensor& y;
  const char* layout = nullptr;
  auto tensors() const { return tensor_list(x, other, y); }
};
constinit Kernel<Probe> test_tuned{"test_tuned"};

template <int id>
void write(const Probe& call) {
  call.y.mutable_data<int32_t>()[0] = id;
}
bool even(const Probe& call) { return call.x.size() % 2 == 0; }

REGISTER_KERNEL(test_tuned, cpu, "best", {.run = write<2>, .rank = 20, .layout = "rows"});
REGISTER_KERNEL(test_tuned, cpu, "even", {.run = write<1>, .supported = even, .rank = 10, .layout = "blocks"});
REGISTER_KERNEL(test_tuned, cpu, "simple", {.run = write<0>, .rank = 0, .layout = "rows"});

const std::string machine = "Some CPU; 3 GHz";

std::string table_of(const std::vector<std::pair<std::string, std::string>>& choices) {
  return tuning_text(machine, "halfstep 1.2.3 (abc)", "a comment", choices);
}
TuningTable parse(const std::string& text) { return parse_tuning(text, "FILE", machine); }
TuningTable one_choice(const std::string& call, const std::string& variant) {
  return parse(table_of({{call, variant}}));
}

std::string variant(int64_t size, const char* layout = nullptr, DType type = DType::f32) {
  Tensor y = Tensor::zeros({1}, DType::i32);
  return test_tuned({Tensor::zeros({size, 1}, type), no_tensor(), y, layout}).name;
}

std::string refusal(const std::string& text) {
  return test::error_of([&] { parse(text); }, ExitCode::bad_input);
}

TEST_CASE("a call takes the variant of its line while the table is in use, other calls go by rank") {
  CHECK(variant(4) == "best");
  const std::string text = table_of({{"test_tuned cpu f32(4,1) - i32(1)", "simple"},
                                     {"test_tuned cpu f32(6,1) - i32(1)", "even"},
                                     {"test_tuned cpu bf16(4,1) - i32(1)", "best"}});
  for (int again = 0; again < 2; ++again) {
    const TuningInUse use(parse(text));
    CHECK(variant(4) == "simple");
    CHECK(variant(6) == "even");
    CHECK(variant(4, nullptr, DType::bf16) == "best");
    CHECK(variant(3) == "best");
    CHECK(variant(4, nullptr, DType::u8) == "best");
    CHECK(use.calls() == 3);
    Tensor y = Tensor::zeros({1}, DType::i32);
    const Tensor x = Tensor::zeros({4, 1}, DType::f32);
    CHECK(std::string(test_tuned({x, x, y}).name) == "best");  // the second tensor is defined
  }
  CHECK(variant(4) == "best");
}

TEST_CASE("a forced variant comes before the table") {
  const TuningInUse use(one_choice("test_tuned cpu f32(4,1) - i32(1)", "simple"));
  test_tuned.force("even");
  CHECK(variant(4) == "even");
  test_tuned.force(nullptr);
  CHECK(variant(4) == "simple");
  CHECK(use.calls() == 1);
}

TEST_CASE("a variant that does not support the call, or cannot read what was kept, is not taken") {
  {
    const TuningInUse use(one_choice("test_tuned cpu f32(3,1) - i32(1)", "even"));
    CHECK(variant(3) == "best");
    CHECK(use.calls() == 0);
  }
  const TuningInUse use(one_choice("test_tuned cpu f32(4,1) - i32(1)", "even"));
  CHECK(variant(4, "rows") == "best");
  CHECK(variant(4, "blocks") == "even");
  CHECK(variant(4) == "even");
}

TEST_CASE("workspace() and run_in() go by rank: the table may know only one of them by its tensors") {
  const TuningInUse use(one_choice("test_tuned cpu f32(4,1) - i32(1)", "simple"));
  Tensor y = Tensor::zeros({1}, DType::i32), memory;
  test_tuned.run_in(memory, {Tensor::zeros({4, 1}, DType::f32), no_tensor(), y});
  CHECK(y.item() == 2);
}

TEST_CASE("a spy gets an op's calls, and makes them with the table's choice") {
  const TuningInUse use(one_choice("test_tuned cpu f32(4,1) - i32(1)", "simple"));
  int calls = 0;
  const KernelSpy spy = [&](const SpiedCall& call) -> const VariantBase& {
    ++calls;
    CHECK(&call.slot == &test_tuned);
    CHECK(to_text(call.slot.name(), "cpu", signature(call.tensors)) == "test_tuned cpu f32(4,1) - i32(1)");
    return call.again();
  };
  {
    const SpyScope scope(&spy);
    CHECK(variant(4) == "simple");
    CHECK(variant(4) == "simple");
  }
  CHECK(variant(4) == "simple");
  CHECK(calls == 2);
}

TEST_CASE("scalars and the types of all tensors are written and read") {
  const std::string call = "relu_forward cpu f32() f16(1,2,3,4) bf16(0) f64(9) i32(12) u8(7) -";
  const TuningTable table = one_choice(call, "simple");
  REQUIRE(table.calls.size() == 1);
  CHECK(table.machine == machine);
  CHECK(to_text("relu_forward", "cpu", table.calls[0].tensors) == call);
  CHECK(table.calls[0].slot == &relu_forward);
}

TEST_CASE("a table of another machine is refused, any is not") {
  const std::string text = table_of({});
  CHECK_NOTHROW(parse(text));
  CHECK_NOTHROW(parse_tuning("halfstep-tuning 1; any; me\nend\n", "FILE", "Other CPU"));
  CHECK(test::error_of([&] { parse_tuning(text, "FILE", "Other CPU"); }, ExitCode::bad_input) ==
        "FILE, line 1: measured on Some CPU; 3 GHz, and this is Other CPU: run `halfstep-bench tune kernels` here, or "
        "write any in place of that name to use the choices all the same");
}

TEST_CASE("a damaged line is refused with its number") {
  for (const char* first :
       {"", "{}", "halfstep-tuning 2; Some CPU; 3 GHz; x", "halfstep-tuning 1", "halfstep-tuning 1; x"}) {
    CAPTURE(first);
    CHECK(refusal(std::string(first) + "\nend\n").starts_with("FILE, line 1: found '"));
  }
  CHECK(refusal("").starts_with("FILE: found ''"));
  const std::string opening = "halfstep-tuning 1; any; me\n";
  for (const char* line : {"", "test_tuned", "test_tuned cpu f32(4,1) - i32(1)", "test_tuned cpu f32(4,1) - i32(1) = ",
                           "test_tuned cpu f32(4, 1) - i32(1) = simple", "test_tuned cpu f32(4,1 - i32(1) = simple",
                           "test_tuned  cpu f32(4,1) = simple", "test_tuned cpu f33(4,1) = simple",
                           "test_tuned cpu f32(-4,1) = simple", "test_tuned cpu f32(04,1) = simple",
                           "test_tuned cpu = simple", "test_tuned cpu f32(99999999999999999999) = simple",
                           "test_tuned cpu f32(4,1) - i32(1)= simple", "test_tuned cpu f32(4x1) = simple"}) {
    CAPTURE(line);
    const std::string message = refusal(opening + "# fine\n" + line + "\nend\n");
    CHECK(message.starts_with("FILE, line 3: found '"));
    CHECK(message.ends_with("expected SLOT DEVICE TENSORS = VARIANT; run `halfstep-bench tune kernels` again"));
  }
  const std::string line = "test_tuned cpu f32(4,1) - i32(1) = simple\n";
  CHECK(refusal(opening + line + line + "end\n") ==
        "FILE, line 3: this call has a line before; expected one; delete one of them");
  for (const std::string& text : {opening, opening + line, opening + line + "en", opening + "end\n" + line}) {
    CAPTURE(text);
    refusal(text);
  }
  CHECK(refusal(opening + line).starts_with("FILE: expected 'end' as its last line"));
}

TEST_CASE("a kernel that this build lacks is refused by its name") {
  for (const auto& [call, variant, named] : {std::array{"test_tuned cpu f32(4)", "quick", "test_tuned=quick on cpu"},
                                             {"no_slot cpu f32(4)", "simple", "no_slot=simple on cpu"},
                                             {"test_tuned gpu f32(4)", "simple", "test_tuned=simple on gpu"},
                                             {"test_tuned cpu f32(4)", "simple ", "test_tuned=simple  on cpu"}}) {
    CHECK(refusal(table_of({{call, variant}})) ==
          std::string("FILE, line 3: this build has no kernel ") + named + "; run `halfstep-bench tune kernels` again");
  }
}

}  // namespace
}  // namespace hs
