// Mistakes in element-wise kernels. The line before each says by which checks the judge may refuse it.
#include <halfstep/kernel.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace hs {
namespace {

float relu_of(float x) { return x <= 0 ? 0 : x; }

bool is_easy(const ReluForward& call) { return is_f32(call.x); }

template <class F>
void map(const ReluForward& call, const F& f) {
  map_elements(call.x.size(), f, call.y.mutable_data<float>(), call.x.data<float>());
}

#define REGISTER_RELU(name) REGISTER_KERNEL(relu_forward, cpu, #name, {.run = name, .supported = is_easy, .rank = 100})

// nan_lost: NaN becomes 0, as max(x, 0) of most vector units does. Refused by: nan.
void nan_lost(const ReluForward& call) {
  map(call, [](float x) { return x > 0 ? x : 0; });
}
REGISTER_RELU(nan_lost);

// infinity_lost: an infinity becomes 0. Refused by: nan.
void infinity_lost(const ReluForward& call) {
  map(call, [](float x) { return x > 3e38f ? 0 : relu_of(x); });
}
REGISTER_RELU(infinity_lost);

// read_past_end: reads whole vectors past the end of its input; every result is right. Refused by: guard.
void read_past_end(const ReluForward& call) {
  const volatile float* x = call.x.data<float>();
  for (int64_t i = 0; i < call.x.size(); i += 8) {
    float vector[8];
    for (int lane = 0; lane < 8; ++lane) vector[lane] = relu_of(x[i + lane]);
    std::copy_n(vector, std::min<int64_t>(8, call.x.size() - i), call.y.mutable_data<float>() + i);
  }
}
REGISTER_RELU(read_past_end);

// write_past_end: rounds the size up to whole vectors and writes past the output. Refused by: guard.
void write_past_end(const ReluForward& call) {
  map(call, relu_of);
  std::fill_n(call.y.mutable_data<float>() + call.y.size(), (8 - call.y.size() % 8) % 8, 0.0f);
}
REGISTER_RELU(write_past_end);

// aligned_only: aligned loads where the size allows, though a slice begins anywhere. Refused by: process.
typedef float Aligned __attribute__((vector_size(16)));
void aligned_only(const ReluForward& call) {
  if (call.x.size() % 4 != 0) return map(call, relu_of);
  const auto* x = reinterpret_cast<const volatile Aligned*>(call.x.data<float>());
  for (int64_t i = 0; i < call.x.size(); i += 4) {
    const Aligned four = x[i / 4];
    for (int k = 0; k < 4; ++k) call.y.mutable_data<float>()[i + k] = relu_of(four[k]);
  }
}
REGISTER_RELU(aligned_only);

// first_call: only the first call of a shape is right. Refused by: repeat.
void first_call(const ReluForward& call) {
  static Shape last;
  if (call.x.shape() == last) return call.y.fill_zero();
  last = call.x.shape();
  map(call, relu_of);
}
REGISTER_RELU(first_call);

// workspace_zero: adds to a workspace that it takes for zeros. Refused by: rows.
void workspace_zero(const ReluForward& call, Tensor& workspace) {
  map(call, relu_of);
  float zero = 0;
  std::memcpy(&zero, workspace.raw_data(), sizeof zero);
  for (int64_t i = 0; i < call.y.size(); ++i) call.y.mutable_data<float>()[i] += zero;
}
int64_t bytes(const ReluForward&) { return 64; }
REGISTER_KERNEL(relu_forward, cpu, "workspace_zero",
                {.run = workspace_zero, .supported = is_easy, .workspace = bytes, .rank = 100});

// crash: a bad instruction. Refused by: process.
void crash(const ReluForward&) { __builtin_trap(); }
REGISTER_RELU(crash);

// exits: ends the process, with the exit code of success. Refused by: process.
void exits(const ReluForward&) { std::exit(0); }
REGISTER_RELU(exits);

// hang: never returns. Refused by: process.
void hang(const ReluForward&) {
  static std::atomic<bool> forever = true;
  while (forever) continue;
}
REGISTER_RELU(hang);

// memory: takes more and more of it. Refused by: process|rows.
void memory(const ReluForward& call) {
  for (;;) std::memset(new char[1 << 28], 1, 1 << 28);
  map(call, relu_of);
}
REGISTER_RELU(memory);

}  // namespace
}  // namespace hs
