// Rows of a table by index, and of a second table by position:
//   y[..., t, :] = table[indices[..., t], :] + positions[t, :]
// The gradients are sums: dtable[v, :] of dy's rows whose index is v, dpositions[t, :] of those at position t. Rows
// with one index are listed by a stable counting sort and added in that order, so results do not depend on timing, as
// they would with one atomic addition per row.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// indices (..., T) i32, at most 3 dimensions; table (V, C) of any float type; positions (P, C) of table's type with
// P >= T, or undefined. The result is (..., T, C) of table's type. Throws Error: usage if a shape or a type does not
// fit; bad_input on the CPU if an index is not in 0 .. V-1. A GPU cannot throw: there y's row is NaN, and backward
// ignores dy's row.
Tensor embedding(const Tensor& indices, const Tensor& table, const Tensor& positions = {});

struct EmbeddingForward {  // indices, table and positions as in embedding(), y its result
  const Tensor& indices;
  const Tensor& table;
  const Tensor& positions;
  Tensor& y;
  auto tensors() const { return tensor_list(indices, table, positions, y); }
};
constinit inline Kernel<EmbeddingForward> embedding_forward{"embedding_forward"};

// Either output may be undefined; with `accumulate` they are added to. They are of dy's type, or f32.
struct EmbeddingBackward {  // dtable (V, C) and dpositions (P, C) from indices and dy
  const Tensor& indices;
  const Tensor& dy;
  bool accumulate;
  Tensor& dtable;
  Tensor& dpositions;
  auto tensors() const { return tensor_list(indices, dy, dtable, dpositions); }
};
constinit inline Kernel<EmbeddingBackward> embedding_backward{"embedding_backward"};

}  // namespace hs
