// Exercise 7, of docs/chapters/05_data_pipeline.md: two slots between a thread that loads and one that trains. Edit
// exercise.cpp beside this file, then run tests/exercise 07.
#pragma once

#include <cstdint>
#include <functional>

namespace exercise {

using SlotWork = std::function<void(int64_t batch, int slot)>;

// For batch = 0 .. batches-1, in this order: calls fill(batch, slot) on one thread of its own and then use(batch, slot)
// on the calling thread, with slot = batch % 2. While one slot is used the other one is filled; a slot is not filled
// again before its use has returned. When run() returns or throws, its thread has ended.
//
// If fill throws, the batches before it are used, and run() throws that exception. If use(batch) throws, no batch after
// batch + 1 is filled, and run() throws that.
void run(int64_t batches, const SlotWork& fill, const SlotWork& use);

}  // namespace exercise
