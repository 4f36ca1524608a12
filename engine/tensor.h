// Tensor: a handle on shared storage plus shape, dtype, device and autograd history.
// Always contiguous, row-major, outermost dimension first, at most 4 dimensions. The views of reshape(), slice() and
// carve() share storage and are contiguous too, so a kernel sees plain arrays. Images are (N, H, W, C).
// Copying a Tensor copies the handle. Not thread safe, except that several threads may read the data.
// Read next: engine/kernel.h (how an op reaches its code), engine/autograd.h (how it gets a gradient).
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/float16.h"
#include "engine/storage.h"

namespace hs {

// The type of a tensor's elements. f16 and bf16 are storage types with exact conversions (engine/float16.h); f64 exists
// on the CPU only, for gradient checks; parameters, gradients and optimizer state are always f32.
enum class DType : uint8_t { f32, f16, bf16, f64, i32, u8 };

// A row of dtype_info.
struct DTypeInfo {
  const char* name;  // "f32", as in messages
  size_t size;       // bytes of an element
};
// Indexed with static_cast<int>(dtype).
inline constexpr DTypeInfo dtype_info[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f64", 8}, {"i32", 4}, {"u8", 1}};

constexpr size_t size_of(DType dtype) { return dtype_info[static_cast<int>(dtype)].size; }    // bytes of an element
constexpr const char* name(DType dtype) { return dtype_info[static_cast<int>(dtype)].name; }  // "f32"

// dtype_of<T>: the DType that stores a C++ type.
template <class T>
inline constexpr DType dtype_of = static_cast<DType>(255);
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;

class Shape {  // the dimensions of a tensor, outermost first
 public:
  static constexpr int max_rank = 4;  // most dimensions that a tensor can have

  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);  // outermost first; throws for more than max_rank

  int rank() const { return rank_; }                          // number of dimensions
  int64_t operator[](int axis) const { return dims_[axis]; }  // REQUIRES: 0 <= axis < rank()
  int64_t back() const;                                       // the innermost dimension; throws if there is none
  int64_t size() const { return size(0, rank_); }             // product of the dimensions
  int64_t size(int first, int last) const;                    // of the dimensions from `first` to `last` - 1
  int64_t rows() const { return size(0, rank_ - 1); }         // of all but the innermost; REQUIRES: rank() > 0
  // The same with another innermost dimension. REQUIRES: rank() > 0
  Shape with_back(int64_t dim) const;
  std::string to_string() const;  // "(64, 10)"
  bool operator==(const Shape& other) const = default;

 private:
  void check_dims() const;

  int64_t dims_[max_rank] = {};
  int rank_ = 0;
};

struct GradInfo;

class Tensor {  // a handle; see the head of this file
 public:
  Tensor() = default;  // undefined: no storage

  // Contents of empty() are unspecified. All throw Error if memory runs out or the device is missing.
  static Tensor empty(const Shape& shape, DType dtype, Device device = Device::cpu);
  // Scratch memory for one kernel call, u8, counted as MemoryPurpose::workspace.
  static Tensor workspace(int64_t bytes, Device device);
  static Tensor zeros(const Shape& shape, DType dtype, Device device = Device::cpu);  // filled with zeros
  // Elements in memory of somebody else, on the CPU, which `owner` keeps alive; nothing is copied.
  // REQUIRES: owner; data is at a multiple of an element's size
  static Tensor of_memory(void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner);
  // REQUIRES: values.size() == shape.size()
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }

  bool defined() const { return storage_ != nullptr; }                            // whether it has storage
  const Shape& shape() const { return shape_; }                                   // () if undefined
  int64_t size() const { return defined() ? shape_.size() : 0; }                  // number of elements, 0 if undefined
  size_t bytes() const { return static_cast<size_t>(size()) * size_of(dtype_); }  // size of all elements
  DType dtype() const { return dtype_; }                                          // type of the elements
  Device device() const;                                                          // throws if undefined
  Tensor empty_like() const { return empty(shape_, dtype_, device()); }           // throws if undefined
  std::string to_string() const;                                                  // "f32(2, 3)" or "undefined"
  // Whether another tensor has the same storage.
  bool is_shared() const { return storage_.use_count() > 1; }

  // The elements, in device memory. mutable_data() counts as a modification of the storage (see saved()).
  // Both throw if T is not the C++ type of dtype().
  template <class T>
  const T* data() const {
    return static_cast<const T*>(raw(dtype_of<T>));
  }
  template <class T>
  T* mutable_data() {  // see data()
    return static_cast<T*>(mutable_raw(dtype_of<T>));
  }
  // The same without a type, for code that moves bytes.
  const void* raw_data() const;
  void* mutable_raw_data();  // see raw_data()

  // Shares storage, differentiable. Throws if the number of elements differs.
  Tensor reshape(const Shape& shape) const;
  // A copy on another device, or this tensor if it is already there. Not differentiable.
  Tensor to(Device device) const;
  Tensor clone() const;  // new storage, no history
  // From any device. REQUIRES: same shape and dtype
  void copy_from(const Tensor& other);
  void fill_zero();  // writes zeros
  // shape.size() elements from `begin` of the flattened tensor, sharing storage: the arena's slices.
  Tensor slice(int64_t begin, const Shape& shape) const;
  // A typed part of a tensor of bytes, sharing storage: how a kernel divides its workspace.
  Tensor carve(int64_t byte_begin, const Shape& shape, DType dtype) const;

  // One element or all of them on the host; they wait for the device, so they do not belong in a training step.
  double item() const;
  template <class T>
  std::vector<T> to_vector() const;  // throws if T is not the C++ type of dtype()

  // Counts the modifications of the storage, through any tensor; 0 if undefined.
  uint64_t version() const { return storage_ ? storage_->version() : 0; }

  // --- autograd (engine/autograd.h) ---
  bool requires_grad() const { return grad_info_ != nullptr; }  // whether it is a leaf, or computed from one
  // On: makes this a leaf, which must be f32 or f64. Off: drops the history; a module's parameter refuses (freeze()).
  void set_requires_grad(bool on);
  // Gradient of a leaf; undefined before the first backward(). Accumulates over backward() calls until set to zero.
  Tensor& grad() const;
  // Same storage, no history.
  Tensor detach() const;
  // What a backward closure captures: detached, and reading it throws if the storage was modified in between.
  Tensor saved() const;

  const std::shared_ptr<GradInfo>& grad_info() const { return grad_info_; }             // nullptr: no history
  void set_grad_info(std::shared_ptr<GradInfo> info) { grad_info_ = std::move(info); }  // for record()

 private:
  const void* raw(DType wanted) const;
  void* mutable_raw(DType wanted);

  static constexpr uint64_t unchecked = ~uint64_t{0};

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<GradInfo> grad_info_;
  Shape shape_;
  int64_t offset_ = 0;                  // in elements
  uint64_t saved_version_ = unchecked;  // storage version that saved() saw
  DType dtype_ = DType::f32;
};

}  // namespace hs
