// Tensor: shapes, sharing and copying, and a sentence instead of a crash for every misuse.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/autograd.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "tests/support/thrown.h"

namespace hs {
namespace {

using doctest::Contains;

Tensor floats(const std::vector<float>& values, const Shape& shape) { return Tensor::from(values, shape); }

TEST_CASE("a shape knows its rank, size and text") {
  const Shape scalar, vector{5}, image{2, 28, 28, 3};
  CHECK(scalar.rank() == 0);
  CHECK(scalar.size() == 1);
  CHECK(scalar.to_string() == "()");
  CHECK(vector.back() == 5);
  CHECK(image.rank() == 4);
  CHECK(image[1] == 28);
  CHECK(image.back() == 3);
  CHECK(image.size() == 2 * 28 * 28 * 3);
  CHECK(image.to_string() == "(2, 28, 28, 3)");
  CHECK(Shape{3, 0}.size() == 0);
  CHECK(image.with_back(7) == Shape{image[0], image[1], image[2], 7});
  CHECK(Shape{1 << 20, 1 << 20}.size() == int64_t{1} << 40);
}

TEST_CASE("a size that does not fit is refused instead of wrapping around to a small one") {
  const int64_t huge = int64_t{1} << 62;
  CHECK_THROWS_AS(Tensor::empty({huge}, DType::f32), Error);       // 2^64 bytes
  CHECK_THROWS_AS(Tensor::empty({huge, 4}, DType::u8), Error);     // 2^64 elements
  CHECK_THROWS_AS(Tensor::empty({huge, 8, 0}, DType::u8), Error);  // 0 elements, but the strides overflow
}

template <class T>
void check_round_trip(const std::vector<T>& values, const Shape& shape) {
  const Tensor tensor = Tensor::from(values, shape);
  CHECK(tensor.defined());
  CHECK(tensor.dtype() == dtype_of<T>);
  CHECK(tensor.shape() == shape);
  CHECK(tensor.bytes() == values.size() * sizeof(T));
  CHECK(tensor.device() == Device::cpu);
  const std::vector<T> back = tensor.to_vector<T>();
  REQUIRE(back.size() == values.size());
  CHECK(std::memcmp(back.data(), values.data(), tensor.bytes()) == 0);
  CHECK(std::memcmp(tensor.data<T>(), values.data(), tensor.bytes()) == 0);
}

TEST_CASE("values survive the way into a tensor and back, for every dtype") {
  check_round_trip<float>({1.5f, -0.0f, 3e38f, 1e-45f, HUGE_VALF, 2}, {2, 3});
  check_round_trip<double>({1e300, -2}, {2, 1});
  check_round_trip<Half>({{0x3c00}, {0x8000}, {0x7e01}}, {3});
  check_round_trip<BFloat16>({{0x3f80}, {0x0001}}, {1, 2, 1, 1});
  check_round_trip<int32_t>({-2147483647 - 1, 2147483647}, {2});
  check_round_trip<uint8_t>({0, 255, 7}, {3});
  check_round_trip<float>({42}, {});
}

TEST_CASE("memory of somebody else is used where it is, not counted, and kept until its last tensor is gone") {
  const auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, -2, 3, -4});
  const size_t live = memory_stats(Device::cpu).live;
  Tensor x = Tensor::of_memory(owner->data(), {2, 2}, DType::f32, owner);
  CHECK(memory_stats(Device::cpu).live == live);
  CHECK(x.raw_data() == owner->data());
  x.copy_from(relu(x));
  CHECK(*owner == std::vector<float>{1, 0, 3, 0});
  Tensor part = x.slice(1, {2});
  x = {};
  CHECK(owner.use_count() == 2);
  part = {};
  CHECK(owner.use_count() == 1);
}

TEST_CASE("zeros() is zero for every dtype, also in memory that was used before") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::u8}) {
    {
      Tensor dirty = Tensor::empty({1000}, dtype);
      std::memset(dirty.mutable_raw_data(), 0x5a, dirty.bytes());
    }
    const Tensor zeros = Tensor::zeros({1000}, dtype);
    const std::vector<char> expected(zeros.bytes(), 0);
    CHECK(std::memcmp(zeros.raw_data(), expected.data(), zeros.bytes()) == 0);
  }
}

TEST_CASE("reshape shares storage and keeps the order of the elements") {
  Tensor a = floats({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor b = a.reshape({3, 2});
  CHECK(b.shape() == Shape{3, 2});
  CHECK(b.data<float>() == a.data<float>());
  CHECK(b.to_vector<float>() == a.to_vector<float>());
  b.mutable_data<float>()[5] = 60;
  CHECK(a.to_vector<float>()[5] == 60);
  CHECK(floats({7}, {1, 1}).reshape({}).item() == 7);
}

TEST_CASE("clone has storage of its own and no history") {
  Tensor a = floats({1, 2}, {2});
  a.set_requires_grad(true);
  Tensor b = a.clone();
  CHECK_FALSE(b.requires_grad());
  b.mutable_data<float>()[0] = 9;
  CHECK(a.to_vector<float>() == std::vector<float>{1, 2});
  CHECK(b.to_vector<float>() == std::vector<float>{9, 2});
}

TEST_CASE("a copy, detach() and to() its own device share the bytes; detach() drops the history") {
  Tensor a = floats({1, 2}, {2});
  a.set_requires_grad(true);
  const Tensor copy = a, detached = a.detach(), here = a.to(Device::cpu);
  for (const Tensor* shared : {&copy, &detached, &here}) CHECK(shared->data<float>() == a.data<float>());
  CHECK(copy.requires_grad());
  CHECK_FALSE(detached.requires_grad());
}

TEST_CASE("slice shares storage from an offset, and a slice of a slice adds offsets") {
  Tensor a = floats({0, 1, 2, 3, 4, 5, 6, 7}, {8});
  Tensor middle = a.slice(2, {2, 2});
  CHECK(middle.shape() == Shape{2, 2});
  CHECK(middle.data<float>() == a.data<float>() + 2);
  CHECK(middle.slice(1, {2}).to_vector<float>() == std::vector<float>{3, 4});
  middle.mutable_data<float>()[3] = 50;
  CHECK(a.to_vector<float>()[5] == 50);
  middle.fill_zero();
  CHECK(a.to_vector<float>() == std::vector<float>{0, 1, 0, 0, 0, 0, 6, 7});
  CHECK(middle.clone().shape() == Shape{2, 2});
  CHECK(a.slice(8, {0}).size() == 0);
  CHECK_THROWS_AS(a.slice(-1, {2}), Error);
  CHECK_THROWS_AS(middle.slice(3, {2}), Error);  // inside the storage, but outside the slice
}

TEST_CASE("copy_from wants the same shape and dtype") {
  Tensor a = floats({1, 2, 3, 4}, {2, 2});
  a.copy_from(floats({5, 6, 7, 8}, {2, 2}));
  CHECK(a.to_vector<float>() == std::vector<float>{5, 6, 7, 8});
  CHECK_THROWS_WITH_AS(a.copy_from(floats({1, 2, 3, 4}, {4})),
                       Contains("destination is f32 (2, 2) but source is f32 (4)"), Error);
  CHECK(a.to_vector<float>() == std::vector<float>{5, 6, 7, 8});
}

TEST_CASE("item reads the only element of any dtype, and refuses several") {
  CHECK(floats({2.5f}, {}).item() == 2.5);
  CHECK(floats({2.5f}, {1, 1}).item() == 2.5);
  CHECK(Tensor::from(std::vector<double>{1e300}, {}).item() == 1e300);
  CHECK(Tensor::from(std::vector<Half>{{0x3e00}}, {}).item() == 1.5);
  CHECK(Tensor::from(std::vector<BFloat16>{{0xbfc0}}, {}).item() == -1.5);
  CHECK(Tensor::from(std::vector<int32_t>{-7}, {}).item() == -7);
  CHECK(Tensor::from(std::vector<uint8_t>{200}, {}).item() == 200);
  CHECK_THROWS_AS(Tensor::zeros({0}, DType::f32).item(), Error);
}

TEST_CASE("an undefined tensor has no elements and says so when used") {
  Tensor none;
  CHECK_FALSE(none.defined());
  CHECK_FALSE(none.requires_grad());
  CHECK(none.size() == 0);
  CHECK(none.bytes() == 0);
  CHECK(none.version() == 0);
  const Tensor scalar = floats({1}, {});
  const std::function<void()> uses[] = {
      [&] { none.data<float>(); },
      [&] { none.mutable_data<float>(); },
      [&] { none.raw_data(); },
      [&] { none.mutable_raw_data(); },
      [&] { none.to_vector<float>(); },
      [&] { none.device(); },
      [&] { none.empty_like(); },
      [&] { none.clone(); },
      [&] { none.to(Device::cpu); },
      [&] { none.saved(); },
      [&] { none.set_requires_grad(true); },
      [&] { none.copy_from(scalar); },
      [&] { scalar.clone().copy_from(none); },
      [&] { relu(none); },
      [&] { add(none, none); },
      [&] { add(scalar, none); },
  };
  for (size_t i = 0; i < std::size(uses); ++i) {
    CAPTURE(i);
    const std::string message = test::error_of(uses[i]);
    CHECK_MESSAGE(message.find("undefined") != std::string::npos, message);
    CHECK_MESSAGE(message.find("Tensor::zeros() or Tensor::from()") != std::string::npos, message);
  }
  CHECK_THROWS_AS(none.item(), Error);
  CHECK_THROWS_AS(none.reshape({}), Error);
  CHECK_THROWS_AS(none.slice(0, {1}), Error);
  CHECK_THROWS_AS(none.grad(), Error);
  CHECK_THROWS_AS(backward(none), Error);
}

TEST_CASE("empty tensors work like others") {
  Tensor x = Tensor::zeros({0, 3}, DType::f32);
  CHECK(x.defined());
  CHECK(x.size() == 0);
  CHECK(x.to_vector<float>().empty());
  CHECK(x.clone().shape() == Shape{0, 3});
  CHECK(x.reshape({3, 0}).shape() == Shape{3, 0});
  x.fill_zero();
  x.copy_from(Tensor::empty({0, 3}, DType::f32));
  CHECK(floats({}, {0}).size() == 0);

  x.set_requires_grad(true);
  const Tensor total = sum(relu(add(x, x)));
  CHECK(total.item() == 0);
  backward(total);
  CHECK(x.grad().shape() == Shape{0, 3});
  CHECK_THROWS_WITH_AS(mean(x), Contains("(0, 3) is empty"), Error);
}

TEST_CASE("only f32 and f64 tensors can require a gradient") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::i32, DType::u8}) {
    CHECK_THROWS_AS(Tensor::zeros({1}, dtype).set_requires_grad(true), Error);
  }
  Tensor x = Tensor::zeros({1}, DType::f64);
  x.set_requires_grad(true);
  CHECK(x.requires_grad());
  x.set_requires_grad(false);
  CHECK_FALSE(x.requires_grad());
}

TEST_CASE("a device that is not there is an error of its own") {
  if (is_available(Device::cuda)) return;
  const std::string message = test::error_of([&] { Tensor::empty({1}, DType::f32, Device::cuda); }, ExitCode::device);
  CHECK(message.find("cuda") != std::string::npos);
}

TEST_CASE("a mistake of the caller's is a usage error whose sentence holds the fix") {
  Tensor pair = floats({1, 2}, {2}), half = Tensor::zeros({2}, DType::f16), bytes = Tensor::zeros({2}, DType::u8);
  Tensor leaf = floats({3}, {1});
  leaf.set_requires_grad(true);
  const struct {
    const char* fix;
    std::function<void()> mistake;
  } table[] = {
      {"reshape the tensor to {1} first", [] { Shape{}.back(); }},
      {"5 dimensions given, at most 4 are supported; combine some",
       [] {
         (void)Shape{1, 1, 1, 1, 1};
       }},
      {"dimension -1 is negative, expected 0 or more", [] { (void)Shape{-1}; }},
      {"dimension -1 is negative",
       [] {
         (void)Shape{2, 1}.with_back(-1);
       }},
      {"use smaller dimensions", [] { (void)Shape{int64_t{1} << 62}; }},
      {"use f32 on cuda", [] { Tensor::empty({1}, DType::f64, Device::cuda); }},
      {"2 values for shape (3), expected 3",
       [] {
         floats({1, 2}, {3});
       }},
      {"read it as float", [&] { pair.data<double>(); }},
      {"read it as hs::Half", [&] { half.to_vector<float>(); }},
      {"write it as uint8_t", [&] { bytes.mutable_data<int32_t>(); }},
      {"(2) has 2 elements, expected 1; use to_vector()", [&] { pair.item(); }},
      {"(2) has 2 elements, (3) has 3; expected as many", [&] { pair.reshape({3}); }},
      {"destination is f32 (2) but source is f16 (2), expected the same", [&] { pair.copy_from(half); }},
      {"elements 1 to 3 of a tensor of 2", [&] { pair.slice(1, {2}); }},
      {"keep parameters in f32 and open an Autocast scope", [&] { half.set_requires_grad(true); }},
      {"expected f32 or f64", [&] { bytes.set_requires_grad(true); }},
      {"does not require a gradient; call set_requires_grad(true) before the forward pass", [&] { pair.grad(); }},
      {"before the forward pass, call set_requires_grad(true)", [&] { backward(sum(pair)); }},
      {"dL/dy is f16 (2) but y is f32 (1), expected the same", [&] { backward(add(leaf, leaf), half); }},
      {"this build has ", [&] { relu(bytes); }},
      {"a is f16 (2) but b is f32 (2)", [&] { add(half, pair); }},
      {"modify a clone() instead",
       [&] {
         const Tensor y = sum(mul(leaf, leaf));
         leaf.fill_zero();
         backward(y);
       }},
  };
  for (const auto& row : table) {
    INFO(std::string(row.fix));
    const std::string message = test::error_of(row.mistake);
    CHECK_MESSAGE(message.find(row.fix) != std::string::npos, message);
  }
}

}  // namespace
}  // namespace hs
