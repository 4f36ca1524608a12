// A captured step: the sequence of kernels is recorded once and then replayed, with the addresses and the host's values
// of the recording.
//
// The "device" below has a queue, as a GPU has. A launch while recording is not run but written down; a replay runs
// what was written down. So what changes from step to step must be read from device memory: the batch, at an address
// that stays, and the number of steps, which a kernel of the recording counts. The step is SGD on w^2 / 2 of each
// number with a rate that falls linearly: w -= lr (1 - t / steps) x w.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

class Device {
 public:
  void launch(const std::function<void()>& kernel) {
    if (!recording_) return ++host_calls, kernel();
    graph_.push_back(kernel);
  }
  void record(const std::function<void()>& step) {
    graph_.clear();
    recording_ = true;
    step();
    recording_ = false;
  }
  void replay() {
    ++host_calls;  // one for the whole step
    for (const auto& kernel : graph_) kernel();
  }
  int host_calls = 0;

 private:
  bool recording_ = false;
  std::vector<std::function<void()>> graph_;
};

constexpr int steps = 5;
struct Memory {  // of the device; nothing in it moves
  std::vector<float> w, x;
  float t = 0, rate = 0;
};

enum class Counter { host, device };

// One step. The host's counter is a number that a launch copies, as it copies every argument of a kernel.
void step(Device& device, Memory& memory, float lr, Counter counter, int host_t) {
  if (counter == Counter::host) {
    device.launch([&memory, lr, host_t] { memory.rate = lr * (1 - static_cast<float>(host_t) / steps); });
  } else {
    device.launch([&memory, lr] { memory.rate = lr * (1 - memory.t / steps); });
    device.launch([&memory] { memory.t += 1; });
  }
  device.launch([&memory] {
    for (size_t i = 0; i < memory.w.size(); ++i) memory.w[i] -= memory.rate * (memory.x[i] * memory.w[i]);
  });
}

// The batch of step t.
std::vector<float> batch(int t, size_t size) {
  std::vector<float> x(size);
  for (size_t i = 0; i < size; ++i) x[i] = 0.25f * static_cast<float>((static_cast<size_t>(t) + i) % 4);
  return x;
}

struct Trained {
  std::vector<float> w;
  int host_calls;
};

Trained train(std::vector<float> w, float lr, Counter counter, bool captured) {
  Device device;
  Memory memory{std::move(w), {}};
  memory.x.resize(memory.w.size());
  for (int t = 0; t < steps; ++t) {
    std::ranges::copy(batch(t, memory.w.size()), memory.x.begin());  // to the fixed place, before the step
    if (!captured) {
      step(device, memory, lr, counter, t);
      continue;
    }
    if (t == 0) device.record([&] { step(device, memory, lr, counter, t); });
    device.replay();
  }
  return {memory.w, device.host_calls};
}

}  // namespace

int main() {
  const std::vector<float> w = {1, -2, 3};
  const Trained plain = train(w, 0.5f, Counter::device, false), right = train(w, 0.5f, Counter::device, true),
                wrong = train(w, 0.5f, Counter::host, true);
  std::printf("w[0] of plain steps %.6f, replayed %.6f, replayed with the host's counter %.6f\n", plain.w[0],
              right.w[0], wrong.w[0]);
  std::printf("calls of the host: %d in place of %d\n", right.host_calls, plain.host_calls);
  const bool same_plainly = train(w, 0.5f, Counter::host, false).w == plain.w;
  return same_plainly && right.w == plain.w && wrong.w != plain.w && right.host_calls == steps ? 0 : 1;
}
