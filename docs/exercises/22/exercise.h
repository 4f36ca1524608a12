// Exercise 22, of docs/techniques/captured_steps.md: a training step that is recorded once and replayed. Edit
// exercise.cpp beside this file, then run tests/exercise 22.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace exercise {

using Kernel = std::function<void()>;  // with its arguments bound: pointers and values, as of the launch

// Runs kernels at once, or, while it records, appends them to a list and runs nothing: like a CUDA stream.
class Stream {
 public:
  void launch(Kernel kernel) {
    ++launches;
    if (recording_) {
      recorded_.push_back(std::move(kernel));
    } else {
      kernel();
    }
  }
  void begin_recording() {
    if (recording_) throw std::logic_error("the stream records already");
    recording_ = true;
  }
  std::vector<Kernel> end_recording() {  // and the stream runs kernels again
    recording_ = false;
    return std::exchange(recorded_, {});
  }
  int64_t launches = 0;

 private:
  bool recording_ = false;
  std::vector<Kernel> recorded_;
};

// "Device" memory: only kernels may read or write what these point to. The pointers are known on the host.
struct Memory {
  float *weights, *average, *gradients;  // (size) each; average: of the gradients
  int64_t size;
  int64_t* step;      // steps made so far
  const float* rate;  // the host may write another one between two steps
};

// Launches one step as kernels, and computes nothing itself. With t = *step + 1, the number of this step:
//   average = 0.9 average + 0.1 gradients;   weights -= *rate * average / (1 - 0.9^t);   *step = t
void launch_step(Stream& stream, const Memory& memory);

class Replayed {  // a step that is launched once and then replayed
 public:
  // The first call runs launch() normally. The second records it and replays the record, and so does every later one:
  // without calling launch() or stream.launch(). If launch() throws, this throws the same, and the next
  // call does what this one should have done; while it is recorded, nothing has run, and the stream runs kernels again.
  void run(Stream& stream, const std::function<void()>& launch);

 private:
  bool has_run_ = false;
  std::vector<Kernel> record_;
};

}  // namespace exercise
