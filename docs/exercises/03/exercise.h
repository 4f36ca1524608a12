// Exercise 3, of docs/chapters/03_kernel_slots.md: a variant of your own. Edit exercise.cpp beside this file, a
// plug-in, then run tests/exercise 03, which has it judged (docs/judge.md).
//
// exercise.cpp registers a variant `mine` of the slot relu_forward (kernels/relu/relu.h), for the CPU and tensors of
// f32. Its rank puts it before `simple`. It is right for every number there is, NaN stays NaN, and `.supported`
// leaves f16, bf16 and f64 to the variants below it: is_f32(call.x) asks.
// A refusal that says `is f16 but was read as f32` means that it let such a call through.
//
//   struct ReluForward {
//     const Tensor& x;
//     Tensor& y;  // of x's shape and type
//   };
//
// Whether calls take it before `simple`, the judge does not ask, since it names the variant: halfstep-bench bench ops
// --plugin exercise.cpp has a * at the one that they take.
#pragma once
