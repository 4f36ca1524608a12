#include <fmt/format.h>

#include "kernels/examples/register.h"
#include "kernels/split_windows/split_windows.h"

namespace hs::examples::split_windows_rows {

// Symbols of one byte or two.
OpCase row_of(int64_t N, int64_t T, int64_t width) {
  return {.name = fmt::format("split_windows, {} of {} + 1 symbols of {}", N, T, width),
          .run = {[=](const Inputs&) {
            std::vector<uint8_t> symbols;
            for (int64_t i = 0; i < N * (T + 1) * width; ++i) symbols.push_back(static_cast<uint8_t>(i * 7));
            const auto [tokens, labels] = split_windows(on_test_device(Tensor::from(symbols, {N, 1, T + 1, width})));
            return join({tokens, labels});
          }},
          .reference = {[=](const std::vector<Numbers>&) {
            Numbers all;
            for (const int64_t first : {0, 1}) {
              for (int64_t i = 0; i < N * T; ++i) {
                const int64_t at = (i / T * (T + 1) + i % T + first) * width;  // of the symbol's bytes
                all.push_back(static_cast<double>(at * 7 % 256 + (width == 2 ? (at + 1) * 7 % 256 * 256 : 0)));
              }
            }
            return all;
          }},
          .same_on_devices = true};
}

const Examples rows([](Table& table) {
  for (const auto& [N, T] : {std::pair<int64_t, int64_t>{3, 5}, {1, 1}, {2, 300}, {0, 4}})
    for (const int64_t width : {1, 2}) table.push_back(row_of(N, T, width));
});

const Examples drawn([](Draw& draw) {
  const int64_t N = draw.size(40);
  const int64_t T = draw.positive(300);
  return row_of(N, T, draw.positive(2));
});

}  // namespace hs::examples::split_windows_rows
