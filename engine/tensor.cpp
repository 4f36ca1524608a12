#include "engine/tensor.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "engine/autograd.h"
#include "engine/check.h"

namespace hs {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  check(dims.size() <= max_rank, "Shape: {} dimensions given, at most {} are supported; combine some of them",
        dims.size(), max_rank);
  for (const int64_t dim : dims) dims_[rank_++] = dim;
  check_dims();
}

Shape Shape::with_back(int64_t dim) const {
  Shape changed = *this;
  changed.dims_[rank_ - 1] = dim;
  changed.check_dims();
  return changed;
}

void Shape::check_dims() const {
  // Bytes must fit 63 bits for the widest type, and so must every stride, even if another dimension is 0.
  int64_t elements = 8;
  for (int axis = 0; axis < rank_; ++axis) {
    check(dims_[axis] >= 0, "Shape: dimension {} is negative, expected 0 or more", dims_[axis]);
    if (__builtin_mul_overflow(elements, std::max<int64_t>(dims_[axis], 1), &elements)) {
      fail(ExitCode::usage, "Shape: {} does not fit 63 bits; use smaller dimensions", *this);
    }
  }
}

int64_t Shape::back() const {
  check(rank_ > 0,
        "Shape: () is a scalar's shape, which has no innermost dimension; reshape the tensor to {{1}} first");
  return dims_[rank_ - 1];
}

int64_t Shape::size(int first, int last) const {
  return std::accumulate(dims_ + first, dims_ + last, int64_t{1}, std::multiplies());
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (int axis = 0; axis < rank_; ++axis) text += (axis ? ", " : "") + std::to_string(dims_[axis]);
  return text + ")";
}

namespace {

constexpr const char* how_to_define = "give it a value first, for example with Tensor::zeros() or Tensor::from()";

// The C++ type of each DType's elements, as a user writes it.
constexpr const char* cpp_names[] = {"float", "hs::Half", "hs::BFloat16", "double", "int32_t", "uint8_t"};
const char* cpp_name(DType dtype) { return cpp_names[static_cast<int>(dtype)]; }

}  // namespace

std::string Tensor::to_string() const { return defined() ? name(dtype_) + shape_.to_string() : "undefined"; }

Device Tensor::device() const {
  check(defined(), "an undefined tensor was asked for its device; {}", how_to_define);
  return storage_->device();
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  if (dtype == DType::f64 && device != Device::cpu)
    fail(ExitCode::usage, "f64 tensors exist on the cpu only; use f32 on {}", hs::name(device));
  Tensor tensor;
  tensor.storage_ = std::make_shared<Storage>(device, static_cast<size_t>(shape.size()) * size_of(dtype));
  tensor.shape_ = shape, tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::workspace(int64_t bytes, Device device) {
  const MemoryPurposeScope purpose(MemoryPurpose::workspace);
  return empty({bytes}, DType::u8, device);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill_zero();
  return tensor;
}

Tensor Tensor::of_memory(void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner) {
  Tensor tensor;
  const size_t bytes = static_cast<size_t>(shape.size()) * size_of(dtype);
  tensor.storage_ = std::make_shared<Storage>(data, bytes, std::move(owner));
  tensor.shape_ = shape, tensor.dtype_ = dtype;
  return tensor;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  check(static_cast<int64_t>(values.size()) == shape.size(), "Tensor::from: {} values for shape {}, expected {}",
        values.size(), shape, shape.size());
  Tensor tensor = empty(shape, dtype_of<T>);
  if (!values.empty()) std::memcpy(tensor.mutable_raw_data(), values.data(), tensor.bytes());
  return tensor;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  std::vector<T> values(static_cast<size_t>(size()));
  const void* source = raw(dtype_of<T>);
  if (!values.empty()) runtime(device()).copy(values.data(), source, bytes(), CopyDirection::to_host);
  return values;
}

#define HS_INSTANTIATE(T)                                                   \
  template Tensor Tensor::from<T>(std::span<const T> values, const Shape&); \
  template std::vector<T> Tensor::to_vector<T>() const
HS_INSTANTIATE(float);
HS_INSTANTIATE(double);
HS_INSTANTIATE(Half);
HS_INSTANTIATE(BFloat16);
HS_INSTANTIATE(int32_t);
HS_INSTANTIATE(uint8_t);
#undef HS_INSTANTIATE

const void* Tensor::raw_data() const {
  check(defined(), "an undefined tensor was read; {}", how_to_define);
  check(saved_version_ == unchecked || saved_version_ == storage_->version(),
        "a tensor {} that the forward pass saved was modified before backward; modify a clone() instead", shape_);
  return static_cast<const char*>(storage_->data()) + offset_ * static_cast<int64_t>(size_of(dtype_));
}

void* Tensor::mutable_raw_data() {
  check(defined(), "an undefined tensor was written; {}", how_to_define);
  storage_->bump_version();
  return static_cast<char*>(storage_->data()) + offset_ * static_cast<int64_t>(size_of(dtype_));
}

const void* Tensor::raw(DType wanted) const {
  check(dtype_ == wanted, "tensor {} is {} but was read as {}; read it as {}", shape_, name(dtype_), name(wanted),
        cpp_name(dtype_));
  return raw_data();
}

void* Tensor::mutable_raw(DType wanted) {
  check(dtype_ == wanted, "tensor {} is {} but was written as {}; write it as {}", shape_, name(dtype_), name(wanted),
        cpp_name(dtype_));
  return mutable_raw_data();
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(defined() && shape.size() == size(), "reshape: {} has {} elements, {} has {}; expected as many", shape_, size(),
        shape, shape.size());
  Tensor y = detach();
  y.shape_ = shape;
  return record("reshape", y, {*this}, [shape = shape_](const Tensor& dy) -> Gradients { return {dy.reshape(shape)}; });
}

Tensor Tensor::to(Device target) const {
  if (device() == target) return *this;
  Tensor copy = empty(shape_, dtype_, target);
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::clone() const {
  Tensor copy = empty_like();
  copy.copy_from(*this);
  return copy;
}

void Tensor::copy_from(const Tensor& other) {
  check(shape_ == other.shape_ && dtype_ == other.dtype_,
        "copy_from: destination is {} {} but source is {} {}, expected the same", name(dtype_), shape_,
        name(other.dtype_), other.shape_);
  const Device from = other.device(), to = device();
  if (bytes() == 0 || raw_data() == other.raw_data()) return;
  // The CPU's copy() knows host memory only, so the other device does the work in both directions.
  const CopyDirection direction = from == to          ? CopyDirection::within_device
                                  : to == Device::cpu ? CopyDirection::to_host
                                                      : CopyDirection::to_device;
  runtime(to == Device::cpu ? from : to).copy(mutable_raw_data(), other.raw_data(), bytes(), direction);
}

void Tensor::fill_zero() {
  if (bytes() > 0) runtime(device()).fill(mutable_raw_data(), 0, bytes());
}

Tensor Tensor::slice(int64_t begin, const Shape& shape) const {
  check(begin >= 0 && begin + shape.size() <= size(), "slice: elements {} to {} of a tensor of {}", begin,
        begin + shape.size(), size());
  Tensor part = detach();
  part.offset_ += begin;
  part.shape_ = shape;
  return part;
}

Tensor Tensor::carve(int64_t byte_begin, const Shape& shape, DType dtype) const {
  const int64_t element = static_cast<int64_t>(size_of(dtype));
  const int64_t first = offset_ + byte_begin, end = byte_begin + shape.size() * element;
  check(dtype_ == DType::u8 && byte_begin >= 0 && first % element == 0 && end <= size(),
        "carve: bytes {} to {} as {} of a tensor {} of {} bytes", byte_begin, end, name(dtype), name(dtype_), bytes());
  Tensor part = detach();
  part.offset_ = first / element;
  part.shape_ = shape;
  part.dtype_ = dtype;
  return part;
}

double Tensor::item() const {
  check(defined() && size() == 1, "item: tensor {} has {} elements, expected 1; use to_vector()", shape_, size());
  switch (dtype_) {
    case DType::f64:
      return to_vector<double>()[0];
    case DType::f32:
      return to_vector<float>()[0];
    case DType::f16:
      return to_float(to_vector<Half>()[0]);
    case DType::bf16:
      return to_float(to_vector<BFloat16>()[0]);
    case DType::i32:
      return to_vector<int32_t>()[0];
    case DType::u8:
      return to_vector<uint8_t>()[0];
  }
  return 0;
}

void Tensor::set_requires_grad(bool on) {
  if (!on) {
    check(!grad_info_ || (!grad_info_->lacks_arena && grad_info_->arena.expired()),
          "set_requires_grad: the tensor {} is a module's parameter; freeze() of the module makes it constant", shape_);
    grad_info_.reset();
    return;
  }
  check(defined(), "an undefined tensor cannot require a gradient; {}", how_to_define);
  check(dtype_ == DType::f32 || dtype_ == DType::f64,
        "set_requires_grad: tensor {} is {}, expected f32 or f64; keep parameters in f32 and open an Autocast scope to "
        "compute in 16 bits",
        shape_, name(dtype_));
  if (!grad_info_) grad_info_ = std::make_shared<GradInfo>(shape_, dtype_);
}

Tensor& Tensor::grad() const {
  check(grad_info_ != nullptr,
        "grad: tensor {} does not require a gradient; call set_requires_grad(true) before "
        "the forward pass",
        shape_);
  return gradient_of(*grad_info_);
}

Tensor Tensor::detach() const {
  Tensor handle = *this;
  handle.grad_info_.reset();
  return handle;
}

Tensor Tensor::saved() const {
  check(defined(), "an undefined tensor was saved; {}", how_to_define);
  Tensor handle = detach();
  handle.saved_version_ = storage_->version();
  return handle;
}

}  // namespace hs
