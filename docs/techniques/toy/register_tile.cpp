// The register tile: the innermost loop of a fast matrix product C = A B.
//
// The definition, c[i][j] += a[i][k] b[k][j], loads a, b and c and stores c for one multiply-add. A tile keeps the
// sums of R rows by W columns in registers: a column of A (R numbers) and a row of B (W numbers) are loaded, and their
// outer product is R W multiply-adds. So a multiply-add needs (R + W) / (R W) loads, and no store until the end.
// Several independent sums also hide the latency of an addition: a unit that starts one multiply-add each cycle and
// takes L cycles for it needs L sums in flight.
#include <cstdio>
#include <vector>

namespace {

struct Counts {
  long loads = 0, stores = 0, multiply_adds = 0;
};

// Numbers in memory. What a function keeps in variables of its own is not counted: these are its registers.
class Memory {
 public:
  Memory(const std::vector<float>& values, Counts& counts) : values_(values), counts_(counts) {}
  float load(int i) const { return ++counts_.loads, values_[i]; }
  void store(int i, float value) { ++counts_.stores, values_[i] = value; }
  const std::vector<float>& values() const { return values_; }

 private:
  std::vector<float> values_;
  Counts& counts_;
};

// A (M, K), B (K, N), C (M, N), row-major.
struct Sizes {
  int M, N, K;
};

void plain_loops(Sizes s, const Memory& a, const Memory& b, Memory& c, Counts& counts) {
  for (int i = 0; i < s.M; ++i) {
    for (int k = 0; k < s.K; ++k) {
      for (int j = 0; j < s.N; ++j, ++counts.multiply_adds) {
        c.store(i * s.N + j, c.load(i * s.N + j) + a.load(i * s.K + k) * b.load(k * s.N + j));
      }
    }
  }
}

// REQUIRES: M is a multiple of R, and N of W. The engine cuts what is left over into smaller tiles.
template <int R, int W>
void register_tiles(Sizes s, const Memory& a, const Memory& b, Memory& c, Counts& counts) {
  for (int i = 0; i < s.M; i += R) {
    for (int j = 0; j < s.N; j += W) {
      float sum[R][W] = {};
      for (int k = 0; k < s.K; ++k) {
        float row[W];
        for (int w = 0; w < W; ++w) row[w] = b.load(k * s.N + j + w);
        for (int r = 0; r < R; ++r) {
          const float factor = a.load((i + r) * s.K + k);
          for (int w = 0; w < W; ++w, ++counts.multiply_adds) sum[r][w] += factor * row[w];
        }
      }
      for (int r = 0; r < R; ++r) {
        for (int w = 0; w < W; ++w) c.store((i + r) * s.N + j + w, sum[r][w]);
      }
    }
  }
}

// Small integers, so that every order of additions gives the same bits.
std::vector<float> integers(int count, int factor) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(i * factor % 7 - 3);
  return values;
}

struct Result {
  std::vector<float> c;
  double loads, stores;  // per multiply-add
};

template <class Product>
Result run(Sizes s, const Product& product) {
  Counts counts;
  const Memory a(integers(s.M * s.K, 5), counts), b(integers(s.K * s.N, 3), counts);
  Memory c(std::vector<float>(s.M * s.N), counts);
  product(s, a, b, c, counts);
  const auto all = static_cast<double>(counts.multiply_adds);
  return {c.values(), static_cast<double>(counts.loads) / all, static_cast<double>(counts.stores) / all};
}

}  // namespace

int main() {
  const Sizes s = {24, 64, 50};
  const Result plain = run(s, plain_loops), narrow = run(s, register_tiles<6, 16>),
               wide = run(s, register_tiles<6, 64>);
  for (const auto& [name, result] : {std::pair("plain loops", plain), {"6 x 16", narrow}, {"6 x 64", wide}}) {
    std::printf("%-12s %.3f loads and %.3f stores for a multiply-add\n", name, result.loads, result.stores);
  }
  const bool same = plain.c == narrow.c && plain.c == wide.c;
  return same && plain.loads == 3 && narrow.loads == 22.0 / 96 && wide.loads == 70.0 / 384 ? 0 : 1;
}
