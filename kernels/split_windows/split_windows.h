// Windows of a text to what a network reads and what it is to predict: of T + 1 symbols the first T, and the last T.
#pragma once

#include "engine/kernel.h"
#include "engine/observe.h"

namespace hs {

// What split_windows() returns.
struct TokenBatch {
  Tensor tokens;  // (N, T) i32
  Tensor labels;  // (N * T) i32: of each token, the one after it
};

// windows (N, 1, T + 1, 1) u8, as a loader gives them, or (N, 1, T + 1, 2), whose symbols have two bytes, the low one
// first. Not differentiable. Throws Error: usage if they are not.
TokenBatch split_windows(const Tensor& windows);

struct SplitWindows {  // windows as in split_windows(), and its tokens and labels
  const Tensor& windows;
  Tensor& tokens;
  Tensor& labels;
  auto tensors() const { return tensor_list(windows, tokens, labels); }
};
constinit inline Kernel<SplitWindows> split_windows_kernel{"split_windows"};

}  // namespace hs
