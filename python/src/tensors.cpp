// Tensors, the memory that they share with NumPy and with whatever speaks DLPack, and ops.
#include <nanobind/ndarray.h>

#include "bind.h"

namespace hs::python {
namespace {

using Self = PythonTensor;
using nb::dlpack::dtype_code;
constexpr int cpu_device = nb::device::cpu::value, cuda_device = nb::device::cuda::value;

nb::dlpack::dtype dlpack_type(DType type) {
  const dtype_code code = type == DType::bf16  ? dtype_code::Bfloat
                          : type == DType::i32 ? dtype_code::Int
                          : type == DType::u8  ? dtype_code::UInt
                                               : dtype_code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * size_of(type)), 1};
}

Tensor from_array(nb::handle object) {
  const auto refuse = [](const std::string& why) { fail_type("Tensor: the array " + why); };
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(object, array, false)) {
    fail_type("Tensor: found a " + type_of(object) + ", expected an array, as numpy.array(x, 'float32') makes one");
  }
  int type = 0;
  while (type < std::ssize(Words<DType>::all) && array.dtype() != dlpack_type(static_cast<DType>(type))) ++type;
  if (type == std::ssize(Words<DType>::all)) {
    const nb::object found = nb::getattr(object, "dtype", nb::str("another type"));
    refuse("has " + std::string(nb::str(found).c_str()) +
           ", expected float32, float16, bfloat16, float64, int32 or uint8; x.astype('float32') makes such");
  }
  if (array.device_type() != cpu_device) refuse("is on another device than the CPU; copy it there first");
  nb::ndarray<nb::ro, nb::c_contig> rows;
  if (!nb::try_cast(object, rows, false)) refuse("is not contiguous; numpy.ascontiguousarray(x) makes such a copy");
  nb::ndarray<> writable;
  if (!nb::try_cast(object, writable, false)) refuse("is read-only, expected one that may be written; x.copy() is");
  const auto dtype = static_cast<DType>(type);
  if (reinterpret_cast<uintptr_t>(writable.data()) % size_of(dtype) != 0) {
    refuse("is not at a multiple of its element's size in memory; x.copy() is");
  }
  const std::shared_ptr<nb::ndarray<>> owner(new nb::ndarray<>(writable), [](nb::ndarray<>* array) {
    const nb::gil_scoped_acquire gil;
    delete array;
  });
  const std::vector<int64_t> dims(writable.shape_ptr(), writable.shape_ptr() + writable.ndim());
  return Tensor::of_memory(writable.data(), Shape(dims), dtype, owner);
}

// The memory itself, which lives as long as the array.
template <class Array>
nb::object to_array(const Tensor& x, typename Array::VoidPtr data) {
  size_t shape[Shape::max_rank];
  for (int axis = 0; axis < x.shape().rank(); ++axis) shape[axis] = static_cast<size_t>(x.shape()[axis]);
  return nb::cast(Array(data, static_cast<size_t>(x.shape().rank()), shape, nb::cast(x.detach()), nullptr,
                        dlpack_type(x.dtype()), x.device() == Device::cpu ? cpu_device : cuda_device));
}
nb::object to_numpy(const Tensor& x) {
  if (x.device() != Device::cpu) fail_type("numpy: the tensor is on cuda; x.to('cpu').numpy() copies it");
  if (x.dtype() == DType::bf16) fail_type("numpy: NumPy has no bfloat16; cast(x, 'f32').numpy() has the same values");
  return to_array<nb::ndarray<nb::numpy, nb::ro>>(x, x.raw_data());
}
nb::object to_numpy_as(const Tensor& x, nb::args args, nb::kwargs kwargs) {
  return to_numpy(x).attr("__array__")(*args, **kwargs);
}
nb::object to_dlpack(Self& x, nb::args args, nb::kwargs kwargs) {
  return to_array<nb::ndarray<nb::array_api>>(x, x.mutable_raw_data()).attr("__dlpack__")(*args, **kwargs);
}

nb::tuple shape_of(const Tensor& x) {
  nb::list dims;
  for (int axis = 0; axis < x.shape().rank(); ++axis) dims.append(x.shape()[axis]);
  return nb::tuple(dims);
}
using Dims = std::vector<int64_t>;
Tensor reshape(const Tensor& x, const Dims& shape) { return x.reshape(Shape(shape)); }
Tensor zeros(const Dims& shape, DType dtype, Device device) { return Tensor::zeros(Shape(shape), dtype, device); }

Tensor times(const Tensor& x, nb::handle factor) {
  double number = 0;
  const bool is_number = !nb::isinstance<Self>(factor) && nb::try_cast(factor, number);
  const Tensor other = is_number ? Tensor() : nb::cast<Tensor>(factor);
  const Engine engine;
  return is_number ? scale(x, number) : mul(x, other);
}

}  // namespace

void bind_tensors(nb::module_& m) {
  nb::class_<Self>(
      m, "Tensor",
      "At most four dimensions, contiguous, of f32, f16, bf16, f64, i32 or u8. Tensor(array) is the memory of a NumPy "
      "array, or of another one with __dlpack__: what changes in one changes in the other. TypeError for "
      "another type, and for an array that is not contiguous or is read-only.")
      .def(
          "__init__", [](Self* self, nb::handle array) { new (self) Self{from_array(array)}; }, "array"_a.none())
      .def_static("zeros", zeros, "shape"_a, "dtype"_a = DType::f32, "device"_a = Device::cpu, "Filled with zeros.")
      .def_prop_ro("shape", shape_of, "A tuple of its dimensions.")
      .def_prop_ro("dtype", &Tensor::dtype, "'f32' for example.")
      .def_prop_ro("device", &Tensor::device, "'cpu' or 'cuda'.")
      .def_prop_ro("size", &Tensor::size, "The number of elements.")
      .def_prop_ro("requires_grad", &Tensor::requires_grad, "Whether it is a leaf, or computed from one.")
      .def_prop_ro("grad", &Tensor::grad, "The gradient of a leaf, None before backward(). Throws Error without one.")
      .def("set_requires_grad", &Tensor::set_requires_grad, "on"_a = true, "Makes it a leaf, or drops its history.")
      .def("detach", &Tensor::detach, "The same memory without a history.")
      .def("clone", &Tensor::clone, InEngine(), "A copy without a history.")
      .def("reshape", reshape, "shape"_a, "The same memory, differentiable; of as many elements.")
      .def("to", &Tensor::to, "device"_a, InEngine(), "A copy on another device, or itself.")
      .def("copy_from", &Tensor::copy_from, "other"_a, InEngine(), "Writes another's elements, of its shape and type.")
      .def("fill_zero", &Tensor::fill_zero, InEngine(), "Writes zeros.")
      .def("item", &Tensor::item, InEngine(), "The element of a tensor that has one.")
      .def("numpy", to_numpy, "A read-only NumPy array of the same memory. Throws TypeError of bf16, and on cuda.")
      .def("__array__", to_numpy_as)
      .def("__dlpack__", to_dlpack, "The same memory for another library, which may write to it.")
      .def("__dlpack_device__",
           [](const Tensor& x) { return std::pair(x.device() == Device::cpu ? cpu_device : cuda_device, 0); })
      .def("__repr__", [](const Tensor& x) { return "Tensor " + x.to_string(); })
      .def("__add__", add, InEngine())
      .def("__sub__", sub, InEngine())
      .def("__mul__", times)
      .def("__rmul__", times);
  m.attr("Tensor").attr("__array_ufunc__") = nb::none();  // array * tensor would be NumPy's, without a history
  m.def(
      "backward", nb::overload_cast<const Tensor&, Tensor>(&backward), "y"_a, "dy"_a.none() = nb::none(), InEngine(),
      "Adds dL/dx to the gradient of each leaf x that y was computed from; dy is dL/dy, one for a scalar. Throws Error "
      "if y has no history, or was used before, or if a tensor that it needs was modified.");
  m.def("checkpoint", &checkpoint, "fn"_a, "x"_a, InEngine(),
        "fn(x), of which only x is kept: backward calls fn again.");
}

// Each op: its name, what comes out, and its arguments.
void bind_ops(nb::module_& m) {
  const auto none = nb::none();
  const auto op = [&](const char* name, auto function, const char* doc, const auto&... names) {
    m.def(name, function, names..., InEngine(), doc);
  };
  op("relu", relu, "max(x, 0), element by element.", "x"_a);
  op("gelu", gelu, "x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).", "x"_a);
  op("exp", exp, "e^x, element by element.", "x"_a);
  op("log", log, "The natural logarithm, element by element.", "x"_a);
  op("tanh", tanh, "From -1 to 1, element by element.", "x"_a);
  op("sigmoid", sigmoid, "1 / (1 + e^-x), element by element.", "x"_a);
  op("softmax", softmax, "(..., C) -> (..., C), each row with the sum 1.", "x"_a);
  op("add", add, "a + b, of one shape, in the type of a; b may have 16 bits.", "a"_a, "b"_a);
  op("sub", sub, "a - b, of one shape and type.", "a"_a, "b"_a);
  op("mul", mul, "a * b, of one shape and type.", "a"_a, "b"_a);
  op("scale", scale, "x * factor.", "x"_a, "factor"_a);
  op("add_relu", add_relu, "relu(a + b).", "a"_a, "b"_a);
  op("sum", sum, "Of all elements, a scalar.", "x"_a);
  op("mean", mean, "Of all elements, a scalar.", "x"_a);
  op("transpose", transpose, "(R, C) -> (C, R).", "x"_a);
  op("flatten", flatten, "(N, ...) -> (N, all the rest).", "x"_a);
  op("cast", cast, "x in another float type.", "x"_a, "dtype"_a);
  op("linear", linear, "(..., in), (in, out) and (out) -> (..., out); with order='out_in' the weight is (out, in).",
     "x"_a, "weight"_a, "bias"_a.none() = none, "order"_a = WeightOrder::in_out);
  op("max_pool2d", max_pool2d, "(N, H, W, C) -> (N, (H - window) / stride + 1, (W - window) / stride + 1, C).", "x"_a,
     "window"_a, "stride"_a);
  op("global_average_pool2d", global_average_pool2d, "(N, H, W, C) -> (N, C).", "x"_a);
  op(
      "layer_norm", [](const Tensor& x, const Tensor& g, const Tensor& b, double e) { return layer_norm(x, g, b, e); },
      "(..., C), (C) and (C) -> (..., C), each row normalised.", "x"_a, "scale"_a, "shift"_a.none() = none,
      "epsilon"_a = 1e-5);
  op("embedding", embedding, "(..., T) i32, (V, C) and (P, C) -> (..., T, C).", "indices"_a, "table"_a,
     "positions"_a.none() = none);
  op("causal_attention", causal_attention, "(B, T, 3C) -> (B, T, C).", "qkv"_a, "heads"_a);
  op("argmax", argmax, "(..., C) -> (R) i32, the place of the largest of each row; no gradient.", "x"_a);
  op("mse_loss", mse_loss, "The mean of the squares of their difference, a scalar.", "prediction"_a, "target"_a);
  op("softmax_cross_entropy", softmax_cross_entropy,
     "(N, classes) and (N) i32 -> the mean loss, a scalar. Throws Error for a label that is no class.", "logits"_a,
     "labels"_a, "dloss"_a.none() = none, "smoothing"_a = 0.0f);
  op("count_correct", count_correct, "Rows whose argmax() is the label.", "logits"_a, "labels"_a);
  op("normalize_image", normalize_image, "(N, H, W, C) u8 -> f32, by scale, which is a loader's pixel_scale().",
     "images"_a, "scale"_a, "type"_a = DType::f32);

  with_options(
      m, "conv2d",
      +[](const Conv2dOptions& o, const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b, o); },
      "(N, H, W, C), (KH*KW*C, OC) and (OC) -> (N, OH, OW, OC) with OH = (H + 2 padding - KH) / stride + 1.", "x"_a,
      "weight"_a, "bias"_a.none() = none);
}

}  // namespace hs::python
