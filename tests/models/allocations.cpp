// The allocations of one training step that has run before: calls of malloc and its like on all threads (operator new
// ends there), and storages of the engine. The numbers are locked: more are a step that got slower, fewer are progress
// to write down here. What is left is small and of a number that depends on the model alone, not on the batch:
//   a storage      its handle; the memory itself comes from the engine's cache
//   a recorded op  its node, the node's list of inputs, the place of its result in the graph, the captures of its rule,
//                  and the list of gradients that the rule returns
//   backward()     the order of the nodes, the stack that finds it, the gradients on their way, the queue of dying
//   nodes a step         the list of its micro-batches
// Texts, of shapes for the sentences of errors, would be most of it if check() did not build them only when it fails.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>

#include "engine/parallel.h"
#include "engine/storage.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/one_step.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which have their own malloc

namespace {
std::atomic<bool> counting = false;
std::atomic<int> allocations = 0;
void count() {
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
}
}  // namespace

// This program's allocations, in the place of the C library's, which do the work. free() stays.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* data, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t number, size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* data, size_t bytes) {
  count();
  return __libc_realloc(data, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** data, size_t alignment, size_t bytes) {
  count();
  *data = __libc_memalign(alignment, bytes);
  return *data ? 0 : 12;  // ENOMEM
}
}

namespace hs::test {
namespace {

struct Counts {
  int allocations;
  size_t storages;
  bool operator==(const Counts&) const = default;
};

Counts count_step(const char* model, Precision precision, bool fuse, int64_t samples) {
  TrainConfig config;
  config.precision = precision;
  config.fuse = fuse;
  OneStep step(model, config, samples);
  for (int i = 0; i < 3; ++i) step.run();
  const size_t before = memory_stats(Device::cpu).allocations;
  allocations = 0;
  counting = true;
  step.run();
  counting = false;
  return {allocations, memory_stats(Device::cpu).allocations - before};
}

void check_counts(const char* model, Precision precision, bool fuse, const Counts& locked) {
  for (const int64_t samples : {50, 80}) {
    const Counts counts = count_step(model, precision, fuse, samples);
    INFO(std::string(model), " ", std::string(name(precision)), std::string(fuse ? "" : " without fused ops"), ", ",
         samples, " samples: ", counts.allocations, " allocations and ", counts.storages, " storages, expected ",
         locked.allocations, " and ", locked.storages);
    CHECK(counts == locked);
  }
}

}  // namespace

TEST_CASE("allocations of a training step") {
  set_threads(2);
  // Whether products of bf16 read their left factor where it lies, and need no memory to pack it.
  const Tensor a = Tensor::zeros({16, 16}, DType::bf16);
  Tensor c = Tensor::zeros({16, 16}, DType::bf16);
  const size_t packs = gemm.workspace({.a = a, .b = a, .c = c}) == 0 ? 0 : 1;
  check_counts("mnist_cnn", Precision::f32, true, {56, 19});
  check_counts("mnist_cnn", Precision::bf16, true, {56, 19 + packs});
  check_counts("mnist_cnn", Precision::f32, false, {84, 27});
  check_counts("mnist_cnn", Precision::bf16, false, {84, 27 + packs});
  check_counts("mlp", Precision::f32, true, {29, 9});
  check_counts("mlp", Precision::bf16, true, {30, 11 + 3 * packs});
  set_threads(0);
}

}  // namespace hs::test

#endif
