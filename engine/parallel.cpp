#include "engine/parallel.h"

#include <algorithm>
#include <thread>

namespace hs {
namespace {
int chosen = 0;
}

void set_threads(int count) { chosen = count; }

int threads() {
#ifdef _OPENMP
  static const int cores = std::max(1, static_cast<int>(omp_get_num_procs()));
  return chosen > 0 ? chosen : cores;
#else
  return 1;
#endif
}

}  // namespace hs
