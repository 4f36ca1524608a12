// Saving and resuming: a run that is stopped and goes on must end with the bits of the run that was never stopped.
//
// So a state holds all that a later step reads of earlier ones: the weights, Adam's two means, the count of steps (its
// correction reads it, and so do random numbers, which are functions of it), and the place in the epoch. The file is
// written under another name and renamed: a reader finds the old state or the new one, never a part. (Only the system
// can flush both to the disk: engine/files/output_file.cpp.)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace {

constexpr int features = 4, samples = 10;
struct State {
  float w[features] = {}, mean[features] = {}, square[features] = {};
  int32_t step = 0, epoch = 0, position = 0;  // steps taken; samples of the epoch that have been used
};

float noise(uint64_t purpose, int64_t counter, int index) {  // in [-1, 1), a function of its arguments alone
  const uint64_t bits = (purpose << 40 | static_cast<uint64_t>(counter * features + index)) * 0x9E3779B97F4A7C15u;
  return static_cast<float>((bits ^ bits >> 29) * 0xBF58476D1CE4E5B9u >> 40) * 0x1p-23f - 1;
}

// A step of Adam on one sample of y = x_0 + ... + x_3, whose x gets noise that is new in each step.
void train_step(State& state) {
  const int sample = (3 * state.position + state.epoch) % samples;  // each epoch has an order of its own
  float x[features], error = 0;
  for (int f = 0; f < features; ++f) {
    x[f] = noise(1, sample, f) + 0.1f * noise(2, state.step, f);
    error += (state.w[f] - 1) * x[f];
  }
  const auto t = static_cast<float>(++state.step);
  for (int f = 0; f < features; ++f) {
    const float g = error * x[f];
    state.mean[f] = 0.9f * state.mean[f] + 0.1f * g;
    state.square[f] = 0.999f * state.square[f] + 0.001f * g * g;
    const float m = state.mean[f] / (1 - std::pow(0.9f, t)), v = state.square[f] / (1 - std::pow(0.999f, t));
    state.w[f] -= 0.05f * m / (std::sqrt(v) + 1e-8f);
  }
  if (++state.position == samples) state.position = 0, ++state.epoch;
}

// Returns whether the state is at `path`, whole. `killed`: the process dies in the middle of the file.
bool save(const State& state, const std::string& path, bool killed = false) {
  std::ofstream file(path + ".tmp", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&state), killed ? sizeof state / 2 : sizeof state);
  file.close();
  if (killed || !file) return false;             // or the disk is full: the older state is still there
  std::filesystem::rename(path + ".tmp", path);  // replaces it in one step
  return true;
}

bool load(const std::string& path, State& state) {
  std::ifstream file(path, std::ios::binary);
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&state), sizeof state));
}

bool equal(const State& a, const State& b) { return std::memcmp(&a, &b, sizeof a) == 0; }  // bit by bit

State trained(State state, int steps) {
  for (int i = 0; i < steps; ++i) train_step(state);
  return state;
}

}  // namespace

int main() {
  const std::string path =
      (std::filesystem::temp_directory_path() / "toy_resume_").string() + std::to_string(std::random_device()());
  const State expected = trained({}, 40);
  bool same = true;
  State run, resumed;
  for (; run.step < 40; train_step(run)) {
    same = save(run, path) && !save(State(), path, true) && load(path, resumed) && same;  // the second is killed
    same = equal(trained(resumed, 40 - run.step), expected) && same;
  }
  std::filesystem::remove(path), std::filesystem::remove(path + ".tmp");
  std::printf("resumed after each of 40 steps: %s\n", same ? "always the same bits" : "WRONG");
  const State stopped = trained({}, 25);
  State lost[4] = {stopped, stopped, stopped, {}};
  std::fill_n(lost[0].mean, features, 0.0f), lost[1].step = 0, lost[2].position = 0;
  std::copy_n(stopped.w, features, lost[3].w);
  const char* names[] = {"without the means", "without the count of steps", "without the place in the epoch",
                         "with the weights alone"};
  for (int i = 0; i < 4; ++i) {
    const float difference = trained(lost[i], 15).w[0] - expected.w[0];
    std::printf("%s: w[0] ends %+.4f off\n", names[i], difference);
    same = same && difference != 0;
  }
  return same ? 0 : 1;
}
