// The toy's tiles compute the engine's matrix product; on small integers, bit by bit.
#define main main_of_register_tile
#include "docs/techniques/toy/register_tile.cpp"
#undef main

#include <doctest/doctest.h>

#include "kernels/gemm/gemm.h"

TEST_CASE("toy: register tile") {
  const Sizes s = {12, 128, 33};
  const hs::Tensor a = hs::Tensor::from(integers(s.M * s.K, 5), {s.M, s.K}),
                   b = hs::Tensor::from(integers(s.K * s.N, 3), {s.K, s.N});
  const std::vector<float> c = hs::matmul(a, b).to_vector<float>();
  CHECK(run(s, plain_loops).c == c);
  CHECK(run(s, register_tiles<6, 16>).c == c);
  CHECK(run(s, register_tiles<6, 64>).c == c);
  CHECK(main_of_register_tile() == 0);
}
