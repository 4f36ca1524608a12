// What the op table cannot see of embedding: indices outside of the table.
#include "kernels/embedding/embedding.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/error.h"

namespace hs::test {

TEST_CASE("embedding: an index outside of the table is bad input, named with its place") {
  const Tensor table = Tensor::zeros({65, 4}, DType::f32);
  for (const int32_t wrong : {-1, 65, 1 << 30}) {
    const Tensor indices = Tensor::from(std::vector<int32_t>{0, 64, wrong, 1}, {2, 2});
    try {
      embedding(indices, table);
      FAIL("nothing was thrown");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::bad_input);
      const std::string what = error.what();
      CAPTURE(what);
      CHECK(what.find("index " + std::to_string(wrong) + " at place 2 of (2, 2) is not in 0 to 64") !=
            std::string::npos);
    }
  }
}

}  // namespace hs::test
