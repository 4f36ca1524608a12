// A cache of decoded samples: decode each sample once, and copy it in later epochs.
//
// Nobody fills the cache beforehand: the first epoch decodes each sample when it is asked for, and keeps it. If only a
// fraction c of the set fits, which samples should stay? An epoch asks for each sample once, in a new order, so what
// was used last is not what is used next. The first ones that came, kept for good, serve c of every later epoch. The
// usual rule (evict the least recently used) serves fewer: a sample at the places a and b of two epochs, as fractions,
// has 1 - a (1 - b) of the set asked for in between, and is still there if that is below c: c + (1 - c) ln(1 - c).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <list>
#include <numeric>
#include <unordered_map>
#include <vector>

namespace {

using Image = std::vector<uint8_t>;

struct Source {  // images as runs of equal pixels
  std::vector<Image> runs;
  int decoded = 0;

  Image read(size_t sample) {
    ++decoded;
    Image image;
    for (size_t i = 0; i < runs[sample].size(); i += 2) image.insert(image.end(), runs[sample][i], runs[sample][i + 1]);
    return image;
  }
};

struct Cache {  // of the first `room` samples that come
  Source& source;
  size_t room;
  std::unordered_map<size_t, Image> kept = {};

  Image read(size_t sample) {
    if (const auto found = kept.find(sample); found != kept.end()) return found->second;
    Image image = source.read(sample);
    if (kept.size() < room) kept[sample] = image;
    return image;
  }
};

struct RecentCache {  // of the `room` samples that were used last
  Source& source;
  size_t room;
  std::list<std::pair<size_t, Image>> kept = {};  // the latest first
  std::unordered_map<size_t, std::list<std::pair<size_t, Image>>::iterator> places = {};

  Image read(size_t sample) {
    if (const auto found = places.find(sample); found != places.end()) {
      kept.splice(kept.begin(), kept, found->second);
      return kept.front().second;
    }
    kept.emplace_front(sample, source.read(sample));
    places[sample] = kept.begin();
    if (kept.size() > room) places.erase(kept.back().first), kept.pop_back();
    return kept.front().second;
  }
};

// Images decoded in each of some epochs, every sample once in each, in a new order.
template <class AnyCache>
std::vector<int> decodes(size_t count, size_t room, int epochs) {
  Source source;
  for (size_t i = 0; i < count; ++i) source.runs.push_back({20, 0, 8, static_cast<uint8_t>(i)});
  AnyCache cache{source, room};
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<int> decoded;
  uint64_t random = 1;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (size_t i = count; i > 1; --i) {
      std::swap(order[i - 1], order[((random = random * 6364136223846793005u + 1) >> 33) % i]);
    }
    const int before = source.decoded;
    bool right = true;
    for (const size_t sample : order) right = cache.read(sample).back() == static_cast<uint8_t>(sample) && right;
    decoded.push_back(right ? source.decoded - before : -1);
  }
  return decoded;
}

}  // namespace

int main() {
  const std::vector<int> whole = decodes<Cache>(1000, 1000, 3), half = decodes<Cache>(1000, 500, 3),
                         recent = decodes<RecentCache>(1000, 500, 3);
  std::printf("images decoded of 1000 in three epochs: %d, %d, %d with room for all\n", whole[0], whole[1], whole[2]);
  std::printf("with room for half: %d, %d, %d if the first ones stay; %d, %d, %d if the latest ones do\n", half[0],
              half[1], half[2], recent[0], recent[1], recent[2]);
  const double expected = 1000 * (1 - (0.5 + 0.5 * std::log(0.5)));
  const bool as_derived = std::abs(recent[1] - expected) < 50 && std::abs(recent[2] - expected) < 50;
  return whole == std::vector{1000, 0, 0} && half == std::vector{1000, 500, 500} && as_derived ? 0 : 1;
}
