#include "bench/judge/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine/check.h"

namespace hs::bench::judge {
namespace {

Shape shape_of(const Json& dims) {
  switch (dims.size()) {
    case 0:
      return {};
    case 1:
      return {dims[0].get<int64_t>()};
    case 2:
      return {dims[0].get<int64_t>(), dims[1].get<int64_t>()};
    case 3:
      return {dims[0].get<int64_t>(), dims[1].get<int64_t>(), dims[2].get<int64_t>()};
    default:
      return {dims.at(0).get<int64_t>(), dims.at(1).get<int64_t>(), dims.at(2).get<int64_t>(),
              dims.at(3).get<int64_t>()};
  }
}

DType dtype_of_number(const Json& number) {
  const auto value = number.get<size_t>();
  if (value >= std::size(dtype_info)) fail(ExitCode::bad_input, "type {} of a tensor", value);
  return static_cast<DType>(value);
}

}  // namespace

KernelSlot* find_slot(const std::string& name) {
  const auto slots = kernel_slots();
  const auto found = std::ranges::find(slots, name, &KernelSlot::name);
  return found == slots.end() ? nullptr : *found;
}

bool reaches(const examples::OpCase& row, const examples::RowRun& how, const std::string& slot) {
  const auto& slots = examples::slots_of(row, how);
  return std::ranges::find(slots, slot, &KernelSlot::name) != slots.end();
}

bool send_message(int file, std::string_view text) {
  return ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string receive_message(int file) {
  std::string text(most_message, '\0');
  const ssize_t size = ::read(file, text.data(), text.size());
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

Json to_json(const Shape& shape) {
  Json dims = Json::array();
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return dims;
}

Json Packer::put(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const Tensor here = tensor.to(Device::cpu);
  if (used_ + here.bytes() > memory_.size()) fail(ExitCode::internal, "no room for {} bytes", here.bytes());
  if (here.bytes() > 0) std::memcpy(memory_.data() + used_, here.raw_data(), here.bytes());
  const Json place = {{"at", used_}, {"type", static_cast<int>(here.dtype())}, {"shape", to_json(here.shape())}};
  used_ += (here.bytes() + 255) / 256 * 256;
  return place;
}

Tensor unpack(const Json& place, std::span<const std::byte> memory) {
  if (place.is_null()) return {};
  const auto at = place.at("at").get<size_t>();
  Tensor tensor = Tensor::empty(shape_of(place.at("shape")), dtype_of_number(place.at("type")));
  if (at > memory.size() || tensor.bytes() > memory.size() - at) fail(ExitCode::bad_input, "a tensor at {}", at);
  if (tensor.bytes() > 0) std::memcpy(tensor.mutable_raw_data(), memory.data() + at, tensor.bytes());
  return tensor;
}

Json to_json(const examples::RowRun& how) {
  return {{"device", how.device == Device::cuda},
          {"dtype", static_cast<int>(how.dtype)},
          {"numbers", static_cast<int>(how.numbers)},
          {"integers", how.integers},
          {"absolute", how.absolute},
          {"forward_only", how.forward_only},
          {"nan_gradient", how.nan_gradient},
          {"unaligned", how.unaligned},
          {"autocast", static_cast<int>(how.autocast)},
          {"held", how.held ? Json(*how.held) : Json()},
          {"frozen", how.frozen},
          {"missing", how.missing},
          {"sparse", how.sparse}};
}

examples::RowRun row_run_of(const Json& json) {
  examples::RowRun how;
  how.device = json.at("device").get<bool>() ? Device::cuda : Device::cpu;
  how.dtype = dtype_of_number(json.at("dtype"));
  how.numbers = dtype_of_number(json.at("numbers"));
  how.integers = json.at("integers");
  how.absolute = json.at("absolute");
  how.forward_only = json.at("forward_only");
  how.nan_gradient = json.at("nan_gradient");
  how.unaligned = json.at("unaligned");
  how.autocast = dtype_of_number(json.at("autocast"));
  if (!json.at("held").is_null()) how.held = json.at("held").get<float>();
  how.frozen = json.at("frozen").get<std::set<size_t>>();
  how.missing = json.at("missing").get<std::set<size_t>>();
  how.sparse = json.at("sparse");
  return how;
}

}  // namespace hs::bench::judge
