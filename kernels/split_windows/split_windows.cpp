#include "kernels/split_windows/split_windows.h"

#include "engine/check.h"

namespace hs {

TokenBatch split_windows(const Tensor& windows) {
  const Op op("split_windows");
  const Shape& shape = windows.shape();
  check(windows.dtype() == DType::u8 && shape.rank() == 4 && shape[1] == 1 && shape[2] > 1 &&
            (shape[3] == 1 || shape[3] == 2),
        "split_windows: windows are {}, expected u8 (N, 1, T + 1, 1) or, of two bytes a symbol, (N, 1, T + 1, 2)",
        windows);
  const int64_t N = shape[0], T = shape[2] - 1;
  TokenBatch batch{Tensor::empty({N, T}, DType::i32, windows.device()),
                   Tensor::empty({N * T}, DType::i32, windows.device())};
  split_windows_kernel({windows, batch.tokens, batch.labels});
  return batch;
}

namespace {

void split_windows_cpu(const SplitWindows& call) {
  const int64_t N = call.tokens.shape()[0], T = call.tokens.shape()[1];
  const uint8_t* window = call.windows.data<uint8_t>();
  int32_t* tokens = call.tokens.mutable_data<int32_t>();
  int32_t* labels = call.labels.mutable_data<int32_t>();
  const int64_t width = call.windows.shape()[3];  // bytes of a symbol
  const auto symbol = [&](int64_t t) { return width == 1 ? window[t] : window[2 * t] | window[2 * t + 1] << 8; };
  for (int64_t n = 0; n < N; ++n, window += (T + 1) * width) {
    for (int64_t t = 0; t < T; ++t) {
      tokens[n * T + t] = symbol(t);
      labels[n * T + t] = symbol(t + 1);
    }
  }
}

REGISTER_KERNEL(split_windows_kernel, cpu, "simple", {.run = split_windows_cpu});

}  // namespace
}  // namespace hs
