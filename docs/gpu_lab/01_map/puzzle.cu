// Map: y[i] = 2 * x[i] + 1 for n = 1000 elements, with 4 blocks of 256 threads.
//
//   block      0               1               2               3
//   thread     0 1 ... 255     0 1 ... 255     0 1 ... 255     0 1 ... 231 | 232 ... 255
//   element    0 1 ... 255   256 ... 511     512 ... 767     768 ... 999   | none
//
// Mend the line below, and let the threads that have no element do nothing. Neighbours in a warp take neighbours in
// memory: 32 floats are 4 sectors of 32 bytes.
#include <cuda_runtime.h>

__global__ void map(int n, const float* x, float* y) {
  const int i = static_cast<int>(threadIdx.x);
  y[i] = 2 * x[i] + 1;
}
