// Exercise 3, of docs/chapters/kernel_slots.md: a variant of your own. Edit exercise.cpp beside this file, a plug-in,
// then run tests/exercise 03, which has it judged (docs/judge.md).
//
// exercise.cpp registers a variant `mine` of the slot relu_forward (kernels/relu/relu.h), for the CPU and tensors of
// f32. Its rank puts it before `simple`. It is right for every number there is, NaN stays NaN, and `.supported`
// leaves f16, bf16 and f64 to the variants below it: is_f32(call.x) asks.
#pragma once
