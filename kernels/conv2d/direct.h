// What both directions of the "direct" conv2d share. Internal to kernels/conv2d/direct*.cpp, which include it once for
// each instruction set (kernels/cpu/each_isa.h), so it has no `#pragma once`.
namespace hs::HS_ISA {
namespace {

// Every thread works on a copy of its image, in f32, with the padding around it and `slack` floats behind it, so that
// vectors may run over the end of a row.
struct Padded {
  int64_t H, W, row, size;  // row = W*C floats, size = H*row + slack
  explicit Padded(const Conv2dSizes& s) {
    H = s.H + 2 * s.padding;
    W = s.W + 2 * s.padding;
    row = W * s.C;
    size = round_up(H * row + 2 * lanes, lanes);
  }
};

template <class T>
void copy_padded(const Conv2dSizes& s, const Padded& p, const T* image, float* padded) {
  if (s.padding > 0) std::fill_n(padded, p.size, 0.0f);
  for (int64_t h = 0; h < s.H; ++h) {
    float* row = padded + (h + s.padding) * p.row + s.padding * s.C;
    if constexpr (stores_16_bits<T>) {
      widen(image + h * s.W * s.C, row, s.W * s.C);
    } else {
      std::copy_n(image + h * s.W * s.C, s.W * s.C, row);
    }
  }
  std::fill_n(padded + p.H * p.row, p.size - p.H * p.row, 0.0f);
}

}  // namespace
}  // namespace hs::HS_ISA
