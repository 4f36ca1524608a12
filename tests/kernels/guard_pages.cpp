// Every variant of every slot of the op table between guard pages: no kernel reads or writes outside of its tensors and
// its workspace. (The workspace has the size that the variant asked for: what a kernel reads past its data there, it
// has asked for.) First, the guard pages themselves.
#include "kernels/examples/guard_pages.h"

#include "engine/parallel.h"
#include "tests/support/checks.h"
#include "tests/support/child_process.h"

namespace hs::test {
namespace {

// Storages of more than a page, of part of one, and of exactly one.
constexpr int64_t sizes[] = {3, 4096, 5001};

// Touches the byte `distance` behind the end of a storage, or before its beginning if negative.
void touch(int64_t distance, bool write) {
  const GuardPages guard;
  GuardPages::set_side(distance < 0 ? GuardPages::Side::before : GuardPages::Side::behind);
  GuardPages::set_description("some_slot=some_variant");
  Tensor tensor = Tensor::empty({5001}, DType::u8);
  volatile uint8_t* byte = tensor.mutable_data<uint8_t>() + (distance < 0 ? distance : 5001 + distance);
  if (write) *byte = 1;
  [[maybe_unused]] const uint8_t value = *byte;
}

void check_reported(const char* test_case, const std::string& access) {
  const ChildResult result = run_child("", test_case);
  INFO(result.output);
  CHECK(result.status == 1);
  CHECK(result.output.find("guard page: some_slot=some_variant: access " + access + " of 5001 bytes\n") !=
        std::string::npos);
}

}  // namespace

TEST_CASE("child: a byte is read behind" * doctest::skip()) { touch(0, false); }
TEST_CASE("child: a byte is written behind" * doctest::skip()) { touch(4000, true); }
TEST_CASE("child: a byte is read before" * doctest::skip()) { touch(-1, false); }

TEST_CASE("an access past either end of a storage is one line, with what ran, and the end of the process") {
  check_reported("child: a byte is read behind", "0 bytes past the end of a storage");
  check_reported("child: a byte is written behind", "4000 bytes past the end of a storage");
  check_reported("child: a byte is read before", "1 bytes before the beginning of a storage");
}

TEST_CASE("storages between guard pages are whole and separate, and aligned as far as their size allows") {
  const GuardPages guard;
  for (const auto side : {GuardPages::Side::behind, GuardPages::Side::before}) {
    GuardPages::set_side(side);
    for (int round = 0; round < 2; ++round) {  // the second gets mappings of the first
      std::vector<Tensor> tensors;
      for (const int64_t size : sizes) {
        Tensor& tensor = tensors.emplace_back(Tensor::empty({size, 4}, DType::f32));
        CHECK(reinterpret_cast<uintptr_t>(tensor.data<float>()) % 4 == 0);
        std::fill_n(tensor.mutable_data<float>(), tensor.size(), static_cast<float>(size));
      }
      for (size_t i = 0; i < tensors.size(); ++i) {
        CHECK(to_numbers(tensors[i]) == Numbers(tensors[i].shape().size(), static_cast<double>(sizes[i])));
      }
    }
  }
}

TEST_CASE("every variant stays inside its tensors") {
  const Poisoned poisoned;
  const GuardPages guard;
  set_threads(1);
  int runs = 0;
  for (const auto side : {GuardPages::Side::behind, GuardPages::Side::before}) {
    GuardPages::set_side(side);
    for_each_run(Device::cpu, [&](const OpCase& row, const RowRun& how) {
      GuardPages::set_description(row.name);
      for_each_variant(row, how, [&](const std::string& description) {
        GuardPages::set_description(description);
        run_row(row, how);
        ++runs;
      });
    });
  }
  set_threads(0);
  CHECK((runs >= 1200 || !is_whole_table()));
}

}  // namespace hs::test
