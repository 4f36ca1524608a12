// Activation checkpointing: keep the input of each segment of k blocks, and run a segment again when backward is there.
//
// Of n equal blocks, each of which keeps c tensors for its backward, this keeps n/k inputs, and while one segment is
// run again c k tensors of its blocks: n/k + c k in place of c n. The derivative -n/k^2 + c is 0 at k = sqrt(n/c). The
// price is one more forward pass. The block is y = x + mask h with h = max(w x, 0), element by element; it keeps x and
// h, so c = 2. With dz = dy mask where h > 0 and 0 elsewhere, dL/dw = dz x and dL/dx = dy + dz w.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using Vector = std::vector<float>;
using Kept = std::shared_ptr<const Vector>;
int live = 0, peak = 0, forward_runs = 0;  // tensors that are kept now, and the most so far; blocks that were run

bool shown = false;
void show(const char* done, unsigned block) {  // a # for each tensor that is kept
  if (shown) std::printf("%-14s block %u  %s\n", done, block, std::string(static_cast<size_t>(live), '#').c_str());
}

Kept keep(const Vector& x) {
  peak = std::max(peak, ++live);
  return {new Vector(x), [](const Vector* dead) { --live, delete dead; }};
}

// Dropout's mask, a function of (step, block, element): there is no generator whose state a second run would disturb.
float mask(unsigned step, unsigned block, unsigned i) {
  unsigned bits = (step * 31 + block) * 2654435761u + i * 40503u;
  bits = (bits ^ bits >> 15) * 2246822519u;
  return bits >> 31 ? 2.0f : 0.0f;
}

struct Entry {  // of the tape: what the backward of one block needs
  Kept x, h;
};

// Runs one block on x, in place. With a tape it keeps what backward needs; `x_kept` is x if it is kept already.
void forward(const Vector& w, unsigned step, unsigned block, Vector& x, std::vector<Entry>* tape,
             const Kept& x_kept = {}) {
  ++forward_runs;
  Vector h(x.size());
  for (size_t i = 0; i < x.size(); ++i) h[i] = std::max(w[i] * x[i], 0.0f);
  if (tape) tape->push_back({x_kept ? x_kept : keep(x), keep(h)});
  for (unsigned i = 0; i < x.size(); ++i) x[i] += mask(step, block, i) * h[i];
  show(tape ? "forward, kept" : "forward", block);
}

Vector backward(const Vector& w, unsigned step, unsigned block, const Entry& kept, Vector& dy) {  // dy becomes dx
  Vector dw(dy.size());
  for (unsigned i = 0; i < dy.size(); ++i) {
    const float dz = (*kept.h)[i] > 0 ? dy[i] * mask(step, block, i) : 0;
    dw[i] = dz * (*kept.x)[i];
    dy[i] += dz * w[i];
  }
  show("backward", block);
  return dw;
}

// dL/dw of all blocks for L = sum of the result, in segments of k; 0: none. `again`: whose masks the second run draws.
std::vector<Vector> gradients(const std::vector<Vector>& w, Vector x, int k, unsigned step, unsigned again) {
  live = peak = forward_runs = 0;
  const int n = static_cast<int>(w.size());
  std::vector<Kept> inputs;
  std::vector<Entry> tape;
  for (int block = 0; block < n; ++block) {
    if (k > 0 && block % k == 0) inputs.push_back(keep(x));
    forward(w[block], step, block, x, k > 0 ? nullptr : &tape);  // a segment keeps nothing but its input
  }
  std::vector<Vector> dw(n);
  Vector dy(x.size(), 1);
  for (int end = n; end > 0;) {
    const int begin = k > 0 ? (end - 1) / k * k : 0;
    if (k > 0) {  // run the segment again, this time with a tape
      const Kept input = inputs.back();
      inputs.pop_back();
      Vector y = *input;
      for (int i = begin; i < end; ++i) forward(w[i], again, i, y, &tape, i == begin ? input : Kept());
    }
    for (; end > begin; tape.pop_back()) {
      --end;
      dw[end] = backward(w[end], k > 0 ? again : step, end, tape.back(), dy);
    }
  }
  return dw;
}

}  // namespace

int main(int argc, char**) {
  const std::vector<Vector> w(32, {0.1f, -0.1f, 0.2f, -0.2f});
  const Vector x = {0.5f, -1, 2, 0.25f};
  if (argc > 1) {  // --show
    shown = true;
    for (const int k : {0, 2}) gradients(std::vector<Vector>(8, w[0]), x, k, 7, 7);
    shown = false;
  }
  const std::vector<Vector> expected = gradients(w, x, 0, 7, 7);
  std::printf("no segments: at most %d tensors, %d blocks run forward\n", peak, forward_runs);
  bool equal = peak == 2 * 32 && forward_runs == 32;
  for (const int k : {1, 2, 4, 8, 16}) {
    equal = equal && gradients(w, x, k, 7, 7) == expected && peak == 32 / k + 2 * k - 1 && forward_runs == 64;
    std::printf("segments of %2d: at most %2d tensors, %d blocks run forward, %s\n", k, peak, forward_runs,
                equal ? "the same gradients" : "WRONG");
  }
  return equal && gradients(w, x, 4, 7, 8) != expected ? 0 : 1;  // other masks in the second run: other gradients
}
