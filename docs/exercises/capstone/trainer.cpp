// The capstone: trains MNIST with what you have written in the exercises 09 (checkpointing), 10 (f16 with a scaled
// loss), 11 (accumulation) and 19 (a schedule). There is nothing to write here: read it, then run tests/exercise
// capstone. Beside these four it needs only a way to read the digits, two kinds of layers, and the loss.
//
// Every stage rounds what it returns to f16, forward and backward, as a GPU would; weights and their gradients are f32.
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>

#include "docs/exercises/09/exercise.h"
#include "docs/exercises/10/exercise.h"
#include "docs/exercises/11/exercise.h"
#include "docs/exercises/19/exercise.h"

using exercise::Activation;
using exercise::Stage;
using exercise::Values;

namespace {

constexpr int64_t in = 784, hidden = 64, classes = 10, micro_batch = 16, accumulate = 4, epochs = 3;
constexpr double clip = 5, wanted = 0.97;

// The bytes of an IDX file, packed or not, behind its header. (LeCun, "The MNIST database of handwritten digits".)
std::vector<uint8_t> read_idx(const std::string& path, size_t header) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (!file) file = gzopen((path + ".gz").c_str(), "rb");
  if (!file) {
    std::printf("%s: not found, expected MNIST's four files; data/get mnist downloads them\n", path.c_str());
    std::exit(4);
  }
  std::vector<uint8_t> bytes(64 << 20);
  bytes.resize(static_cast<size_t>(std::max(gzread(file, bytes.data(), 64 << 20), 0)));
  gzclose(file);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(std::min(header, bytes.size())));
  return bytes;
}

struct Digits {
  std::vector<uint8_t> pixels, labels;
  Digits(const std::string& folder, const std::string& part)
      : pixels(read_idx(folder + "/" + part + "-images-idx3-ubyte", 16)),
        labels(read_idx(folder + "/" + part + "-labels-idx1-ubyte", 8)) {}
};

float round(double value) { return exercise::f16(static_cast<float>(value)); }

// The weights of all layers, one after another, their f16 copies, and the gradients of a micro-batch.
struct Parameters {
  std::vector<float> values, rounded, gradients;
  void begin_step() { std::ranges::transform(values, rounded.begin(), exercise::f16); }
};

// y = x W + b for each row of x. W (inputs, outputs) begins at `at`, and b follows it.
Stage linear(Parameters& p, size_t at, size_t inputs, size_t outputs) {
  const size_t bias = at + inputs * outputs;
  const auto forward = [&p, at, bias, inputs, outputs](const Activation& x, int64_t) {
    Values y;
    for (size_t row = 0; row < x->size() / inputs; ++row) {
      std::vector<float> sum(&p.rounded[bias], &p.rounded[bias] + outputs);  // products are added up in f32
      for (size_t i = 0; i < inputs; ++i) {
        const auto factor = static_cast<float>((*x)[row * inputs + i]);
        if (factor == 0) continue;
        for (size_t j = 0; j < outputs; ++j) sum[j] += factor * p.rounded[at + i * outputs + j];
      }
      for (const float value : sum) y.push_back(round(value));
    }
    return std::make_shared<const Values>(std::move(y));
  };
  const auto backward = [&p, at, bias, inputs, outputs](const Activation& x, const Values& dy, int64_t) {
    Values dx(x->size());
    for (size_t row = 0; row < x->size() / inputs; ++row) {
      const double* const d = &dy[row * outputs];
      for (size_t j = 0; j < outputs; ++j) p.gradients[bias + j] += static_cast<float>(d[j]);
      for (size_t i = 0; i < inputs; ++i) {
        const double factor = (*x)[row * inputs + i];
        float* const dw = &p.gradients[at + i * outputs];
        if (factor != 0) {
          for (size_t j = 0; j < outputs; ++j) dw[j] += static_cast<float>(factor * d[j]);
        }
        double sum = 0;
        for (size_t j = 0; j < outputs && at > 0; ++j) sum += d[j] * p.rounded[at + i * outputs + j];
        dx[row * inputs + i] = round(sum);  // of the first layer nobody asks for it
      }
    }
    return dx;
  };
  return {forward, backward};
}

Stage relu() {
  return {[](const Activation& x, int64_t) {
            Values y = *x;
            for (double& value : y) value = std::max(value, 0.0);
            return std::make_shared<const Values>(std::move(y));
          },
          [](const Activation& x, const Values& dy, int64_t) {
            Values dx = dy;
            for (size_t i = 0; i < dx.size(); ++i) dx[i] = (*x)[i] > 0 ? dy[i] : 0;
            return dx;
          }};
}

Activation images_of(const Digits& digits, const std::vector<size_t>& samples) {
  Values x;
  for (const size_t sample : samples) {
    for (size_t i = 0; i < in; ++i) x.push_back(round(digits.pixels[sample * in + i] / 255.0));
  }
  return std::make_shared<const Values>(std::move(x));
}

// The gradient of the mean cross entropy, times the loss scale; adds the losses to `sum`.
Values loss_gradient(const Values& y, const Digits& digits, const std::vector<size_t>& samples, float scale,
                     double& sum) {
  Values dy(y.size());
  for (size_t row = 0; row < samples.size(); ++row) {
    const double* const logits = &y[row * classes];
    double total = 0, largest = *std::max_element(logits, logits + classes);
    for (int64_t c = 0; c < classes; ++c) total += std::exp(logits[c] - largest);
    for (size_t c = 0; c < classes; ++c) {
      const double p = std::exp(logits[c] - largest) / total, is_label = c == digits.labels[samples[row]];
      dy[row * classes + c] = round(scale / static_cast<double>(samples.size()) * (p - is_label));
      if (is_label > 0) sum -= std::log(p);
    }
  }
  return dy;
}

double accuracy(const std::vector<Stage>& net, const Digits& digits) {
  size_t right = 0;
  for (size_t sample = 0; sample < digits.labels.size(); ++sample) {
    Activation x = images_of(digits, {sample});
    for (const Stage& stage : net) x = stage.forward(x, 0);
    right += static_cast<size_t>(std::max_element(x->begin(), x->end()) - x->begin()) == digits.labels[sample];
  }
  return static_cast<double>(right) / static_cast<double>(digits.labels.size());
}

}  // namespace

int main() {
  const char *data = std::getenv("HALFSTEP_DATA"), *home = std::getenv("HOME");
  const std::string folder =
      data ? std::string(data) + "/mnist" : std::string(home ? home : ".") + "/.cache/halfstep/mnist";
  const Digits train(folder, "train"), test(folder, "t10k");

  std::mt19937 random(1);
  Parameters p;
  for (const auto& [inputs, outputs] : {std::pair(in, hidden), {hidden, hidden}, {hidden, classes}}) {
    std::normal_distribution<float> draw(0, std::sqrt(2.0f / static_cast<float>(inputs)));
    for (int64_t i = 0; i < inputs * outputs; ++i) p.values.push_back(draw(random));
    p.values.resize(p.values.size() + static_cast<size_t>(outputs));
  }
  p.rounded.resize(p.values.size()), p.gradients.resize(p.values.size());
  const size_t second = (in + 1) * hidden, third = second + (hidden + 1) * hidden;
  const std::vector<Stage> net = {linear(p, 0, in, hidden), relu(), linear(p, second, hidden, hidden), relu(),
                                  linear(p, third, hidden, classes)};

  const auto count = static_cast<int64_t>(train.labels.size()), per_epoch = (count + micro_batch - 1) / micro_batch;
  const exercise::Schedule schedule = exercise::in_epochs(0.3, 0, 0.1, epochs, accumulate, per_epoch);  // exercise 19
  exercise::State state;                                                                                // exercise 10
  std::vector<size_t> order(train.labels.size());
  std::iota(order.begin(), order.end(), 0);
  double reached = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    double loss = 0;
    for (int64_t m = 0; m < per_epoch;) {  // an update: at most `accumulate` micro-batches
      const double rate = exercise::rate_of_micro_batch(schedule, epoch * per_epoch + m, accumulate, per_epoch);
      exercise::Accumulator step(p.values.size(), clip * state.scale);  // exercise 11: the gradients are scaled
      p.begin_step();
      for (const int64_t end = std::min(m + accumulate, per_epoch); m < end; ++m) {
        const auto first = order.begin() + m * micro_batch;
        const std::vector<size_t> samples(first, first + std::min(micro_batch, count - m * micro_batch));
        std::ranges::fill(p.gradients, 0.0f);
        exercise::gradient(net, images_of(train, samples), /*length=*/2, /*first_key=*/m, [&](const Activation& y) {
          return loss_gradient(*y, train, samples, state.scale, loss);
        });  // exercise 09
        step.add(p.gradients, static_cast<double>(samples.size()));
      }
      if (const auto gradient = step.finish()) {
        exercise::update(p.values, *gradient, static_cast<float>(rate), /*growth_interval=*/500, state);
      }
    }
    p.begin_step();
    reached = accuracy(net, test);
    std::printf("epoch %d: loss %.3f, test accuracy %.2f %%, loss scale %g, steps skipped %d\n",
                static_cast<int>(epoch + 1), loss / static_cast<double>(count), 100 * reached,
                static_cast<double>(state.scale), state.skipped);
  }
  std::printf(reached >= wanted ? "%.2f %%: your own code trains MNIST\n" : "%.2f %%: 97 are wanted\n", 100 * reached);
  return reached >= wanted ? 0 : 1;
}
