#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/random.h"

namespace hs {
namespace {

struct Point {
  float x, y;
};
Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
Point operator*(float s, Point a) { return {s * a.x, s * a.y}; }
float dot(Point a, Point b) { return a.x * b.x + a.y * b.y; }

// A cubic Bezier curve in the box [0, 1]^2, y down. An optional stroke is drawn in half of the samples.
struct Stroke {
  int digit;
  bool optional;
  Point from, pull_from, pull_to, to;
};

constexpr Stroke line(int digit, Point from, Point to, bool optional = false) {
  return {digit, optional, from, from, to, to};
}
// Half an ellipse from top to bottom; negative `width` bulges to the left.
constexpr Stroke bow(int digit, float x, float top, float bottom, float width) {
  const float pull = x + 4.0f / 3.0f * width;
  return {digit, false, {x, top}, {pull, top}, {pull, bottom}, {x, bottom}};
}

// clang-format off
constexpr Stroke strokes[] = {
    bow(0, 0.5f, 0.0f, 1.0f, 0.33f),
    bow(0, 0.5f, 0.0f, 1.0f, -0.33f),
    line(1, {0.53f, 0.0f}, {0.47f, 1.0f}),
    line(1, {0.53f, 0.0f}, {0.33f, 0.22f}, true),
    line(1, {0.28f, 1.0f}, {0.68f, 1.0f}, true),
    {2, false, {0.18f, 0.27f}, {0.22f, -0.1f}, {0.8f, -0.1f}, {0.8f, 0.27f}},
    {2, false, {0.8f, 0.27f}, {0.8f, 0.55f}, {0.4f, 0.75f}, {0.16f, 1.0f}},
    line(2, {0.16f, 1.0f}, {0.85f, 0.97f}),
    {3, false, {0.2f, 0.1f}, {0.5f, -0.08f}, {0.78f, 0.02f}, {0.75f, 0.25f}},
    {3, false, {0.75f, 0.25f}, {0.73f, 0.42f}, {0.6f, 0.47f}, {0.42f, 0.47f}},
    {3, false, {0.42f, 0.47f}, {0.7f, 0.45f}, {0.83f, 0.58f}, {0.8f, 0.74f}},
    {3, false, {0.8f, 0.74f}, {0.75f, 1.02f}, {0.45f, 1.07f}, {0.17f, 0.9f}},
    line(4, {0.3f, 0.05f}, {0.17f, 0.6f}),
    line(4, {0.17f, 0.6f}, {0.85f, 0.58f}),
    line(4, {0.68f, 0.05f}, {0.63f, 1.0f}),
    line(5, {0.78f, 0.02f}, {0.3f, 0.0f}),
    line(5, {0.3f, 0.0f}, {0.25f, 0.45f}),
    {5, false, {0.25f, 0.45f}, {0.6f, 0.35f}, {0.82f, 0.5f}, {0.78f, 0.74f}},
    {5, false, {0.78f, 0.74f}, {0.73f, 1.02f}, {0.45f, 1.07f}, {0.18f, 0.93f}},
    {6, false, {0.68f, 0.0f}, {0.4f, 0.1f}, {0.2f, 0.45f}, {0.2f, 0.7f}},
    {6, false, {0.2f, 0.7f}, {0.2f, 1.08f}, {0.78f, 1.08f}, {0.78f, 0.73f}},
    {6, false, {0.78f, 0.73f}, {0.78f, 0.4f}, {0.3f, 0.42f}, {0.2f, 0.7f}},
    line(7, {0.17f, 0.03f}, {0.82f, 0.0f}),
    {7, false, {0.82f, 0.0f}, {0.6f, 0.35f}, {0.48f, 0.65f}, {0.4f, 1.0f}},
    line(7, {0.35f, 0.5f}, {0.75f, 0.48f}, true),
    bow(8, 0.5f, 0.0f, 0.46f, 0.24f),
    bow(8, 0.5f, 0.0f, 0.46f, -0.24f),
    bow(8, 0.5f, 0.46f, 1.0f, 0.3f),
    bow(8, 0.5f, 0.46f, 1.0f, -0.3f),
    {9, false, {0.78f, 0.27f}, {0.78f, -0.08f}, {0.22f, -0.08f}, {0.22f, 0.28f}},
    {9, false, {0.22f, 0.28f}, {0.22f, 0.6f}, {0.72f, 0.6f}, {0.78f, 0.27f}},
    {9, false, {0.78f, 0.27f}, {0.78f, 0.55f}, {0.72f, 0.8f}, {0.62f, 1.0f}},
};
// clang-format on

float uniform(RandomSequence& random, float low, float high) {
  return low + (high - low) * to_unit_float(random.next());
}

// One handwriting: from the box of the strokes to pixels.
class Hand {
 public:
  explicit Hand(RandomSequence& random) {
    for (float& bend : bends_) bend = uniform(random, -0.7f, 0.7f);
    // Rational points of the circle: cos and sin of twice the angle whose tangent is `half`. At most 20 degrees.
    const float half = uniform(random, -0.175f, 0.175f);
    const float cosine = (1 - half * half) / (1 + half * half);
    const float sine = 2 * half / (1 + half * half);
    const float width = uniform(random, 12.0f, 20.0f);
    const float height = uniform(random, 15.0f, 20.0f);
    const float shear = uniform(random, -0.35f, 0.15f) * height;  // most people lean to the right
    right_ = {cosine * width, sine * width};
    down_ = {cosine * shear - sine * height, sine * shear + cosine * height};
    middle_ = {14 + uniform(random, -2.0f, 2.0f), 14 + uniform(random, -2.0f, 2.0f)};
  }

  // A smooth bend first, which keeps strokes joined that were joined, then an affine map.
  Point operator()(Point p) const {
    const float x = p.x - 0.5f;
    const float y = p.y - 0.5f;
    const float bent_x = x + bends_[0] * x * x + bends_[1] * x * y + bends_[2] * y * y;
    const float bent_y = y + bends_[3] * x * x + bends_[4] * x * y + bends_[5] * y * y;
    return middle_ + bent_x * right_ + bent_y * down_;
  }

 private:
  float bends_[6];
  Point right_, down_, middle_;
};

constexpr int64_t side = synthetic_side;
using Ink = std::array<float, side * side>;  // 0: paper, 1: full ink

void draw_segment(Ink& ink, Point from, Point to, float radius) {
  const auto pixel = [](float x) { return std::clamp(static_cast<int64_t>(x), int64_t{0}, side - 1); };
  // Pixel c has its centre at c + 0.5, and the pen's edge fades out half a pixel beyond its radius.
  const int64_t top = pixel(std::min(from.y, to.y) - radius - 1), bottom = pixel(std::max(from.y, to.y) + radius);
  const int64_t left = pixel(std::min(from.x, to.x) - radius - 1), right = pixel(std::max(from.x, to.x) + radius);
  const Point along = to - from;
  const float length2 = dot(along, along);
  for (int64_t row = top; row <= bottom; ++row) {
    for (int64_t column = left; column <= right; ++column) {
      const Point center{static_cast<float>(column) + 0.5f, static_cast<float>(row) + 0.5f};
      const float nearest = length2 > 0 ? std::clamp(dot(center - from, along) / length2, 0.0f, 1.0f) : 0.0f;
      const Point apart = center - (from + nearest * along);
      const float cover = std::clamp(radius + 0.5f - std::sqrt(dot(apart, apart)), 0.0f, 1.0f);
      float& here = ink[static_cast<size_t>(row * side + column)];
      here = std::max(here, cover);
    }
  }
}

// `wobble` moves the two inner control points and leaves the ends, where strokes join.
void draw_stroke(Ink& ink, const Stroke& stroke, const Hand& hand, float radius, RandomSequence& random) {
  constexpr int segments = 8;
  const auto wobble = [&] { return Point{uniform(random, -0.1f, 0.1f), uniform(random, -0.1f, 0.1f)}; };
  const Point pull_from = stroke.pull_from + wobble();
  const Point pull_to = stroke.pull_to + wobble();
  Point previous = hand(stroke.from);
  for (int i = 1; i <= segments; ++i) {
    const float t = static_cast<float>(i) / segments;
    const float s = 1 - t;
    const Point p =
        (s * s * s) * stroke.from + (3 * s * s * t) * pull_from + (3 * s * t * t) * pull_to + (t * t * t) * stroke.to;
    const Point next = hand(p);
    draw_segment(ink, previous, next, radius);
    previous = next;
  }
}

}  // namespace

int32_t synthetic_digit(uint64_t seed, int64_t index, std::span<uint8_t> pixels) {
  check(pixels.size() == side * side && index >= 0 && index < int64_t{1} << 24, "synthetic_digit: {} pixels, index {}",
        pixels.size(), index);
  RandomSequence random({.seed = seed, .purpose = RandomPurpose::synthetic, .layer = static_cast<uint32_t>(index)});
  const int digit = static_cast<int>(random.next() % 10);
  const uint32_t options = random.next();
  const Hand hand(random);
  const float radius = uniform(random, 0.7f, 1.9f);
  const float strength = uniform(random, 190.0f, 255.0f);

  Ink ink{};
  for (size_t i = 0; i < std::size(strokes); ++i) {
    const bool drawn = !strokes[i].optional || (options >> (i % 32) & 1) != 0;
    if (strokes[i].digit == digit && drawn) draw_stroke(ink, strokes[i], hand, radius, random);
  }
  for (size_t i = 0; i < ink.size(); i += 4) {
    const uint32_t noise = random.next();  // one byte per pixel
    for (size_t j = i; j < i + 4; ++j) {
      const float grain = static_cast<float>(noise >> (8 * (j - i)) & 0xff) * (40.0f / 255.0f) - 20.0f;
      pixels[j] = static_cast<uint8_t>(std::clamp(strength * ink[j] + grain, 0.0f, 255.0f));
    }
  }
  return digit;
}

MemorySource synthetic_digits(uint64_t seed, int64_t count) {
  check(count >= 1 && count <= int64_t{1} << 24, "synthetic_digits: count is {}", count);
  SampleInfo info{{side, side, 1}, "synthetic digits", "generated digits"};
  info.classes = 10;
  info.scale = {0.134f, 0.272f};  // measured over the training set
  std::vector<uint8_t> images(static_cast<size_t>(count * side * side));
  std::vector<int32_t> labels(static_cast<size_t>(count));
  constexpr int64_t grain = 256;
  parallel_ranges(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      labels[static_cast<size_t>(i)] = synthetic_digit(seed, i, {images.data() + i * side * side, side * side});
    }
  });
  return {info, std::move(images), std::move(labels)};
}

}  // namespace hs
