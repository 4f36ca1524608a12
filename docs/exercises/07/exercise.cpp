// The starter: right, and nothing happens at the same time. Change it until tests/exercise 07 is content.
#include "docs/exercises/07/exercise.h"

namespace exercise {

void run(int64_t batches, const SlotWork& fill, const SlotWork& use) {
  for (int64_t batch = 0; batch < batches; ++batch) {
    const int slot = static_cast<int>(batch % 2);
    fill(batch, slot);
    use(batch, slot);
  }
}

}  // namespace exercise
