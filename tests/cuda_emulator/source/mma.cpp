// ldmatrix and mma.sync for a whole warp at once. Products are exact in f32, sums are rounded to f32 after every
// term, in the order of k. (A real tensor core adds several products at once and truncates; only integers agree
// exactly.) The fragment layouts are explained in kernels/cuda/mma.cuh.
#include "kernels/cuda/mma.cuh"

#include <cstring>

#include "counters.h"

namespace hs::emulator {
namespace {

struct LoadMatrix {
  uint32_t (*r)[4];
  SharedBuffer* buffer;
  ptrdiff_t offset;
  bool transposed;
};

struct Mma {
  float (*d)[4];
  const uint32_t (*a)[4];
  const uint32_t (*b)[2];
  const float (*c)[4];
  bool bf16;
};

float widen(uint32_t two, int which, bool bf16) {
  const uint16_t bits = static_cast<uint16_t>(two >> (16 * which));
  return bf16 ? to_float(BFloat16{bits}) : to_float(Half{bits});
}

}  // namespace

void ldmatrix(uint32_t (&r)[4], SharedBuffer* buffer, ptrdiff_t offset, bool transposed, const Place& place) {
  LoadMatrix mine{&r, buffer, offset, transposed};
  const Perform perform = [](void* const(&arguments)[32], uint32_t, const Place&) {
    for (int tile = 0; tile < 4; ++tile) {
      uint16_t numbers[8][8] = {};
      for (int row = 0; row < 8; ++row) {
        const int lane = 8 * tile + row;
        const auto* part = static_cast<const LoadMatrix*>(arguments[lane]);
        if (!part->buffer->access(part->offset, 16, Access::read, lane)) continue;
        memcpy(numbers[row], part->buffer->at(part->offset), 16);
      }
      for (int lane = 0; lane < 32; ++lane) {
        const auto* part = static_cast<const LoadMatrix*>(arguments[lane]);
        const int group = lane / 4, pair = 2 * (lane % 4);
        const uint32_t low = part->transposed ? numbers[pair][group] : numbers[group][pair];
        const uint32_t high = part->transposed ? numbers[pair + 1][group] : numbers[group][pair + 1];
        (*part->r)[tile] = low | high << 16;
      }
    }
  };
  collective(0xffffffffu, &mine, perform, false, place);
}

void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4], bool bf16,
         const Place& place) {
  Mma mine{&d, &a, &b, &c, bf16};
  const Perform perform = [](void* const(&arguments)[32], uint32_t, const Place&) {
    count_product();
    float wide_a[16][16], wide_b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto* part = static_cast<const Mma*>(arguments[lane]);
      const int group = lane / 4, pair = 2 * (lane % 4);
      for (int which = 0; which < 2; ++which) {
        for (int i = 0; i < 4; ++i) {
          wide_a[group + 8 * (i % 2)][pair + which + 8 * (i / 2)] = widen((*part->a)[i], which, part->bf16);
        }
        for (int i = 0; i < 2; ++i) wide_b[pair + which + 8 * i][group] = widen((*part->b)[i], which, part->bf16);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      const auto* part = static_cast<const Mma*>(arguments[lane]);
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        float sum = (*part->c)[i];
        for (int k = 0; k < 16; ++k) sum += wide_a[row][k] * wide_b[k][column];
        (*part->d)[i] = sum;
      }
    }
  };
  collective(0xffffffffu, &mine, perform, false, place);
}

}  // namespace hs::emulator
