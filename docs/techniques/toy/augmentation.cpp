// Rotation and shift of an image, sampled backwards and interpolated.
//
// Where does the pixel (y, x) of the result come from? Undo the shift, then the rotation about the centre c:
//   u = c +  cos a (x - right - c) + sin a (y - down - c)
//   v = c -  sin a (x - right - c) + cos a (y - down - c)
// (u, v) lies between four pixels. With i = floor(v), j = floor(u) and the fractions f = v - i, g = u - j, bilinear
// interpolation weights them by the areas that (u, v) cuts out of their square:
//   (1-f) (1-g) p[i][j] + (1-f) g p[i][j+1] + f (1-g) p[i+1][j] + f g p[i+1][j+1];   outside of the image p is 0
// Sending each pixel of the image forwards instead leaves holes: two may arrive at one place, and none at another.
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

struct Image {
  int H, W;
  std::vector<double> pixels;
  double at(int i, int j) const { return i >= 0 && i < H && j >= 0 && j < W ? pixels[i * W + j] : 0; }
};

struct Warp {
  double cosine, sine;  // of the angle, clockwise
  int right, down;      // pixels
};

double bilinear(const Image& image, double v, double u) {
  const int i = static_cast<int>(std::floor(v)), j = static_cast<int>(std::floor(u));
  const double f = v - i, g = u - j;
  return (1 - f) * ((1 - g) * image.at(i, j) + g * image.at(i, j + 1)) +
         f * ((1 - g) * image.at(i + 1, j) + g * image.at(i + 1, j + 1));
}

Image backwards(const Image& image, const Warp& warp) {
  Image result{image.H, image.W, std::vector<double>(image.pixels.size())};
  const double middle_y = (image.H - 1) / 2.0, middle_x = (image.W - 1) / 2.0;
  for (int y = 0; y < image.H; ++y) {
    for (int x = 0; x < image.W; ++x) {
      const double dx = x - warp.right - middle_x, dy = y - warp.down - middle_y;
      const double u = middle_x + warp.cosine * dx + warp.sine * dy, v = middle_y + warp.cosine * dy - warp.sine * dx;
      result.pixels[y * image.W + x] = bilinear(image, v, u);
    }
  }
  return result;
}

// Each pixel goes to the nearest place. 0 where none arrives.
Image forwards(const Image& image, const Warp& warp) {
  Image result{image.H, image.W, std::vector<double>(image.pixels.size())};
  const double middle_y = (image.H - 1) / 2.0, middle_x = (image.W - 1) / 2.0;
  for (int i = 0; i < image.H; ++i) {
    for (int j = 0; j < image.W; ++j) {
      const double dx = j - middle_x, dy = i - middle_y;
      const auto x = std::lround(middle_x + warp.cosine * dx - warp.sine * dy + warp.right);
      const auto y = std::lround(middle_y + warp.cosine * dy + warp.sine * dx + warp.down);
      if (y >= 0 && y < image.H && x >= 0 && x < image.W) result.pixels[y * image.W + x] = image.at(i, j);
    }
  }
  return result;
}

// Zeros within a distance of the centre that no rotation or shift moves outside.
int holes(const Image& image, double radius) {
  int count = 0;
  for (int i = 0; i < image.H; ++i) {
    for (int j = 0; j < image.W; ++j) {
      const double distance = std::hypot(i - (image.H - 1) / 2.0, j - (image.W - 1) / 2.0);
      count += distance < radius && image.at(i, j) == 0;
    }
  }
  return count;
}

}  // namespace

int main() {
  const Image grey{28, 28, std::vector<double>(28 * 28, 100)};
  const double angle = 30 * std::acos(-1) / 180;
  const Warp turn{std::cos(angle), std::sin(angle), 0, 0}, quarter{0, 1, 0, 0}, shift{1, 0, 2, 0};
  const int with_forwards = holes(forwards(grey, turn), 12), with_backwards = holes(backwards(grey, turn), 12);
  std::printf("a grey image turned by 30 degrees: %d holes forwards, %d backwards\n", with_forwards, with_backwards);
  Image ramp = grey;
  for (int i = 0; i < 28 * 28; ++i) ramp.pixels[i] = i;
  const bool exact =
      backwards(ramp, quarter).at(5, 7) == ramp.at(27 - 7, 5) && backwards(ramp, shift).at(3, 9) == ramp.at(3, 7);
  std::printf("a quarter turn and a shift move pixels and change none: %d\n", exact);
  return with_forwards > 0 && with_backwards == 0 && exact ? 0 : 1;
}
