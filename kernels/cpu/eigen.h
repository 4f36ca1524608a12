// Eigen as the GEMM of the simple variants: row-major views on plain arrays. CPU files only.
#pragma once

#include <Eigen/Core>
#include <cstdint>

namespace hs {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
Eigen::Map<RowMajor<T>> as_matrix(T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns};
}
template <class T>
Eigen::Map<const RowMajor<T>> as_matrix(const T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns};
}

// Makes Eigen single-threaded, because kernels divide the work themselves, and sets constant cache sizes for its
// blocking. Eigen would query the machine otherwise; with constants, the same binary adds in the same order everywhere.
// Each kernel calls it before it forks.
inline void prepare_eigen() {
  [[maybe_unused]] static const bool once = [] {
    Eigen::setNbThreads(1);
    Eigen::setCpuCacheSizes(32 * 1024, 1024 * 1024, 16 * 1024 * 1024);
    return true;
  }();
}

}  // namespace hs
