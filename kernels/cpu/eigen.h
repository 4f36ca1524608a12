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

// Eigen runs single-threaded inside our own pieces, and blocks its products by cache sizes that it would otherwise ask
// the machine for: constants, so that the same binary adds in the same order on every machine. Called by each kernel
// before it forks.
inline void prepare_eigen() {
  [[maybe_unused]] static const bool once = [] {
    Eigen::setNbThreads(1);
    Eigen::setCpuCacheSizes(32 * 1024, 1024 * 1024, 16 * 1024 * 1024);
    return true;
  }();
}

}  // namespace hs
