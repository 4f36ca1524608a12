// The ladder of gemm on the emulator, for tests/gpu_lab ladder: of each variant for the device whether its product is
// right, and what its warps load and store. Arguments: none, `check` for the counts by hand, or M N K.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "docs/gpu_lab/picture.h"
#include "engine/parsed_number.h"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

using emulator::Counts;

struct Sums {
  uint64_t loaded = 0, stored = 0, conflicts = 0, requests = 0, products = 0;  // sectors first, then of tensor cores
  bool operator==(const Sums&) const = default;
  std::string text() const {
    return fmt::format("{} sectors loaded, {} stored, {} conflicts, {} requests", loaded, stored, conflicts, requests);
  }
};

// What the two lowest rungs take, by hand, where M, N and K are multiples of 128, 64 and 16.
//
// naive: a warp has 32 neighbours in a row of C. For each k its lanes load one element of A, in one sector, and 32
// neighbours of B, 64 bytes, in two.
Sums naive_by_hand(uint64_t M, uint64_t N, uint64_t K) {
  const uint64_t warps = M * N / 32;
  return {.loaded = warps * K * (1 + 2), .stored = warps * 2, .requests = warps * (2 * K + 1)};
}
// tiled: a block of 8 warps has 128 x 64 of C. For a step of 16 k it loads 128 x 16 of A and 64 x 16 of B, which are 64
// and 32 requests of two sectors, and stores them to shared memory in as many. A warp's part of A is two rows of 16 k,
// in words 132 k + row: k and k + 8 meet in a bank. Then each warp loads three vectors for each k. At the end a thread
// stores 8 x 4 elements one by one: a request is every fourth of 64 elements in two rows, and touches all their
// sectors.
Sums tiled_by_hand(uint64_t M, uint64_t N, uint64_t K) {
  const uint64_t blocks = M / 128 * (N / 64), steps = blocks * (K / 16), stores = blocks * 8 * (8 * 4);
  return {.loaded = steps * (64 + 32) * 2,
          .stored = stores * 2 * 4,
          .conflicts = steps * 64,
          .requests = steps * (2 * (64 + 32) + 8 * 16 * 3) + stores};
}

Sums sums_of(const std::vector<Counts>& kernels) {
  Sums sums;
  for (const Counts& of : kernels) {
    sums.loaded += of.loads.sectors;
    sums.stored += of.stores.sectors;
    sums.conflicts += of.shared.conflicts;
    sums.requests += of.loads.requests + of.stores.requests + of.shared.requests;
    sums.products += of.instructions.back();
  }
  return sums;
}

std::vector<float> numbers(int64_t count, uint32_t seed) {  // -2 to 2: sums of a few hundred products are exact in f16
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(((seed = seed * 1664525 + 1013904223) >> 16) % 5) - 2;
  return values;
}

Tensor on_device(const std::vector<float>& values, const Shape& shape) {
  std::vector<Half> halves;
  for (const float value : values) halves.push_back(to_half(value));
  return Tensor::from(halves, shape).to(Device::cuda);
}

bool has(const Tensor& c, const std::vector<float>& expected) {
  return std::ranges::equal(c.to_vector<Half>(), expected, {}, [](Half half) { return to_float(half); });
}

// How a rung's counts differ from those by hand, or an empty text.
std::string difference(std::string_view rung, const Sums& counted, int64_t M, int64_t N, int64_t K) {
  if (rung != "naive" && rung != "tiled") return "";
  const Sums by_hand = (rung == "naive" ? naive_by_hand : tiled_by_hand)(M, N, K);
  return counted == by_hand ? "" : fmt::format("{}: {}; by hand {}\n", rung, counted.text(), by_hand.text());
}

// Prints the table and, for LAB_PICTURE, which access of each rung costs most. Returns what is wrong.
std::string climb(int64_t M, int64_t N, int64_t K, bool check) {
  const std::vector<float> a = numbers(M * K, 1), b = numbers(K * N, 2);
  std::vector<float> product;
  for (int64_t i = 0; i < M * N; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += a[i / N * K + k] * b[k * N + i % N];
    product.push_back(sum);
  }
  const Tensor left = on_device(a, {M, K}), right = on_device(b, {K, N});

  const auto sectors = [](int64_t halves) { return static_cast<double>((halves + 15) / 16); };
  const double loads = sectors(M * K) + sectors(K * N), stores = sectors(M * N), thousands = M * N * K / 1024.0;
  fmt::print("C ({0}, {1}) = A ({0}, {2}) B ({2}, {1}) in f16: at least {3} sectors loaded and {4} stored\n\n", M, N, K,
             loads, stores);
  constexpr const char* row = "{:8} {:5} | {:>7} {:>6} | {:>7} {:>6} | {:>9} | {:>8} {:>15}\n";
  fmt::print(row, "rung", "right", "sectors", "times", "sectors", "times", "bank", "for 1024", "multiply-adds:");
  fmt::print(row, "", "", "loaded", "least", "stored", "least", "conflicts", "requests", "multiplies");
  std::vector<const VariantBase*> rungs;  // the lowest first
  for (const VariantBase* v = gemm.variants(); v; v = v->next) {
    if (v->device == Device::cuda) rungs.insert(rungs.begin(), v);
  }
  std::string beside, wrong;
  std::vector<std::pair<const char*, Counts>> pictures;
  for (const VariantBase* rung : rungs) {
    Tensor c = Tensor::zeros({M, N}, DType::f16, Device::cuda);
    const Gemm call{.a = left, .b = right, .c = c};
    gemm.force(rung->name);
    if (!gemm.variant_for(call)) {
      beside += fmt::format("{}: does not take this product\n", rung->name);
      continue;
    }
    gemm(call);  // the first time, a library is checked by kernels of ours
    c.fill_zero();
    emulator::options().count = true;
    gemm(call);
    const bool is_right = has(c, product);
    emulator::options().count = false;
    if (!is_right) wrong += fmt::format("{}: its product is wrong\n", rung->name);
    const std::vector<Counts> kernels = emulator::take_counts();
    if (kernels.empty()) {
      beside += fmt::format("{}: {}, by the library's kernel, which nobody counts\n", rung->name,
                            is_right ? "right" : "wrong");
      continue;
    }
    const Sums sums = sums_of(kernels);
    if (check) wrong += difference(rung->name, sums, M, N, K);
    const auto each = [](uint64_t count, double of) { return fmt::format("{:.1f}", static_cast<double>(count) / of); };
    fmt::print(row, rung->name, is_right ? "yes" : "no", sums.loaded, each(sums.loaded, loads), sums.stored,
               each(sums.stored, stores), sums.conflicts, each(sums.requests, thousands),
               sums.products ? each(sums.products, thousands) : ">= 32");
    for (const Counts& counts : kernels) pictures.emplace_back(rung->name, counts);
  }
  fmt::print(
      "\nCompare each rung with the one above: which counts are smaller? None of them is time. A request is a load\n"
      "or store of a warp; wmma's are counted element by element, and a GPU needs fewer.\n{}",
      beside);
  for (const auto& [rung, counts] : pictures) {
    if (!std::getenv("LAB_PICTURE")) break;
    fmt::print("\n{}\n", rung);
    lab::draw(counts);
  }
  return wrong;
}

}  // namespace
}  // namespace hs

int main(int argc, char** argv) {
  int64_t sizes[3] = {128, 128, 128};
  for (int i = 1; argc == 4 && i < argc; ++i) {
    sizes[i - 1] = hs::parsed_number<int64_t>(argv[i]).value_or(0);
    if (sizes[i - 1] > 0) continue;
    fmt::print(stderr, "ladder: {}: expected three sizes of 1 or more, M N K\n", argv[i]);
    return 2;
  }
  const std::string wrong = hs::climb(sizes[0], sizes[1], sizes[2], argc == 2);
  fmt::print("{}", wrong);
  return wrong.empty() ? 0 : 1;
}
