// What goes wrong inside a kernel, and how it is told; and index arithmetic beyond 2^31. Kernels that fail on purpose
// need the compiler of kernels, so most of this is for the emulator, which also forgets its errors: a device would not.
#include <doctest/doctest.h>

#include "engine/captured_work.h"
#include "engine/error.h"
#include "engine/kernel.h"
#include "tests/support/child_process.h"
#include "tests/support/emulated.h"

#ifdef HALFSTEP_TEST_EMULATED
#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/shared.cuh"
#include "kernels/relu/relu.h"

namespace hs::test {
namespace {

// y[i] = x[31 - i] over shared memory, without the barrier in between.
__global__ void racing_kernel(const float* x, float* y) {
  __shared__ SharedArray<float, 32> row;
  const int i = static_cast<int>(threadIdx.x);
  row[i] = x[i];
  y[i] = row[31 - i];
}

__global__ void leave_kernel(float*) {}

struct Broken {
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit Kernel<Broken> broken{"broken"};

void race(const Broken& call) {
  cuda::launch(racing_kernel, 1, 32, 0, cuda::compute_stream(), call.x.data<float>(), call.y.mutable_data<float>());
}
void launch_too_many_threads(const Broken& call) {
  cuda::launch(leave_kernel, 1, 2048, 0, cuda::compute_stream(), call.y.mutable_data<float>());
}
void launch_too_much_shared(const Broken& call) {
  cuda::launch(leave_kernel, 1, 32, 300 << 10, cuda::compute_stream(), call.y.mutable_data<float>());
}
REGISTER_KERNEL(broken, cuda, "race", {.run = race});
REGISTER_KERNEL(broken, cuda, "threads", {.run = launch_too_many_threads});
REGISTER_KERNEL(broken, cuda, "shared", {.run = launch_too_much_shared});

struct Operands {
  Tensor x = Tensor::zeros({4, 8}, DType::f32, Device::cuda), y = x.empty_like();
};

}  // namespace

TEST_CASE("a launch that fails names the slot, the variant, the shapes, the op and what CUDA says") {
  const Emulator fresh;
  Operands t;
  const Op op("test_op");
  broken.force("threads");
  CHECK(device_error([&] {
          broken({t.x, t.y});
        }) ==
        "broken=threads (f32(4, 8), f32(4, 8)): test_op: CUDA error 9, invalid configuration argument, in launch");
  broken.force("shared");
  CHECK(device_error([&] {
          broken({t.x, t.y});
        }) == "broken=shared (f32(4, 8), f32(4, 8)): test_op: CUDA error 1, invalid argument, in launch");
  broken.force(nullptr);
  CHECK(relu(t.x).to_vector<float>() == std::vector<float>(32));  // neither of them harmed the device
}

TEST_CASE("a kernel that fails while it runs is an error of the device, by the next call at the latest") {
  const Emulator fresh;
  Operands t;
  broken.force("race");
  const std::string message = device_error([&] {
    broken({t.x, t.y});
    (void)t.y.to_vector<float>();
  });
  broken.force(nullptr);
  INFO(message);
  CHECK(message.find("CUDA error 719, unspecified launch failure") != std::string::npos);
  const auto reports = emulator::take_reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].find("racing_kernel") != std::string::npos);
}

// Streams are late, so that a launch returns before its kernel has run.
TEST_CASE("child: a failing kernel" * doctest::skip()) {
  emulator::options().delay_streams = true;
  Operands t;
  runtime(Device::cuda).synchronize();
  broken.force("race");
  for (int i = 0; i < 20; ++i) {
    try {
      broken({t.x, t.y});
    } catch (const Error& error) {
      std::printf("attempt %d: %s\n", i, error.what());
      break;
    }
  }
}

TEST_CASE("HALFSTEP_CUDA_SYNC=1 makes the failing kernel's own op report") {
  for (int seed = 1; seed <= 5; ++seed) {
    const std::string seeded = "HALFSTEP_EMULATOR_PRINT=0 HALFSTEP_EMULATOR_SEED=" + std::to_string(seed);
    const ChildResult with = run_child(seeded + " HALFSTEP_CUDA_SYNC=1", "child: a failing kernel");
    INFO(with.output);
    CHECK(with.status == 0);
    CHECK(with.output.find("attempt 0: broken=race (f32(4, 8), f32(4, 8)): CUDA error 719, unspecified launch failure, "
                           "in kernel\n") != std::string::npos);
    const ChildResult without = run_child(seeded, "child: a failing kernel");
    INFO(without.output);
    CHECK(without.output.find("attempt 0:") == std::string::npos);
  }
}

namespace {

// It writes before it waits, which is reported if it has been launched early.
__global__ void impatient_kernel(cuda::Previous previous, float* y) {
  y[0] = 1;
  previous.wait();
}

}  // namespace

TEST_CASE("child: kernels that may begin early" * doctest::skip()) {
  Operands t;
  CHECK(relu(t.x).to_vector<float>() == std::vector<float>(32));
  CHECK_NOTHROW(runtime(Device::cuda).synchronize());
  const std::string message =
      device_error([&] { cuda::launch(impatient_kernel, 1, 1, 0, cuda::compute_stream(), t.y.mutable_data<float>()); });
  std::printf("%s\n", message == "no error" ? "in turn" : "early");
}

TEST_CASE("a kernel begins early where the code that runs can wait and no variable forbids it") {
  for (const auto& [variables, expected] : {
           std::pair{"HALFSTEP_EMULATOR_CODE=90", "early\n"},
           {"HALFSTEP_EMULATOR_CODE=90 HALFSTEP_EMULATOR_DEVICE=120", "early\n"},
           {"HALFSTEP_EMULATOR_CODE=80", "in turn\n"},
           {"HALFSTEP_EMULATOR_CODE=80 HALFSTEP_EMULATOR_DEVICE=80", "in turn\n"},
           {"HALFSTEP_EMULATOR_CODE=80 HALFSTEP_EMULATOR_DEVICE=120", "in turn\n"},
           {"HALFSTEP_CUDA_EARLY=0", "in turn\n"},
           {"HALFSTEP_CUDA_SYNC=1", "in turn\n"},
       }) {
    const ChildResult child =
        run_child(std::string("HALFSTEP_EMULATOR_PRINT=0 ") + variables, "child: kernels that may begin early");
    INFO(variables, "\n", child.output);
    CHECK(child.status == 0);
    CHECK(child.output.find(expected) != std::string::npos);
  }
}

TEST_CASE("a device for which there is no code is refused with what mends it") {
  for (const auto& [device, expected] : {
           std::pair{"75", "skipped: the device halfstep CUDA emulator is 75, and 80 or newer is needed\n"},
           {"86",
            "is 86 (CUDA error 209, no kernel image is available for execution on the device): configure with "
            "-D HALFSTEP_CUDA_ARCHITECTURES=86\n"},
       }) {
    const ChildResult child = run_child(std::string("HALFSTEP_EMULATOR_DEVICE=") + device, "child: a failing kernel");
    INFO(child.output);
    CHECK(child.status == 77);
    CHECK(child.output.ends_with(expected));
  }
}

TEST_CASE("a launch that fails in a capture names the variable that may mend it") {
  const Emulator fresh;
  Operands t;
  CapturedWork work(Device::cuda);
  work.run([] {});
  broken.force("threads");
  const std::string message = device_error([&] { work.run([&] { broken({t.x, t.y}); }); });
  broken.force(nullptr);
  INFO(message);
  CHECK(message.ends_with("in launch, in a capture; HALFSTEP_CUDA_EARLY=0 makes one without early launches"));
}

namespace {

int64_t seen_index = -1;
struct SeeIndex {
  float operator()(int64_t i, float x) const {
    seen_index = i;
    return x + 1;
  }
};

// A pointer that is `elements` before p; only what lies at p is ever used.
template <class T>
T* moved_back(T* p, int64_t elements) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) - static_cast<uintptr_t>(elements) * sizeof(T));
}

}  // namespace

TEST_CASE("indices have 64 bits: blocks, threads and the element-wise loop beyond 2^31") {
  CHECK(cuda::blocks_for(0) == 0);
  CHECK(cuda::blocks_for(1) == 1);
  CHECK(cuda::blocks_for(256) == 1);
  CHECK(cuda::blocks_for(257) == 2);
  CHECK(cuda::blocks_for(4096 * 256) == 4096);
  for (const int64_t size : {(int64_t{1} << 31) + 1, (int64_t{1} << 32) + 1, int64_t{1} << 40, int64_t{1} << 62}) {
    CHECK(cuda::blocks_for(size) == 4096);
  }
  // One thread of a launch, called as the function that it is here, far behind the beginning of a large tensor.
  const dim3 grid_before = gridDim, block_before = blockDim;
  const uint3 index_before = blockIdx, thread_before = threadIdx;
  gridDim = dim3(0x7fffffff, 1, 1);
  blockDim = dim3(256, 1, 1);
  blockIdx = {0x7ffffffe, 0, 0};
  threadIdx = {255, 0, 0};
  const int64_t thread = (int64_t{1} << 39) - 257;
  CHECK(cuda::global_thread() == thread);
  CHECK(cuda::global_threads() == (int64_t{1} << 39) - 256);

  alignas(16) float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {};
  // Packs of four: this thread's pack is the last, and nothing is left over.
  cuda::elementwise_kernel(cuda::Previous{}, 4 * (thread + 1), thread + 1, SeeIndex{}, moved_back(y, 4 * thread),
                           moved_back<const float>(x, 4 * thread));
  CHECK(seen_index == 4 * thread + 3);
  CHECK(std::vector<float>(y, y + 5) == std::vector<float>{2, 3, 4, 5, 0});
  // No packs: element by element.
  cuda::elementwise_kernel(cuda::Previous{}, thread + 1, int64_t{0}, SeeIndex{}, moved_back(y, thread),
                           moved_back<const float>(x, thread));
  CHECK(seen_index == thread);
  CHECK(y[0] == 2);
  gridDim = grid_before, blockDim = block_before, blockIdx = index_before, threadIdx = thread_before;
}

}  // namespace hs::test
#endif
