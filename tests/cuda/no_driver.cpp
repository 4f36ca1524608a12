// A build with CUDA on a machine without a driver or a device: the CPU works, and the device refuses with the reason.
// Whatever this machine has is hidden before the first call of CUDA.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <functional>

#include "engine/captured_work.h"
#include "engine/error.h"
#include "kernels/gemm/cublaslt_library.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/relu/relu.h"
#include "models/models.h"

namespace hs::test {
namespace {

[[maybe_unused]] const bool hidden = [] {
  setenv("HALFSTEP_EMULATOR_NO_DEVICE", "1", 1);
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  return true;
}();

// 35: the driver is missing, or too old. 100: there is a driver, but no device that it may show.
bool says_why(const std::string& text) {
#ifndef HALFSTEP_TEST_EMULATED
  if (text.find("CUDA error 100, ") != std::string::npos) return true;
#endif
  return text.find("CUDA error 35, ") != std::string::npos;
}

}  // namespace

TEST_CASE("without a driver the device is not available, and says why") {
  CHECK(!is_available(Device::cuda));
  const std::string why = why_unavailable(Device::cuda);
  INFO(why);
  CHECK(why.find("no usable CUDA device (CUDA error ") == 0);
  CHECK(says_why(why));
  CHECK(is_available(Device::cpu));
  CHECK(why_unavailable(Device::cpu).empty());
}

TEST_CASE("without a driver everything that needs the device throws exit code 7 with the reason") {
  const Tensor x = Tensor::from(std::vector<float>{-1, 2}, {2});
  const auto model = make_model("mlp", 1);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"runtime", [] { runtime(Device::cuda); }},
      {"empty", [] { Tensor::empty({2}, DType::f32, Device::cuda); }},
      {"zeros", [] { Tensor::zeros({2}, DType::i32, Device::cuda); }},
      {"to", [&] { (void)x.to(Device::cuda); }},
      {"in a pool",
       [] {
         const PoolScope scope(make_memory_pool(Device::cuda));
         Tensor::empty({2}, DType::f32, Device::cuda);
       }},
      {"captured work", [] { CapturedWork work(Device::cuda); }},
      {"parameters", [&] { ParameterArena arena(*model, Device::cuda); }},
  };
  for (const auto& [what, call] : calls) {
    INFO(what);
    for (int i = 0; i < 2; ++i) {  // the reason is remembered
      try {
        call();
        FAIL_CHECK("did not throw");
      } catch (const Error& error) {
        INFO(error.what());
        CHECK(error.code() == ExitCode::device);
        CHECK(says_why(error.what()));
        CHECK(std::string(error.what()).find("; use the cpu") != std::string::npos);
      }
    }
  }
  // What asks for no memory is harmless.
  CHECK_NOTHROW(Tensor().defined());
  CHECK(memory_stats(Device::cuda).live == 0);
  CHECK_NOTHROW(release_cached_memory(Device::cuda));
  CHECK_NOTHROW(reset_peak(Device::cuda));
}

TEST_CASE("without a driver cuBLASLt is found, with every function that we call") {
  CHECK_NOTHROW(cublaslt::cublas_lt());
}

TEST_CASE("without a driver the CPU works") {
  Tensor x = Tensor::from(std::vector<float>{-1, 2}, {2});
  x.set_requires_grad(true);
  const Tensor y = relu(x);
  backward(y, Tensor::from(std::vector<float>{5, 7}, {2}));
  CHECK(y.to_vector<float>() == std::vector<float>{0, 2});
  CHECK(x.grad().to_vector<float>() == std::vector<float>{0, 7});
}

}  // namespace hs::test
