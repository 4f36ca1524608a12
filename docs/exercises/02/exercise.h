// Exercise 2, of docs/chapters/10_determinism.md: a sum on several threads. Edit exercise.cpp beside this file, then
// run tests/exercise 02.
#pragma once

#include <cstdint>

namespace exercise {

// The sum of values[0 .. size-1], 0 if there are none, in f32. `threads` threads read the values at the same time; the
// caller may be one of them, and where there are few values, some may be left out. The bits depend on the values and
// their number alone: not on `threads`, and not on which thread is fast. It is within 1e-5 of the exact sum of 20
// million positive values.
float parallel_sum(const float* values, int64_t size, int threads);

}  // namespace exercise
