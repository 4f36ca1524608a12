// Mistakes in kernels of rows, and in what pooling keeps for backward.
#include <halfstep/kernel.h>

#include <cmath>

namespace hs {
namespace {

bool is_easy(const SoftmaxForward& call) { return is_f32(call.x); }

void softmax_of(const float* x, int64_t C, float* y, float largest) {
  double sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += y[c] = std::exp(x[c] - largest);
  for (int64_t c = 0; c < C; ++c) y[c] = static_cast<float>(y[c] / sum);
}

// f(x, C, y) for each row.
template <class F>
void for_rows(const SoftmaxForward& call, const F& f) {
  const int64_t C = call.x.shape().back();
  for (int64_t i = 0; i < call.x.size(); i += C) f(call.x.data<float>() + i, C, call.y.mutable_data<float>() + i);
}

// overflow: does not subtract the row's maximum, as inputs are small. Refused by: rows|large|nan.
void overflow(const SoftmaxForward& call) {
  for_rows(call, [](const float* x, int64_t C, float* y) { softmax_of(x, C, y, 0); });
}
REGISTER_KERNEL(softmax_forward, cpu, "overflow", {.run = overflow, .supported = is_easy, .rank = 100});

// multiples_of_8: takes every number of columns for a multiple of 8. Refused by: rows|drawn.
void multiples_of_8(const SoftmaxForward& call) {
  for_rows(call, [](const float* x, int64_t C, float* y) {
    const int64_t whole = std::max<int64_t>(C / 8 * 8, 1);
    softmax_of(x, whole, y, *std::max_element(x, x + whole));
    std::fill(y + whole, y + C, 0.0f);
  });
}
REGISTER_KERNEL(softmax_forward, cpu, "multiples_of_8", {.run = multiples_of_8, .supported = is_easy, .rank = 100});

// input_as_scratch: uses its input as scratch memory, instead of a workspace. Refused by: inputs.
void input_as_scratch(const SoftmaxForward& call) {
  for_rows(call, [](const float* x, int64_t C, float* y) {
    softmax_of(x, C, const_cast<float*>(x), *std::max_element(x, x + C));
    std::copy_n(x, C, y);
  });
}
REGISTER_KERNEL(softmax_forward, cpu, "input_as_scratch", {.run = input_as_scratch, .supported = is_easy, .rank = 100});

// workspace_overrun: asks for 64 bytes of workspace, and uses a row's. Refused by: guard.
void workspace_overrun(const SoftmaxForward& call, Tensor& workspace) {
  auto* row = static_cast<float*>(workspace.mutable_raw_data());
  for_rows(call, [row](const float* x, int64_t C, float* y) {
    softmax_of(x, C, row, *std::max_element(x, x + C));
    std::copy_n(row, C, y);
  });
}
int64_t bytes(const SoftmaxForward&) { return 64; }
REGISTER_KERNEL(softmax_forward, cpu, "workspace_overrun",
                {.run = workspace_overrun, .supported = is_easy, .workspace = bytes, .rank = 100});

// choice_unwritten: of a large image it writes no `choice`, which only backward reads. Refused by: large.
void choice_unwritten(const MaxPool2dForward& call) {
  const int64_t side = call.window, W = call.x.shape()[2], C = call.x.shape()[3], OW = call.y.shape()[2];
  const int64_t OH = call.y.shape()[1], H = call.x.shape()[1];
  const bool is_large = call.x.size() > 50000;
  const float* x = call.x.data<float>();
  uint8_t* choice = call.choice.mutable_data<uint8_t>();
  for (int64_t i = 0; i < call.y.size(); ++i) {
    const int64_t row = i / C / OW % OH * call.stride, column = i / C % OW * call.stride, n = i / C / OW / OH;
    const float* corner = x + ((n * H + row) * W + column) * C + i % C;
    int64_t best = 0;
    for (int64_t k = 1; k < side * side; ++k) {
      const float value = corner[(k / side * W + k % side) * C], most = corner[(best / side * W + best % side) * C];
      if (!(value <= most) && most == most) best = k;
    }
    call.y.mutable_data<float>()[i] = corner[(best / side * W + best % side) * C];
    if (!is_large) choice[i] = static_cast<uint8_t>(best);
  }
}
bool is_f32_image(const MaxPool2dForward& call) { return is_f32(call.x); }
REGISTER_KERNEL(max_pool2d_forward, cpu, "choice_unwritten",
                {.run = choice_unwritten, .supported = is_f32_image, .rank = 100});

}  // namespace
}  // namespace hs
