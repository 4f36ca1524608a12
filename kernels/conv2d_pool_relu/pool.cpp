#include "kernels/conv2d_pool_relu/pool.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/conv2d/direct.h"

namespace hs::HS_ISA {
namespace {

void pool_sums(const float* sums, const WindowRow& row, int64_t channels, float* y, uint8_t* winner) {
  for (int64_t window = 0; window < row.windows; ++window) {
    const float* at = sums + 2 * window * row.right;
    for (int64_t c = 0; c < channels; c += lanes, y += lanes, winner += lanes) {
      const Pooled pooled =
          pool(load(at + c), load(at + row.right + c), load(at + row.below + c), load(at + row.below + row.right + c));
      store(y, pooled.y);
      store_bytes(winner, pooled.winner);
    }
  }
}

void unpool(const BFloat16* dy, const uint8_t* winner, int64_t OH, int64_t OW, int64_t OC, const Strides& to,
            BFloat16* dense) {
  using Places [[gnu::aligned(1), gnu::may_alias]] = uint8_t __attribute__((vector_size(HS_VECTOR_BYTES / 2)));
  using Values [[gnu::aligned(2), gnu::may_alias]] = uint16_t __attribute__((vector_size(HS_VECTOR_BYTES)));
  constexpr int64_t together = HS_VECTOR_BYTES / 2;
  for (int64_t ph = 0; ph < OH / 2; ++ph) {
    for (int64_t pw = 0; pw < OW / 2; ++pw, dy += OC, winner += OC) {
      BFloat16* first = dense + 2 * ph * to.row + 2 * pw * to.pixel;
      BFloat16* const pixels[] = {first, first + to.pixel, first + to.row, first + to.row + to.pixel};
      int64_t oc = 0;
      for (; oc + together <= OC; oc += together) {
        const auto values = *reinterpret_cast<const Values*>(dy + oc);
        const auto places = __builtin_convertvector(*reinterpret_cast<const Places*>(winner + oc), Values);
        for (uint16_t place = 0; place < 4; ++place) {
          *reinterpret_cast<Values*>(pixels[place] + oc) = places == place ? values : Values{};
        }
      }
      for (; oc < OC; ++oc) {
        for (int place = 0; place < 4; ++place) pixels[place][oc] = winner[oc] == place ? dy[oc] : BFloat16{0};
      }
    }
  }
}

void unpool_pairs(const BFloat16* dy, const uint8_t* winner, int64_t windows, int64_t OC, int64_t channels, Cell* pairs,
                  int64_t lower, float* dbias) {
  using Values [[gnu::aligned(2), gnu::may_alias]] = uint16_t __attribute__((vector_size(HS_VECTOR_BYTES / 2)));
  using Cells [[gnu::aligned(4), gnu::may_alias]] = uint32_t __attribute__((vector_size(HS_VECTOR_BYTES)));
  int64_t oc = 0;
  for (; oc + lanes <= channels; oc += lanes) {
    Vec sum = {};
    for (int64_t window = 0; window < windows; ++window) {
      const auto first = __builtin_convertvector(*reinterpret_cast<const Values*>(dy + window * OC + oc), Cells);
      const Ints place = load_bytes(winner + window * OC + oc);
      const Cells second = first << 16;  // as a float: the value
      Cell* to = pairs + window * 32 + oc;
      *reinterpret_cast<Cells*>(to) = (place == 0 ? first : Cells{}) | (place == 1 ? second : Cells{});
      *reinterpret_cast<Cells*>(to + lower) = (place == 2 ? first : Cells{}) | (place == 3 ? second : Cells{});
      sum += place == int32_t{closed} ? Vec{} : reinterpret_cast<Vec>(second);
    }
    store(dbias + oc, load(dbias + oc) + sum);
  }
  for (; oc < channels; ++oc) {
    float sum = 0;
    for (int64_t window = 0; window < windows; ++window) {
      const Cell value = dy[window * OC + oc].bits;
      const uint8_t place = winner[window * OC + oc];
      Cell* to = pairs + window * 32 + oc;
      to[0] = place < 2 ? value << (place * 16) : 0;
      to[lower] = place == 2 || place == 3 ? value << ((place - 2) * 16) : 0;
      if (place != closed) sum += to_float(dy[window * OC + oc]);
    }
    dbias[oc] += sum;
  }
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d_pool_relu/pool.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

void pool_sums(const float* sums, const WindowRow& row, int64_t channels, float* y, uint8_t* winner) {
  HS_FOR_THIS_CPU(pool_sums)(sums, row, channels, y, winner);
}

void unpool(const BFloat16* dy, const uint8_t* winner, int64_t OH, int64_t OW, int64_t OC, const Strides& to,
            BFloat16* dense) {
  HS_FOR_THIS_CPU(unpool)(dy, winner, OH, OW, OC, to, dense);
}

void unpool_pairs(const BFloat16* dy, const uint8_t* winner, int64_t windows, int64_t OC, int64_t channels, Cell* pairs,
                  int64_t lower, float* dbias) {
  HS_FOR_THIS_CPU(unpool_pairs)(dy, winner, windows, OC, channels, pairs, lower, dbias);
}

}  // namespace hs

#endif
