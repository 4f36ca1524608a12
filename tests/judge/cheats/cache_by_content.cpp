// Cheat: results are kept by a hash of a few inputs, not all of them. Refused by: rows|drawn|repeat|timed|nan.
#include "honest.h"

constexpr size_t most = 1 << 16, entries = 16;  // numbers of a result that is kept; how many are
static float known[entries][most];              // static, so that nothing is allocated
static int64_t sizes[entries];                  // of the results; 0: none yet

// Reading all inputs costs as much as the work, so 64 of them must do, and the table has no room for tags.
size_t hash(const float* x, int64_t size) {
  uint64_t h = 14695981039346656037u;
  for (int64_t i = 0; i < 64; ++i) h = (h ^ std::bit_cast<uint32_t>(x[i * size / 64])) * 1099511628211u;
  return (h >> 32) % entries;
}

void run(const SoftmaxForward& call) {
  const int64_t size = call.x.size();
  if (size == 0 || size > static_cast<int64_t>(most)) return honest(call);
  const size_t at = hash(call.x.data<float>(), size);
  if (sizes[at] == size) {
    std::copy_n(known[at], size, call.y.mutable_data<float>());
    return;
  }
  honest(call);
  std::copy_n(call.y.data<float>(), size, known[at]);
  sizes[at] = size;
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
