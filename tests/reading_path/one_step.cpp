// One training step of mnist_cnn with the simplest variant of every kernel, counted: tests/reading_path/run compiles
// the library with coverage, and this program resets the counters before its second step and writes them out after it.
// The first step keeps one-time work, static objects and first allocations, out of the count. A third step, which is
// not counted, prints its kernel calls.
#include <cstdio>
#include <string_view>

#include "engine/check.h"
#include "engine/kernel.h"
#include "engine/observe.h"
#include "engine/parallel.h"
#include "tests/support/one_step.h"

// Functions of libgcov; in GCC 12 the header <gcov.h> declares them as C++ functions.
extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

namespace {

// The variant to read is the first of these names that the slot has on the CPU.
void force_simplest(hs::KernelSlot& slot) {
  for (const char* name : {"naive", "simple"}) {
    for (const hs::VariantBase* v = slot.variants(); v; v = v->next) {
      if (v->device == hs::Device::cpu && std::string_view(v->name) == name) return slot.force(name);
    }
  }
  hs::fail(hs::ExitCode::internal, "{}: no naive and no simple variant on the cpu; register one", slot.name());
}

// Prints each call: slot=variant, its tensors, and how many bytes they are.
struct PrintCalls : hs::Observer {
  PrintCalls() : Observer(hs::Event::work, Watch::this_thread) {}
  void work_ends(const hs::DeviceWork& work, bool) override {
    if (work.tensors.empty()) return;
    size_t bytes = 0;
    std::printf("%s=%s", work.name, work.variant);
    for (const hs::Tensor* tensor : work.tensors) {
      if (!tensor->defined()) continue;
      bytes += tensor->bytes();
      std::printf(" %s", fmt::format("{}", *tensor).c_str());
    }
    std::printf(", %zu bytes\n", bytes);
  }
  const hs::Attached attached{*this};
};

}  // namespace

int main() try {
  hs::set_threads(1);
  for (hs::KernelSlot* slot : hs::kernel_slots()) force_simplest(*slot);
  hs::TrainConfig config;
  config.fuse = false;
  hs::test::OneStep step("mnist_cnn", config, 8);
  step.run();
  __gcov_reset();
  step.run();
  __gcov_dump();
  const PrintCalls printed;
  step.run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "one_step: %s\n", error.what());
  return 1;
}
