#include "kernels/embedding/embedding.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

Shape shape_of_rows(const Shape& indices, int64_t C) {
  switch (indices.rank()) {
    case 1:
      return {indices[0], C};
    case 2:
      return {indices[0], indices[1], C};
    default:
      return {indices[0], indices[1], indices[2], C};
  }
}

void check_indices(const Tensor& indices, int64_t V) {
  const int32_t* index = indices.data<int32_t>();
  for (int64_t n = 0; n < indices.size(); ++n) {
    if (index[n] < 0 || index[n] >= V) {
      fail(ExitCode::bad_input, "embedding: index {} at place {} of {} is not in 0 to {}", index[n], n, indices.shape(),
           V - 1);
    }
  }
}

}  // namespace

Tensor embedding(const Tensor& indices, const Tensor& table, const Tensor& positions) {
  const Op op("embedding");
  const int rank = indices.shape().rank();
  check(indices.dtype() == DType::i32 && rank >= 1 && rank <= 3 && table.shape().rank() == 2,
        "embedding: indices are {} and table {}, expected i32 (..., T) of 1 to 3 dimensions and (V, C)", indices,
        table);
  check(!positions.defined() ||
            (positions.dtype() == table.dtype() && positions.shape().rank() == 2 &&
             positions.shape()[0] >= indices.shape().back() && positions.shape()[1] == table.shape()[1]),
        "embedding: indices are {}, table {} and positions {}; expected positions for all of the last dimension and of "
        "table's type and width",
        indices, table, positions);
  if (indices.device() == Device::cpu) check_indices(indices, table.shape()[0]);
  Tensor y = Tensor::empty(shape_of_rows(indices.shape(), table.shape()[1]), table.dtype(), table.device());
  embedding_forward({indices, table, positions, y});
  return record("embedding", y, {table, positions},
                [indices = indices.saved(), to_table = GradientTarget(table),
                 to_positions = GradientTarget(positions)](const Tensor& dy) -> Gradients {
                  const bool accumulate = claim_gradients({&to_table, &to_positions});
                  Tensor dtable = to_table.tensor(dy.device());
                  Tensor dpositions = to_positions.tensor(dy.device());
                  embedding_backward({indices, dy, accumulate, dtable, dpositions});
                  return {dtable, dpositions};
                });
}

namespace {

void forward_cpu(const EmbeddingForward& call) {
  const int64_t C = call.table.shape()[1], T = call.indices.shape().back();
  const int32_t* index = call.indices.data<int32_t>();
  for_float_type(call.table.dtype(), [&]<class Element>() {
    const Element* table = call.table.data<Element>();
    const Element* positions = call.positions.defined() ? call.positions.data<Element>() : nullptr;
    Element* y = call.y.mutable_data<Element>();
    parallel_rows(call.indices.size(), C, [=](int64_t n) {
      const Element* row = table + index[n] * C;
      if (positions) {
        map_range(0, C, std::plus<>(), y + n * C, row, positions + n % T * C);
      } else {
        std::copy_n(row, C, y + n * C);
      }
    });
  });
}

// to[c] = sum over i of dy[row(i), c], plus what it was if `accumulate`: added in double and in the order of i.
template <class Element, class Out, class Row>
void sum_rows(const Element* dy, int64_t C, int64_t count, const Row& row, bool accumulate, Out* to) {
  Block<Element> block;
  for (int64_t first = 0; first < C; first += block_size) {
    const int64_t columns = std::min(block_size, C - first);
    double total[block_size] = {};
    for (int64_t i = 0; i < count; ++i) {
      const Computing<Element>* values = block.read(dy + row(i) * C + first, columns);
      for (int64_t c = 0; c < columns; ++c) total[c] += values[c];
    }
    for (int64_t c = 0; c < columns; ++c) {
      const double before = accumulate ? to_computing(to[first + c]) : 0;
      to[first + c] = from_computing<Out>(static_cast<Computing<Out>>(before + total[c]));
    }
  }
}

// The places of each index in `indices`: those of v are order[first[v]] to order[first[v + 1] - 1], in their order.
struct Places {
  int32_t *first, *order;  // V + 1, N
};

// Counting sort. REQUIRES: every index is in 0 .. V-1
Places sort_places(const Tensor& indices, int64_t V, int32_t* memory) {
  const Places places{memory, memory + V + 1};
  const int32_t* index = indices.data<int32_t>();
  const int64_t N = indices.size();
  std::fill_n(places.first, V + 1, 0);
  for (int64_t n = 0; n < N; ++n) ++places.first[index[n]];
  std::exclusive_scan(places.first, places.first + V + 1, places.first, 0);
  for (int64_t n = 0; n < N; ++n) places.order[places.first[index[n]]++] = static_cast<int32_t>(n);
  // first[v] is now where v's places end: where those of v + 1 begin.
  std::copy_backward(places.first, places.first + V, places.first + V + 1);
  places.first[0] = 0;
  return places;
}

int64_t backward_workspace(const EmbeddingBackward& call) {
  if (!call.dtable.defined()) return 0;
  return (call.dtable.shape()[0] + 1 + call.indices.size()) * static_cast<int64_t>(sizeof(int32_t));
}

void backward_cpu(const EmbeddingBackward& call, Tensor& workspace) {
  const int64_t N = call.indices.size(), T = call.indices.shape().back();
  const bool accumulate = call.accumulate;
  for_float_type(call.dy.dtype(), [&]<class Element>() {
    const Element* dy = call.dy.data<Element>();
    const auto for_each_row = [&](Tensor& gradient, const auto& sum_row) {  // calls sum_row(row, C, its elements)
      if (!gradient.defined()) return;
      const int64_t rows = gradient.shape()[0], C = gradient.shape()[1];
      for_float_type(gradient.dtype(), [&]<class Out>() {
        Out* to = gradient.mutable_data<Out>();
        parallel_ranges(rows, (rows + 255) / 256, [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) sum_row(r, C, to + r * C);
        });
      });
    };
    Places places{};
    if (call.dtable.defined()) {
      places = sort_places(call.indices, call.dtable.shape()[0],
                           reinterpret_cast<int32_t*>(workspace.mutable_data<uint8_t>()));
    }
    for_each_row(call.dtable, [=](int64_t v, int64_t C, auto* to) {
      const int32_t* order = places.order + places.first[v];
      const auto place = [=](int64_t i) { return order[i]; };
      sum_rows(dy, C, places.first[v + 1] - places.first[v], place, accumulate, to);
    });
    for_each_row(call.dpositions, [=](int64_t t, int64_t C, auto* to) {
      const auto place = [=](int64_t i) { return i * T + t; };
      sum_rows(dy, C, t < T ? N / T : 0, place, accumulate, to);
    });
  });
}

REGISTER_KERNEL(embedding_forward, cpu, "simple",
                {.run = forward_cpu, .supported = [](const EmbeddingForward& call) { return is_float(call.table); }});
REGISTER_KERNEL(embedding_backward, cpu, "simple",
                {.run = backward_cpu,
                 .supported =
                     [](const EmbeddingBackward& call) {
                       return is_float(call.dy) && (!call.dtable.defined() || is_same_or_f32(call.dy, call.dtable)) &&
                              (!call.dpositions.defined() || is_same_or_f32(call.dy, call.dpositions)) &&
                              call.indices.size() <= INT32_MAX;
                     },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
