// What the "direct" kernels of conv2d and conv2d_pool_relu share. Internal to kernels/conv2d/direct*.cpp and
// kernels/conv2d_pool_relu/pool.cpp, which include it once for each instruction set (kernels/cpu/each_isa.h), so it has
// no `#pragma once`.
namespace hs::HS_ISA {
namespace {

// Every thread works on a copy of its image, in f32, with the padding around it and zeros behind it, so that vectors
// may run over the end of a row.
struct Padded {
  const Conv2dSizes& s;
  int64_t H = s.H + 2 * s.padding, W = s.W + 2 * s.padding, row = W * s.C;  // row in floats
  int64_t size = round_up(H * row + 2 * lanes, lanes);
};

// The pooled value of four, and its winner.
struct Pooled {
  Vec y;
  Ints winner;
};
inline Pooled pool(Vec v0, Vec v1, Vec v2, Vec v3) {
  Vec best = v0;
  Ints winner = {};
  const auto compare = [&](Vec v, int32_t place) {
    const Ints better = ~(v <= best) & (best == best);  // true for the first NaN
    best = better ? v : best;
    winner = better ? Ints{} + place : winner;
  };
  compare(v1, 1);
  compare(v2, 2);
  compare(v3, 3);
  const Ints is_closed = best <= Vec{};  // false for NaN
  winner = is_closed ? Ints{} + int32_t{closed} : winner;
  return {is_closed ? Vec{} : best, winner};
}

// What a forward pass of each op makes of its sums: at least this, and the winners of its windows.
inline float floor_of(const Conv2dForward& call) { return call.relu ? 0 : -std::numeric_limits<float>::infinity(); }
inline float floor_of(const Conv2dPoolReluForward&) { return 0; }
inline uint8_t* winners_of(const Conv2dForward&) { return nullptr; }
inline uint8_t* winners_of(const Conv2dPoolReluForward& call) { return call.winner.mutable_data<uint8_t>(); }

}  // namespace
}  // namespace hs::HS_ISA
