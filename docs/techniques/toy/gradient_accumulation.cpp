// Gradient accumulation: the gradient of one batch, summed over parts of it that fit into memory one at a time.
//
// The loss of a batch of M samples is a mean, L = 1/M sum_i l_i, and so is its gradient. A part of m samples computes a
// mean of its own, 1/m sum of its l_i; times m/M it is that part's share of L. So: weight each part by m/M, add up,
// update once. The model is softmax regression: logits z = x W, l = log sum_j exp(z_j) - z_label, dl/dz = softmax(z) -
// onehot(label).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int features = 5, classes = 3;
struct Sample {
  float x[features];
  int label;
};
using Gradient = std::vector<float>;  // (features, classes), as W is

// Adds `weight` times the gradient of the mean loss of samples[begin, end) to dw.
void backward(const std::vector<float>& w, const std::vector<Sample>& samples, int begin, int end, float weight,
              Gradient& dw) {
  for (int i = begin; i < end; ++i) {
    float z[classes] = {}, sum = 0;
    for (int f = 0; f < features; ++f) {
      for (int c = 0; c < classes; ++c) z[c] += samples[i].x[f] * w[f * classes + c];
    }
    const float largest = *std::max_element(z, z + classes);
    for (float& value : z) sum += value = std::exp(value - largest);
    for (int c = 0; c < classes; ++c) {
      const float dz = weight / static_cast<float>(end - begin) * (z[c] / sum - (c == samples[i].label ? 1.0f : 0.0f));
      for (int f = 0; f < features; ++f) dw[f * classes + c] += samples[i].x[f] * dz;
    }
  }
}

// The gradient of all samples, at most `part` of them at a time: only their activations are in memory together.
Gradient accumulate(const std::vector<float>& w, const std::vector<Sample>& samples, int part, bool weighted = true) {
  Gradient dw(w.size());
  const int count = static_cast<int>(samples.size()), parts = (count + part - 1) / part;
  for (int begin = 0; begin < count; begin += part) {
    const int end = std::min(begin + part, count);  // the last part may be smaller
    const float weight =
        weighted ? static_cast<float>(end - begin) / static_cast<float>(count) : 1.0f / static_cast<float>(parts);
    backward(w, samples, begin, end, weight, dw);
  }
  return dw;
}

std::vector<Sample> some_samples(int count) {
  std::vector<Sample> samples(count);
  unsigned state = 1;
  for (Sample& sample : samples) {
    for (float& x : sample.x) x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
    sample.label = sample.x[0] > 0 ? sample.x[1] > 0 ? 2 : 1 : 0;
  }
  return samples;
}

float distance(const Gradient& a, const Gradient& b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

int main() {
  const std::vector<Sample> samples = some_samples(10);
  const std::vector<float> w(features * classes, 0.1f);
  const Gradient batch = accumulate(w, samples, 10);
  const float right = distance(accumulate(w, samples, 4), batch),
              wrong = distance(accumulate(w, samples, 4, false), batch);
  std::printf("10 samples at once against 4 + 4 + 2: largest difference %.1e\n", right);
  std::printf("the same as a plain mean of the three means: %.1e, the last two samples count 1.67 times\n", wrong);
  return right < 1e-6f && wrong > 1e-3f ? 0 : 1;
}
