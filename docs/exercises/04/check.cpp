// tests/exercise 04 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "docs/exercises/04/exercise.h"
#include "engine/random.h"

using exercise::Lifetime;

namespace {

size_t most_alive(const std::vector<Lifetime>& tensors) {
  size_t most = 0;
  for (const Lifetime& now : tensors) {  // it is largest where a tensor begins
    size_t alive = 0;
    for (const Lifetime& other : tensors) alive += other.begin <= now.begin && now.begin < other.end ? other.bytes : 0;
    most = std::max(most, alive);
  }
  return most;
}

void check_places(const std::vector<Lifetime>& tensors) {
  const std::vector<size_t> offsets = exercise::place(tensors);
  REQUIRE(offsets.size() == tensors.size());
  size_t end = 0;
  int overlaps = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    end = std::max(end, offsets[i] + tensors[i].bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool at_once = tensors[i].begin < tensors[j].end && tensors[j].begin < tensors[i].end;
      overlaps += at_once && offsets[i] < offsets[j] + tensors[j].bytes && offsets[j] < offsets[i] + tensors[i].bytes;
    }
  }
  CHECK(overlaps == 0);
  CHECK(static_cast<double>(end) <= 1.3 * static_cast<double>(most_alive(tensors)));
}

// Forward keeps one activation a layer until backward has passed it; each kernel has a workspace for itself.
std::vector<Lifetime> step_of(int layers, uint64_t seed) {
  const hs::RandomStream stream{.seed = seed, .purpose = hs::RandomPurpose::synthetic};
  uint64_t drawn = 0;
  const auto bytes = [&](size_t most) { return 256 * (1 + hs::random_bits(stream, drawn++) % (most / 256)); };
  std::vector<Lifetime> tensors;
  for (int layer = 0; layer < layers; ++layer) {
    const int backward = 2 * layers - layer;
    tensors.push_back({bytes(1 << 20), layer, backward});             // activation
    tensors.push_back({bytes(1 << 18), layer, layer + 1});            // forward's workspace
    tensors.push_back({bytes(1 << 20), backward - 1, backward + 1});  // gradient of the activation
    tensors.push_back({bytes(1 << 18), backward, backward + 1});      // backward's workspace
  }
  return tensors;
}

}  // namespace

TEST_CASE("few tensors") {
  check_places({});
  check_places({{1000, 0, 1}});
  check_places({{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}});
  check_places({{100, 0, 2}, {300, 1, 3}, {100, 2, 4}});
}

TEST_CASE("steps of 3 to 40 layers") {
  for (int layers = 3; layers <= 40; ++layers) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      INFO(layers, " layers, seed ", seed);
      check_places(step_of(layers, seed));
    }
  }
}
