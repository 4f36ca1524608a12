#include "kernels/argmax/argmax.h"

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor argmax(const Tensor& x) {
  const Op op("argmax");
  check(x.shape().rank() > 0 && x.shape().back() > 0 && x.shape().back() < INT32_MAX,
        "argmax: x is {}, expected rows of 1 to {} numbers", x.shape(), INT32_MAX - 1);
  Tensor place = Tensor::empty({x.shape().rows()}, DType::i32, x.device());
  argmax_forward({x, place});
  return place;
}

namespace {

void argmax_cpu(const ArgmaxForward& call) {
  const int64_t C = call.x.shape().back();
  int32_t* place = call.place.mutable_data<int32_t>();
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    parallel_rows(call.place.size(), C, [=](int64_t i) {
      Largest<Computing<T>> largest;
      for (int64_t c = 0; c < C; ++c) largest.add(to_computing(x[i * C + c]), static_cast<int32_t>(c));
      place[i] = largest.place;
    });
  });
}

REGISTER_KERNEL(argmax_forward, cpu, "simple", {.run = argmax_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
