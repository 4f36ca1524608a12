// The CUDA device's runtime: copies, memory, streams and events, errors. On the emulator and on a device; what only the
// emulator can provoke is between #ifdef HALFSTEP_TEST_EMULATED. Captured work: tests/cuda/capture.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/error.h"
#include "engine/observe.h"
#include "engine/slots.h"
#include "engine/tensor.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/relu/relu.h"
#include "tests/support/child_process.h"
#include "tests/support/emulated.h"

namespace hs::test {
namespace {

const DeviceRuntime& cuda() { return runtime(Device::cuda); }

template <class T>
std::vector<T> counting(int64_t size) {
  std::vector<T> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i % 251);
  return values;
}

template <class T>
void check_copies(const std::vector<T>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  const auto same = [&](const Tensor& t) {
    const auto got = t.to_vector<T>();
    return got.size() == values.size() && (got.empty() || std::memcmp(got.data(), values.data(), t.bytes()) == 0);
  };
  const Tensor host = Tensor::from(values, shape), device = host.to(Device::cuda);
  CHECK(device.device() == Device::cuda);
  CHECK(same(device));
  CHECK(same(device.to(Device::cpu)));
  CHECK(same(device.clone()));
  Tensor to_host = host.empty_like(), within = device.empty_like(), to_device = device.empty_like();
  to_host.copy_from(device);
  within.copy_from(device);
  to_device.copy_from(host);
  CHECK(same(to_host));
  CHECK(same(within));
  CHECK(same(to_device));
  within.fill_zero();
  const auto zeros = within.to_vector<T>();
  CHECK(std::all_of(zeros.begin(), zeros.end(),
                    [](T value) { return std::memcmp(&value, "\0\0\0\0", sizeof value) == 0; }));
  if (values.size() < 100) return;
  const Tensor part = device.slice(37, {5, 3});  // in the middle of the memory, at no alignment
  const auto got = part.to_vector<T>();
  CHECK(std::memcmp(got.data(), values.data() + 37, 15 * sizeof(T)) == 0);
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Blocks are kept in this scope. REQUIRES: no tensor lives across its borders
class Caching {
 public:
  Caching() { set_caching(true); }
  ~Caching() {
    release_cached_memory(Device::cuda);
    release_cached_memory(Device::cpu);
    set_caching(false);
  }
};

}  // namespace

TEST_CASE("the device says what it is") {
  CHECK(is_available(Device::cuda));
  CHECK(why_unavailable(Device::cuda).empty());
  std::string keys;
  for (const auto& [key, value] : cuda().describe()) {
    keys += key + " ";
    CHECK(!value.empty());
  }
  CHECK(keys == "name architecture memory_bytes driver toolkit built_for ");
}

TEST_CASE("every type is copied in every direction") {
  for (const int64_t size : {0, 1, 1000, 300000}) {
    check_copies(counting<float>(size));
    check_copies(counting<int32_t>(size));
    check_copies(counting<uint8_t>(size));
    std::vector<Half> halves;
    std::vector<BFloat16> bfloats;
    for (int64_t i = 0; i < size; ++i) {
      halves.push_back({static_cast<uint16_t>(i)});
      bfloats.push_back({static_cast<uint16_t>(i)});
    }
    check_copies(halves);
    check_copies(bfloats);
  }
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CHECK(cast(Tensor::from(std::vector<float>{-2.5f}, {}), dtype).to(Device::cuda).item() == -2.5);
  }
  CHECK(Tensor::from(std::vector<int32_t>{-7}, {}).to(Device::cuda).item() == -7);
  CHECK(Tensor::from(std::vector<uint8_t>{200}, {1}).to(Device::cuda).item() == 200);
  CHECK_THROWS_AS(Tensor::empty({2}, DType::f64, Device::cuda), Error);
  CHECK_THROWS_AS(Tensor::from(std::vector<float>{1, 2}, {2}).to(Device::cuda).item(), Error);
}

TEST_CASE("a tensor of bytes is carved into typed pieces") {
  Tensor bytes = Tensor::zeros({4096}, DType::u8, Device::cuda);
  Tensor floats = bytes.carve(256, {3, 5}, DType::f32), halves = bytes.carve(1024, {7}, DType::f16);
  floats.copy_from(Tensor::from(counting<float>(15), {3, 5}));
  halves.copy_from(cast(Tensor::from(counting<float>(7), {7}), DType::f16));
  CHECK(relu(floats).to_vector<float>() == counting<float>(15));
  CHECK(cast(halves, DType::f32).to_vector<float>() == counting<float>(7));
  const auto all = bytes.to_vector<uint8_t>();
  CHECK(std::count_if(all.begin(), all.begin() + 256, [](uint8_t byte) { return byte != 0; }) == 0);
  CHECK(std::memcmp(all.data() + 256, counting<float>(15).data(), 60) == 0);
  CHECK_NOTHROW(bytes.carve(0, {1024}, DType::f32));
  CHECK_THROWS_AS(bytes.carve(2, {1}, DType::f32), Error);       // misaligned
  CHECK_THROWS_AS(bytes.carve(256, {1024}, DType::f32), Error);  // too long
  CHECK_THROWS_AS(bytes.carve(-4, {1}, DType::f32), Error);
  CHECK_THROWS_AS(floats.carve(0, {1}, DType::f16), Error);  // not of bytes
}

TEST_CASE("memory is counted exactly, and given back at once without caching") {
  release_cached_memory(Device::cuda);
  reset_peak(Device::cuda);
  const MemoryStats before = memory_stats(Device::cuda);
  CHECK(before.peak == before.live);
  {
    const Tensor a = Tensor::empty({1001}, DType::f32, Device::cuda);
#ifdef HALFSTEP_TEST_EMULATED  // which lets allocations end at a page
    CHECK(reinterpret_cast<uintptr_t>(a.raw_data()) % 16 == 0);
#else
    CHECK(reinterpret_cast<uintptr_t>(a.raw_data()) % 256 == 0);
#endif
    CHECK(memory_stats(Device::cuda).live == before.live + 4004);
    CHECK(memory_stats(Device::cuda).reserved == before.reserved + 4004);
    { const Tensor b = a.clone(); }
    const Tensor none = Tensor::empty({0, 5}, DType::f32, Device::cuda);  // takes nothing
    CHECK(memory_stats(Device::cuda).live == before.live + 4004);
  }
  const MemoryStats after = memory_stats(Device::cuda);
  CHECK(after.live == before.live);
  CHECK(after.reserved == before.reserved);
  CHECK(after.peak == before.live + 8008);
  CHECK(after.allocations == before.allocations + 2);
}

TEST_CASE("a full device: the error names the op and the sizes, and a smaller batch works in the same process") {
  const std::string message = device_error([] { Tensor::empty({int64_t{1} << 45}, DType::u8, Device::cuda); });
  CHECK(holds(message, "out of cuda memory: 35184372088832 bytes requested, "));
  CHECK(holds(message, " live, "));
  CHECK(holds(message, " peak; use a smaller batch"));
  CHECK(relu(Tensor::from(std::vector<float>{-1, 2}, {2}).to(Device::cuda)).to_vector<float>() ==
        std::vector<float>{0, 2});
#ifdef HALFSTEP_TEST_EMULATED
  const Emulator fresh;
  const Tensor x = Tensor::from(counting<float>(10000), {10000}).to(Device::cuda);
  emulator::options().total_memory = emulator::live_bytes() + 30000;
  CHECK(holds(device_error([&] { relu(x); }), "relu: out of cuda memory: 40000 bytes requested, "));
  CHECK(relu(x.slice(0, {5000})).to_vector<float>() == counting<float>(5000));
  emulator::fail_malloc(1);  // the cache is emptied, and the second attempt succeeds
  CHECK(relu(x.slice(0, {5000})).to_vector<float>() == counting<float>(5000));
  const Caching caching;
  emulator::options().total_memory = emulator::live_bytes() + 3 * 4096;
  for (int i = 0; i < 2; ++i) {  // blocks of one size that are free make room for another size
    { const Tensor a = Tensor::empty({1000}, DType::f32, Device::cuda), b = a.empty_like(), c = a.empty_like(); }
    const Tensor whole = Tensor::empty({10000}, DType::u8, Device::cuda);
    CHECK(whole.defined());
  }
#endif
}

namespace {

// The loader's protocol over two pairs of buffers: a pinned buffer is filled again after its upload, a device buffer is
// overwritten after its last reader, and kernels wait for the upload. One of the waits can be left out.
enum class Missing { nothing, wait_for_upload, wait_before_refill, wait_for_release };

bool loader_run(Missing missing) {
  constexpr int64_t size = 64;
  constexpr int batches = 8;
  struct Slot {
    float* host = static_cast<float*>(cuda().allocate_host(size * sizeof(float)));
    Tensor device = Tensor::empty({size}, DType::f32, Device::cuda);
    void* uploaded = cuda().create_event(EventTiming::off);
    void* released = cuda().create_event(EventTiming::off);
    ~Slot() {
      cuda().release_host(host);
      cuda().destroy_event(uploaded);
      cuda().destroy_event(released);
    }
  } slots[2];
  Tensor sum = Tensor::zeros({size}, DType::f32, Device::cuda);
  cuda().synchronize();
  float expected = 0;
  for (int b = 0; b < batches; ++b) {
    Slot& slot = slots[b % 2];
    if (missing != Missing::wait_before_refill) cuda().wait_on_host(slot.uploaded);
    std::fill_n(slot.host, size, static_cast<float>(b + 1));
    if (missing != Missing::wait_for_release) cuda().wait_on_stream(slot.released, Stream::copy);
    cuda().upload(slot.device.mutable_raw_data(), slot.host, slot.device.bytes());
    cuda().record_event(slot.uploaded, Stream::copy);
    if (missing != Missing::wait_for_upload) cuda().wait_on_stream(slot.uploaded, Stream::compute);
    accumulate(slot.device, sum);
    cuda().record_event(slot.released, Stream::compute);
    expected += static_cast<float>(b + 1);
  }
  cuda().synchronize();
  return sum.to_vector<float>() == std::vector<float>(size, expected);
}

}  // namespace

TEST_CASE("uploads beside the kernels: right with every event wait, wrong without one") {
  CHECK(loader_run(Missing::nothing));
#ifdef HALFSTEP_TEST_EMULATED
  int wrong[4] = {};
  for_each_delay(50, [&] {
    for (int missing = 0; missing < 4; ++missing) wrong[missing] += !loader_run(static_cast<Missing>(missing));
  });
  CHECK(wrong[0] == 0);
  for (int missing = 1; missing < 4; ++missing) {
    INFO("wait ", missing);
    CHECK(wrong[missing] >= 1);
  }
#endif
}

#ifdef HALFSTEP_TEST_EMULATED
TEST_CASE("child: memory that is written again after its upload" * doctest::skip()) {
  for_each_delay(20, [&] {
    std::vector<float> values = counting<float>(1000);
    Tensor x = Tensor::empty({1000}, DType::f32, Device::cuda);
    cuda().copy(x.mutable_raw_data(), values.data(), 4000, CopyDirection::to_device);
    values.assign(1000, -1);
    CHECK(x.to_vector<float>() == counting<float>(1000));
  });
}

TEST_CASE("a device that reads the host's memory by itself does it before a copy returns") {
  const ChildResult child = run_child("HALFSTEP_EMULATOR_PAGEABLE_ACCESS=1", "child: memory that is written again*");
  INFO(child.output);
  CHECK(child.status == 0);
}
#endif

TEST_CASE("ops follow one another on the compute stream, whatever the delays") {
  const auto work = [] {
    Tensor x = Tensor::from(counting<float>(2000), {2000}).to(Device::cuda);
    for (int i = 0; i < 5; ++i) x = add(scale(x, 0.5), relu(x));  // temporaries are freed while kernels are queued
    return x.to_vector<float>();
  };
  const auto expected = work();
  for_each_delay(10, [&] { CHECK(work() == expected); });
  for_each_delay(10, [&] {
    const Caching caching;
    CHECK(work() == expected);
  });
}

}  // namespace hs::test
