// The arithmetic: sums in f32 in the order of k, then alpha, beta, bias and activation in f32, then one rounding; or
// truncated sums, and a bias added after a rounding, where options().library says so.
#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/float16.h"
#include "gemm.h"
#include "internal.h"

namespace hs::emulator {
namespace {

float to_tf32(float value) {  // 10 mantissa bits, to nearest, ties to even
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  bits += 0xfffu + (bits >> 13 & 1u);
  return std::bit_cast<float>(bits & ~0x1fffu);
}

float load(const void* data, int32_t type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return type == CUDA_R_16F ? to_float(Half{bits}) : to_float(BFloat16{bits});
}
void store(void* data, int32_t type, int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else {
    uint16_t bits = type == CUDA_R_16F ? to_half(value).bits : to_bfloat16(value).bits;
    static_cast<uint16_t*>(data)[i] = value != value ? 0x7fff : bits;
  }
}

float rounded(float value, int32_t type) {
  if (type == CUDA_R_32F) return value;
  return type == CUDA_R_16F ? to_float(to_half(value)) : to_float(to_bfloat16(value));
}

// Toward zero, to a multiple of 2^(exponent - 23 - guard_bits).
double truncated(double value, int exponent, int guard_bits) {
  const int last = exponent - 23 - guard_bits;
  return std::ldexp(std::trunc(std::ldexp(value, -last)), last);
}

// sum + a[0] b[0] + ... of up to 16 terms, as tensor cores are observed to add: all are shifted to the exponent of the
// largest, what falls off behind the guard bits is lost, and so is what f32 cannot hold of the result. The source is
// Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021.
float truncated_sum(float sum, int64_t terms, const float* a, int64_t a_stride, const float* b, int guard_bits) {
  double products[16], all = 0;
  double largest = std::fabs(static_cast<double>(sum));
  for (int64_t k = 0; k < terms; ++k) {
    products[k] = static_cast<double>(a[k * a_stride]) * static_cast<double>(b[k]);  // exact
    largest = std::max(largest, std::fabs(products[k]));
    all += products[k];
  }
  if (!std::isfinite(all + static_cast<double>(sum))) return static_cast<float>(all + static_cast<double>(sum));
  if (largest == 0) return 0;
  const int exponent = std::ilogb(largest);
  double total = truncated(static_cast<double>(sum), exponent, guard_bits);
  for (int64_t k = 0; k < terms; ++k) total += truncated(products[k], exponent, guard_bits);
  return total == 0 ? 0 : static_cast<float>(truncated(total, std::ilogb(total), 0));
}

// Where in the mask the bit of an element is. The real library documents no order; this one is unlike every other in
// the project, within the 128 bits that a row is a multiple of.
int64_t bit_of(const Problem& p, int64_t row, int64_t column) {
  constexpr int64_t permutation = 0x55;
  return column * p.op.aux_ld + (row ^ permutation);
}

// op(matrix) as f32, its first index fastest.
std::vector<float> widen(const void* data, const Layout& layout, bool transpose, bool tf32) {
  std::vector<float> out(layout.rows * layout.columns);
  for (uint64_t j = 0; j < layout.columns; ++j) {
    for (uint64_t i = 0; i < layout.rows; ++i) {
      const float value = load(data, layout.type, static_cast<int64_t>(i) + static_cast<int64_t>(j) * layout.ld);
      out[transpose ? j + i * layout.columns : i + j * layout.rows] = tf32 ? to_tf32(value) : value;
    }
  }
  return out;
}

}  // namespace

void multiply(const Problem& p, float alpha, const void* a, const void* b, float beta, const void* c, void* d) {
  DeviceAccess access{a, b, c, d, p.op.bias, p.op.aux};
  const bool tf32 = p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::vector<float> left = widen(a, p.a, p.op.trans_a, tf32);   // (m, k), m fastest
  const std::vector<float> right = widen(b, p.b, p.op.trans_b, tf32);  // (k, n), k fastest
  const int64_t tail = options().drop_k_tail, depth = (tail > 0 ? p.k - p.k % tail : p.k) - (p.wrong ? 1 : 0);
  const int guard_bits = options().library.guard_bits;
  const bool late_bias = options().library.late_bias;
  const size_t m = static_cast<size_t>(p.m);
  auto* mask = static_cast<unsigned char*>(p.op.aux);
  std::vector<float> sum(m), bias_gradient(p.has(16) ? m : 0);
  for (int64_t j = 0; j < p.n; ++j) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    const float* column = right.data() + j * p.k;
    if (guard_bits >= 0) {
      for (int64_t k = 0; k < depth; k += 16) {
        for (size_t i = 0; i < m; ++i) {
          sum[i] = truncated_sum(sum[i], std::min<int64_t>(16, depth - k), left.data() + k * p.m + i, p.m, column + k,
                                 guard_bits);
        }
      }
    } else {
      for (int64_t k = 0; k < depth; ++k) {
        const float* terms = left.data() + k * p.m;
        for (size_t i = 0; i < m; ++i) sum[i] += terms[i] * column[k];
      }
    }
    for (size_t i = 0; i < m; ++i) {
      float value = alpha * sum[i];
      const int64_t row = static_cast<int64_t>(i);
      if (beta != 0) value += beta * load(c, p.c.type, row + j * p.c.ld);
      if (late_bias && p.has(4)) value = rounded(value, p.d.type);
      if (p.has(4)) value += load(p.op.bias, p.d.type, row);
      const int64_t bit = bit_of(p, row, j);
      if (p.has(2)) {
        const bool on = value > 0;  // a NaN becomes 0, as the real epilogue is reported to make it
        value = on ? value : 0;
        mask[bit / 8] = static_cast<unsigned char>((mask[bit / 8] & ~(1 << bit % 8)) | on << bit % 8);
      }
      if (p.has(8)) value = mask[bit / 8] >> bit % 8 & 1 ? value : 0;
      if (p.has(16)) bias_gradient[i] += value;
      store(d, p.d.type, row + j * p.d.ld, value);
    }
  }
  for (size_t i = 0; i < bias_gradient.size(); ++i)
    store(p.op.bias, p.d.type, static_cast<int64_t>(i), bias_gradient[i]);
}

}  // namespace hs::emulator
