// Exercise 3, of docs/chapters/kernel_slots.md: a variant of your own. Edit exercise.cpp beside this file, then run
// tests/exercise 03.
//
// exercise.cpp registers a variant `mine` of the slot relu_forward (kernels/relu/relu.h), for the CPU and tensors of
// f32. Its rank puts it before `simple`. It gives `simple`'s bits for every number there is, NaN and -0 too, and leaves
// f16, bf16 and f64 to the variants below it.
#pragma once
