// Shared by the CPU kernels: dispatch over the element types, and blocks of 16-bit elements as f32.
// Every kernel computes in f32 on f16 and bf16 tensors, whatever it stores, and rounds once.
#pragma once

#include <algorithm>
#include <type_traits>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "engine/parallel.h"
#include "engine/tensor.h"
#include "kernels/cpu/convert.h"

namespace hs {

inline bool is_f32(const Tensor& x) { return x.dtype() == DType::f32; }
inline bool is_f32_or_f64(const Tensor& x) { return is_f32(x) || x.dtype() == DType::f64; }
inline bool is_16_bit(const Tensor& x) { return x.dtype() == DType::f16 || x.dtype() == DType::bf16; }
inline bool is_float(const Tensor& x) { return is_f32_or_f64(x) || is_16_bit(x); }
// Whether x may be added to y: the dtypes are equal, or x has 16 bits and y is f32.
inline bool is_same_or_f32(const Tensor& x, const Tensor& y) {
  return y.dtype() == x.dtype() || (is_16_bit(x) && is_f32(y));
}

// Whether they have one float type both, or x is f32 and y has 16 bits.
inline bool is_float_or_narrower(const Tensor& x, const Tensor& y) { return is_float(x) && is_same_or_f32(y, x); }

// For `supported`: they ask the type of a call's first tensor.
inline constexpr auto takes_f32_or_f64 = [](const auto& call) { return is_f32_or_f64(*call.tensors().front()); };
inline constexpr auto takes_floats = [](const auto& call) { return is_float(*call.tensors().front()); };
inline constexpr auto takes_f32_or_16_bits = [](const auto& call) {
  const Tensor& first = *call.tensors().front();
  return is_f32(first) || is_16_bit(first);
};

// Calls body.operator()<T>() with T = float or double. REQUIRES: is_f32_or_f64 for this dtype; variants say so in
// `supported`.
template <class Body>
void for_f32_or_f64(DType dtype, const Body& body) {
  if (dtype == DType::f64) return body.template operator()<double>();
  body.template operator()<float>();
}

// Calls body.operator()<T>() with T = float, Half or BFloat16, and returns what that does. REQUIRES: is_float for this
// dtype, and not f64
template <class Body>
auto for_f32_or_16_bits(DType dtype, const Body& body) {
  if (dtype == DType::f16) return body.template operator()<Half>();
  if (dtype == DType::bf16) return body.template operator()<BFloat16>();
  return body.template operator()<float>();
}

// Calls body.operator()<T>() with T = float, double, Half or BFloat16. REQUIRES: is_float for this dtype
template <class Body>
void for_float_type(DType dtype, const Body& body) {
  if (dtype == DType::f64) return body.template operator()<double>();
  for_f32_or_16_bits(dtype, body);
}

// The two above with the types of x and y: body.operator()<T, N>(). REQUIRES: is_float_or_narrower
template <class Body>
void for_f32_or_16_bits(const Tensor& x, const Tensor& y, const Body& body) {
  for_f32_or_16_bits(y.dtype(), [&]<class N>() {
    x.dtype() == y.dtype() ? body.template operator()<N, N>() : body.template operator()<float, N>();
  });
}
template <class Body>
void for_float_type(const Tensor& x, const Tensor& y, const Body& body) {
  if (y.dtype() == DType::f64) return body.template operator()<double, double>();
  for_f32_or_16_bits(x, y, body);
}

template <class T>
inline constexpr bool stores_16_bits = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// The type that a kernel computes in when it stores T.
template <class T>
using Computing = std::conditional_t<stores_16_bits<T>, float, T>;

inline float to_computing(float value) { return value; }
inline double to_computing(double value) { return value; }
inline float to_computing(Half value) { return to_float(value); }
inline float to_computing(BFloat16 value) { return to_float(value); }

template <class T>
T from_computing(Computing<T> value) {
  if constexpr (std::is_same_v<T, Half>) return to_half(value);
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(value);
  if constexpr (!stores_16_bits<T>) return value;
}

// Whether ReLU makes x zero. NaN is kept.
inline bool is_closed(float x) { return x <= 0; }
inline bool is_closed(double x) { return x <= 0; }

// The same on the bits of a 16-bit value: zero, or negative and not NaN. Nothing is computed, so nothing is widened.
template <class T>
bool is_closed(T x) {
  constexpr uint16_t negative = 0x8000, negative_infinity = std::is_same_v<T, Half> ? 0xfc00 : 0xff80;
  return x.bits == 0 || (x.bits >= negative && x.bits <= negative_infinity);
}

// to = dy, but zero where ReLU made y zero. to may be dy. Part of its caller, so that it has the caller's instructions.
template <class T, class Element>
[[gnu::always_inline]] inline void through_relu(const T* y, const Element* dy, int64_t count, Element* to) {
  for (int64_t i = 0; i < count; ++i) {
    const Element gradient = dy[i];  // read on both paths, so that the compiler may use vectors
    to[i] = is_closed(y[i]) ? Element{} : gradient;
  }
}

// 16-bit elements are widened in blocks of at most this many, which stay in the first-level cache.
inline constexpr int64_t block_size = 256;

// `count` elements in the computing type: the array itself, or a widened copy in `buffer`.
template <class T>
const Computing<T>* as_computing(const T* from, int64_t count, Computing<T>* buffer) {
  if constexpr (stores_16_bits<T>) {
    widen(from, buffer, count);
    return buffer;
  } else {
    return from;
  }
}

// Elements as they are computed with: copied, or widened.
template <class T, class Element>
void copy_elements(const T* from, int64_t count, Element* to) {
  if constexpr (std::is_same_v<T, Element>) {
    std::copy_n(from, count, to);
  } else {
    widen(from, to, count);
  }
}

// as_computing with its own buffer.
// REQUIRES: count <= block_size for 16-bit types
template <class T>
class Block {
 public:
  const Computing<T>* read(const T* from, int64_t count) { return as_computing(from, count, buffer_); }

 private:
  Computing<T> buffer_[stores_16_bits<T> ? block_size : 1];
};

// The inverse of as_computing(): stores `count` values, rounded to T.
template <class T>
void store_block(const Computing<T>* values, T* to, int64_t count) {
  if constexpr (stores_16_bits<T>) {
    narrow(values, to, count);
  } else {
    std::copy_n(values, count, to);
  }
}

// The register that says how the processor computes floats, and the bits of it by which subnormals are zero.
#if defined(__x86_64__)
inline unsigned float_control() { return _mm_getcsr(); }
inline void set_float_control(unsigned control) { _mm_setcsr(control); }
inline constexpr unsigned zero_subnormals = _MM_FLUSH_ZERO_ON | 0x40;
#elif defined(__aarch64__)
inline uint64_t float_control() {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
inline void set_float_control(uint64_t control) { asm volatile("msr fpcr, %0" ::"r"(control) : "memory"); }
inline constexpr uint64_t zero_subnormals = 1 << 24;
#else
inline int float_control() { return 0; }
inline void set_float_control(int) {}
inline constexpr int zero_subnormals = 0;
#endif

// While alive, subnormals, which cost x86-64 a hundred cycles each, are read and written as zero.
struct FlushSubnormals {
  FlushSubnormals() { set_float_control(before | zero_subnormals); }
  ~FlushSubnormals() { set_float_control(before); }
  const decltype(float_control()) before = float_control();
};

// Calls body(first, count) for pieces of begin .. end-1 that suit a Block<T>: one piece if T is not
// widened.
template <class T, class Body>
void in_blocks(int64_t begin, int64_t end, const Body& body) {
  const int64_t step = stores_16_bits<T> ? block_size : std::max<int64_t>(end - begin, 1);
  for (int64_t first = begin; first < end; first += step) body(first, std::min(step, end - first));
}

// map_range where some of the elements have 16 bits.
template <class F, class Out, class... In>
void map_blocks(int64_t begin, int64_t end, const F& f, Out* y, const In*... x) {
  for (int64_t first = begin; first < end; first += block_size) {
    const int64_t count = std::min(block_size, end - first);
    float out[block_size];
    const auto apply = [&](auto&&... blocks) {
      const auto compute = [&](const auto*... in) {
        for (int64_t i = 0; i < count; ++i) out[i] = f(in[i]...);
      };
      compute(blocks.read(x + first, count)...);
    };
    apply(Block<In>()...);
    store_block(out, y + first, count);
  }
}

// y[i] = f(x[i]...) for i from begin to end-1, computed in f32 (f64 for f64) and rounded once. y may be one of the x.
template <class F, class Out, class... In>
void map_range(int64_t begin, int64_t end, const F& f, Out* y, const In*... x) {
  if constexpr (stores_16_bits<Out> || (stores_16_bits<In> || ...)) {
    map_blocks(begin, end, f, y, x...);
  } else {
    for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]...);
  }
}

// y[i] = f(x[i]...) over whole tensors of `size` elements, on all threads; see map_range.
template <class F, class Out, class... In>
void map_elements(int64_t size, const F& f, Out* y, const In*... x) {
  parallel_ranges(size, elementwise_grain, [=](int64_t begin, int64_t end) { map_range(begin, end, f, y, x...); });
}

// Calls body(row) for rows of C elements, on all threads.
template <class Body>
void parallel_rows(int64_t rows, int64_t C, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / std::max<int64_t>(C, 1));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

// gradient[i] = value(i, the old gradient[i] if `adds`, otherwise 0), rounded once to the gradient's type.
template <class F>
void update_gradient(Tensor& gradient, bool adds, const F& value) {
  for_float_type(gradient.dtype(), [&]<class T>() {
    T* to = gradient.mutable_data<T>();
    parallel_ranges(gradient.size(), elementwise_grain / 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Computing<T> before = adds ? to_computing(to[i]) : 0;
        to[i] = from_computing<T>(static_cast<Computing<T>>(value(i, before)));
      }
    });
  });
}

// The same for the sums of `groups` groups, `stride` from each other: each is added in turn. Nothing if it is
// undefined.
template <class Total, class Real>
void add_groups(const Real* sums, int64_t stride, int64_t groups, bool adds, Tensor& gradient) {
  if (!gradient.defined()) return;
  for_float_type(gradient.dtype(), [&]<class T>() {
    T* to = gradient.mutable_data<T>();
    parallel_ranges(gradient.size(), block_size, [=](int64_t begin, int64_t end) {
      Total total[block_size] = {};  // groups in the outer loop: their sums are read in the order of memory
      for (int64_t i = begin; adds && i < end; ++i) total[i - begin] = static_cast<Total>(to_computing(to[i]));
      for (int64_t group = 0; group < groups; ++group) {
        for (int64_t i = begin; i < end; ++i) total[i - begin] += static_cast<Total>(sums[group * stride + i]);
      }
      for (int64_t i = begin; i < end; ++i) to[i] = from_computing<T>(static_cast<Computing<T>>(total[i - begin]));
    });
  });
}

}  // namespace hs
