// Exercise 1, of docs/chapters/autograd.md: a differentiable op of your own. Edit exercise.cpp beside this file, then
// run tests/exercise 01.
#pragma once

#include "engine/tensor.h"

namespace exercise {

// y = log(1 + e^x), element by element, f32 on the CPU, differentiable. softplus(1000) is 1000 and softplus(-1000) is
// 0. It keeps y for backward and nothing else, so the caller may free x.
hs::Tensor softplus(const hs::Tensor& x);

}  // namespace exercise
