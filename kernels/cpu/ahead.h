// Memory requested before it is used. CPU files only.
#pragma once

#include <cstdint>

namespace hs {

// A block of rows that is needed soon: requests it a few cache lines at a time, while something else is computed.
class Ahead {
 public:
  Ahead() = default;  // of nothing

  // turns: how often request() will be called. stride: elements between rows
  template <class T>
  Ahead(const T* from, int64_t rows, int64_t columns, int64_t stride, int64_t turns)
      : row_(reinterpret_cast<const char*>(from)),
        rows_(rows),
        bytes_(columns * static_cast<int64_t>(sizeof(T))),
        stride_(stride * static_cast<int64_t>(sizeof(T))),
        lines_((rows * ((bytes_ + line - 1) / line) + turns - 1) / turns) {}

  void request() {
    const char* row = row_;  // copies, which stay in registers
    int64_t byte = byte_, rows = rows_;
    for (int64_t i = 0; i < lines_ && rows > 0; ++i) {
      __builtin_prefetch(row + byte, 0, 2);  // into the second-level cache
      if ((byte += line) >= bytes_) byte = 0, row += stride_, --rows;
    }
    row_ = row, byte_ = byte, rows_ = rows;
  }

 private:
  static constexpr int64_t line = 64;
  const char* row_ = nullptr;
  int64_t rows_ = 0, bytes_ = 0, stride_ = 0, lines_ = 0, byte_ = 0;
};

}  // namespace hs
