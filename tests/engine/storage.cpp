// The caching allocator: its counters, what happens when memory ends, what the ops keep alive for backward, and that
// two threads can share it.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "engine/autograd.h"
#include "engine/storage.h"
#include "engine/tensor.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"
#include "tests/support/bad_input.h"
#include "tests/support/thrown.h"

namespace hs {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// With AddressSanitizer or the CUDA emulator every storage is an allocation of its own.
const bool caching = [] {
  const size_t before = memory_stats(Device::cpu).reserved;
  { const Storage freed(Device::cpu, 4096); }
  return memory_stats(Device::cpu).reserved > before;
}();

MemoryStats stats() { return memory_stats(Device::cpu); }

// Puts the process-wide settings back, whatever the test does.
struct RestoreSettings {
  ~RestoreSettings() {
    set_memory_limit(Device::cpu, 0);
    set_poison(false);
  }
};

Tensor bytes_tensor(size_t bytes) { return Tensor::empty({static_cast<int64_t>(bytes)}, DType::u8); }

TEST_CASE("live counts the bytes as requested, and every storage once, as long as its last handle") {
  const MemoryStats before = stats();
  const Tensor empty = bytes_tensor(0);
  CHECK(stats().reserved == before.reserved);
  std::optional<Tensor> part;
  {
    const Tensor a = Tensor::zeros({3}, DType::f32);
    const Tensor alias = a, reshaped = a.reshape({3, 1});
    part = a.slice(1, {2});
    CHECK(stats().live == before.live + 12);
    const Tensor b = bytes_tensor(1000);
    CHECK(stats().live == before.live + 1012);
    CHECK(stats().allocations == before.allocations + 2);
    CHECK(stats().reserved >= stats().live);
  }
  CHECK(stats().live == before.live + 12);
  CHECK(part->to_vector<float>() == std::vector<float>{0, 0});
  std::thread([&] { part.reset(); }).join();  // another one than the one that made it
  CHECK(stats().live == before.live);
}

TEST_CASE("a freed block is handed out again for the same size") {
  if (!caching) {
    MESSAGE("skipped: here every storage is an allocation of its own");
    return;
  }
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
    const void* first = bytes_tensor(bytes).raw_data();
    const size_t reserved = stats().reserved;
    const Tensor again = bytes_tensor(bytes);
    CHECK(again.raw_data() == first);
    CHECK(stats().reserved == reserved);
    CHECK(bytes_tensor(bytes).raw_data() != first);  // it is in use now
  }
}

TEST_CASE("the blocks of a pool are its own while it lives, and everybody's afterwards") {
  release_cached_memory(Device::cpu);
  const size_t before = stats().reserved;
  auto pool = make_memory_pool(Device::cpu);
  const auto from_pool = [&] {
    const PoolScope scope(pool);
    return bytes_tensor(5000);
  };
  const void* const own = from_pool().raw_data();
  const size_t reserved = stats().reserved;
  CHECK(reserved > before);
  CHECK(from_pool().raw_data() == own);
  {
    const Tensor other = bytes_tensor(5000);
    CHECK(other.raw_data() != own);
    CHECK(stats().reserved > reserved);
  }
  release_cached_memory(Device::cpu);
  CHECK(stats().reserved == reserved);

  pool = make_memory_pool(Device::cpu);  // the next run's
  CHECK(stats().reserved == (caching ? reserved : before));
  const Tensor again = from_pool();
  CHECK(stats().reserved == (caching ? reserved : before + 5000));
  if (caching) CHECK(again.raw_data() == own);
}

TEST_CASE("a block wastes at most a quarter of itself") {
  if (!caching) {
    MESSAGE("skipped: here blocks have the exact size");
    return;
  }
  for (size_t bytes = 1; bytes < 300000; bytes = bytes * 9 / 8 + 1) {
    release_cached_memory(Device::cpu);
    const size_t before = stats().reserved;
    const Tensor tensor = bytes_tensor(bytes);
    const size_t block = stats().reserved - before;
    CAPTURE(bytes);
    CHECK(block >= bytes);
    CHECK((block == 256 || (block - bytes) * 4 <= block));
  }
}

TEST_CASE("blocks are aligned to 256 bytes") {
  for (const size_t bytes : {size_t{1}, size_t{257}, size_t{5000}, size_t{100001}}) {
    CHECK(reinterpret_cast<uintptr_t>(bytes_tensor(bytes).raw_data()) % 256 == 0);
  }
}

TEST_CASE("releasing the cache lowers reserved and leaves live tensors alone") {
  const Tensor kept = Tensor::from(std::vector<float>(1000, 7.0f), {1000});
  bytes_tensor(1 << 20);
  const MemoryStats before = stats();
  release_cached_memory(Device::cpu);
  const MemoryStats after = stats();
  CHECK(after.live == before.live);
  CHECK(after.reserved >= after.live);
  if (caching) CHECK(after.reserved + (1 << 20) <= before.reserved);
  CHECK(kept.to_vector<float>() == std::vector<float>(1000, 7.0f));
  CHECK(bytes_tensor(1 << 20).defined());
}

#ifndef __SANITIZE_THREAD__  // whose own operator new cannot be replaced
TEST_CASE("a block that there is no memory to remember goes back to the device") {
  release_cached_memory(Device::cpu);
  const MemoryStats before = stats();
  Tensor tensor = bytes_tensor(1 << 20);
  test::memory_has_ended = true;
  tensor = {};
  test::memory_has_ended = false;
  CHECK(stats().live == before.live);
  CHECK(stats().reserved == before.reserved);
}
#endif

TEST_CASE("beyond the memory limit an allocation throws with the numbers that matter, and a smaller one still works") {
  const RestoreSettings restore;
  reset_peak(Device::cpu);
  bytes_tensor(5000);
  const MemoryStats before = stats();
  set_memory_limit(Device::cpu, before.live + 4000);
  const std::string message = test::error_of([&] { bytes_tensor(4001); }, ExitCode::out_of_memory);
  CAPTURE(message);
  CHECK(has(message, "4001 bytes requested"));
  CHECK(has(message, fmt::format("{} live", before.live)));
  CHECK(has(message, fmt::format("{} peak", before.peak)));
  CHECK(has(message, fmt::format("limit {}", before.live + 4000)));
  CHECK(stats().live == before.live);
  {
    const Tensor exact = bytes_tensor(4000);
    CHECK(exact.defined());
    CHECK_THROWS_AS(bytes_tensor(1), Error);
  }
  CHECK(bytes_tensor(4000).defined());
  set_memory_limit(Device::cpu, 0);
  CHECK(bytes_tensor(1 << 20).defined());
}

// One step of a model: forward and backward. The parameters' gradients exist from the arena, so nothing may stay.
void model_step(Module& model, const Tensor& images, const Tensor& labels) {
  backward(softmax_cross_entropy(model.forward(images), labels));
}

TEST_CASE("wherever memory ends in a step, the step leaves nothing behind and a later one succeeds") {
  const RestoreSettings restore;
  const auto model = make_model("mnist_cnn", 1);
  ParameterArena arena(*model);
  const Tensor images = Tensor::zeros({2, 28, 28, 1}, DType::f32);
  const Tensor labels = Tensor::zeros({2}, DType::i32);
  const size_t before = stats().live;
  reset_peak(Device::cpu);
  model_step(*model, images, labels);
  const size_t needed = stats().peak - before;
  int failed = 0;
  constexpr size_t steps = 40;
  for (size_t i = 0; i < steps; ++i) {  // limits from nothing to just below enough: every allocation fails in turn
    set_memory_limit(Device::cpu, before + 1 + needed * i / steps);
    try {
      model_step(*model, images, labels);
    } catch (const Error& error) {
      failed += error.code() == ExitCode::out_of_memory;
    }
    CHECK(stats().live == before);
  }
  CHECK(failed == steps);
  set_memory_limit(Device::cpu, before + needed);
  model_step(*model, images, labels);
}

TEST_CASE("what an op captures, and nothing else, stays alive for backward") {
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  Tensor flat = zeros({6, 16}), image = zeros({1, 6, 4, 4});
  flat.set_requires_grad(true);
  image.set_requires_grad(true);
  const Tensor other = zeros({6, 16}), bias = zeros({16}), matrix = zeros({16, 3}), filter = zeros({36, 2});
  const Tensor labels = Tensor::zeros({6}, DType::i32);
  const size_t all = flat.bytes();  // of an operand; both leaves have 96 elements
  struct Row {
    const char* op;
    const Tensor& x;
    size_t saved;
    std::function<Tensor(const Tensor&)> run;
  };
  const RandomStream stream{};
  const std::vector<Row> rows = {
      {"add", flat, 0, [&](const Tensor& x) { return add(x, other); }},
      {"scale", flat, 0, [&](const Tensor& x) { return scale(x, 3); }},
      {"reshape", flat, 0, [&](const Tensor& x) { return x.reshape({96}); }},
      {"sum", flat, 0, [&](const Tensor& x) { return sum(x); }},
      {"mean", flat, 0, [&](const Tensor& x) { return mean(x); }},
      {"bias_add", flat, 0, [&](const Tensor& x) { return bias_add(x, bias); }},
      {"dropout", flat, 0, [&](const Tensor& x) { return dropout(x, 0.5, stream); }},
      {"cast", flat, 0, [&](const Tensor& x) { return cast(x, DType::bf16); }},
      {"relu", flat, all, [&](const Tensor& x) { return relu(x); }},
      {"mul", flat, all, [&](const Tensor& x) { return mul(x, other); }},
      {"linear", flat, all, [&](const Tensor& x) { return linear(x, matrix, {}); }},
      {"softmax_cross_entropy", flat, all, [&](const Tensor& x) { return softmax_cross_entropy(x, labels); }},
      {"conv2d", image, all, [&](const Tensor& x) { return conv2d(x, filter, {}); }},
      {"max_pool2d", image, 3 * 2 * 4, [&](const Tensor& x) { return max_pool2d(x, 2, 2); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.op);
    const size_t before = stats().live;
    Tensor x = scale(row.x, 1);  // an interior value, which only the closure can keep alive
    Tensor y = row.run(x);
    const auto history = y.grad_info();
    REQUIRE(history != nullptr);
    x = y = {};
    CHECK(stats().live == before + row.saved);
  }
}

TEST_CASE("poison makes fresh floats NaN, in new and in reused blocks") {
  const RestoreSettings restore;
  for (int round = 0; round < 2; ++round) {
    set_poison(true);
    const Tensor f32 = Tensor::empty({100}, DType::f32), f64 = Tensor::empty({100}, DType::f64);
    const Tensor f16 = Tensor::empty({100}, DType::f16), bf16 = Tensor::empty({100}, DType::bf16);
    for (const float value : f32.to_vector<float>()) CHECK(std::isnan(value));
    for (const double value : f64.to_vector<double>()) CHECK(std::isnan(value));
    for (const Half value : f16.to_vector<Half>()) CHECK(std::isnan(to_float(value)));
    for (const BFloat16 value : bf16.to_vector<BFloat16>()) CHECK(std::isnan(to_float(value)));
    CHECK(Tensor::zeros({5}, DType::f32).to_vector<float>() == std::vector<float>(5));
    set_poison(false);
  }
}

// Fills blocks of changing sizes with a pattern of its own and looks for anybody else's writing before freeing them.
bool use_memory(uint8_t pattern) {
  bool intact = true;
  std::vector<Tensor> held;
  for (size_t i = 0; i < 2000; ++i) {
    Tensor tensor = bytes_tensor(1 + (i * 7919) % 5000);
    std::memset(tensor.mutable_raw_data(), pattern, tensor.bytes());
    held.push_back(std::move(tensor));
    if (held.size() < 20) continue;
    const Tensor& oldest = held.front();
    const auto* data = oldest.data<uint8_t>();
    for (size_t k = 0; k < oldest.bytes(); ++k) intact = intact && data[k] == pattern;
    held.erase(held.begin());
  }
  return intact;
}

TEST_CASE("two threads allocate and free at the same time without sharing a block") {
  const MemoryStats before = stats();
  bool intact[2] = {};
  std::thread first([&] { intact[0] = use_memory(0x11); });
  std::thread second([&] { intact[1] = use_memory(0x22); });
  first.join();
  second.join();
  CHECK(intact[0]);
  CHECK(intact[1]);
  CHECK(stats().live == before.live);
  CHECK(stats().allocations == before.allocations + 4000);
}

}  // namespace
}  // namespace hs
