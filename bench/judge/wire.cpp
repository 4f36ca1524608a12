#include "bench/judge/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "engine/check.h"

namespace hs::bench::judge {
namespace {

Shape shape_of(const Json& json) {
  const auto dims = json.get<std::vector<int64_t>>();
  return dims.empty()       ? Shape()
         : dims.size() == 1 ? Shape{dims[0]}
         : dims.size() == 2 ? Shape{dims[0], dims[1]}
         : dims.size() == 3 ? Shape{dims[0], dims[1], dims[2]}
                            : Shape{dims[0], dims[1], dims[2], dims[3]};
}

// All but `held`, for which JSON has no type.
auto fields_of(auto& how) {
  return std::tie(how.device, how.dtype, how.numbers, how.integers, how.absolute, how.forward_only, how.nan_gradient,
                  how.unaligned, how.autocast, how.frozen, how.missing, how.sparse, how.shared);
}

std::vector<examples::OpCase> timed_rows(int64_t batch) {
  std::vector<examples::OpCase> rows;
  for (const examples::TimedCase& timed : examples::timed_cases(batch)) {
    const auto of_op = [&](const examples::OpCase& row) { return row.name.starts_with(timed.op + " "); };
    const auto found = std::ranges::find_if(examples::op_table(), of_op);
    check(found != examples::op_table().end(), "{}: the op table has no row of this name", timed.op);
    rows.push_back(*found);
    rows.back().name = fmt::format("{} of {}", timed.op, timed.shapes[0]);
    rows.back().shapes = timed.shapes;
  }
  return rows;
}

}  // namespace

bool reaches(const examples::OpCase& row, const examples::RowRun& how, const std::string& slot) {
  const auto& slots = examples::slots_of(row, how);
  return std::ranges::find(slots, slot, &KernelSlot::name) != slots.end();
}

const std::vector<examples::OpCase>& rows_of(uint64_t seed, int walk) {
  if (seed == 0) return examples::op_table();
  static std::map<std::pair<uint64_t, int>, std::vector<examples::OpCase>> drawn;
  auto& rows = drawn[{seed, walk}];
  if (rows.empty()) {
    rows = walk == at_timed_sizes ? timed_rows(static_cast<int64_t>(seed)) : examples::drawn_rows(seed, walk);
  }
  return rows;
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

Json pack(const std::vector<Tensor>& tensors, std::span<std::byte> memory) {
  Json places = Json::array();
  size_t used = 0;
  for (const Tensor& tensor : tensors) {
    Json& place = places.emplace_back();
    if (!tensor.defined()) continue;
    const Tensor here = tensor.to(Device::cpu);
    if (used + here.bytes() > memory.size()) fail(ExitCode::internal, "no room for {} bytes", here.bytes());
    if (here.bytes() > 0) std::memcpy(memory.data() + used, here.raw_data(), here.bytes());
    place = {{"at", used}, {"type", static_cast<int>(here.dtype())}, {"shape", Json::array()}};
    for (int axis = 0; axis < here.shape().rank(); ++axis) place["shape"].push_back(here.shape()[axis]);
    used += (here.bytes() + 255) / 256 * 256;
  }
  return places;
}

std::vector<Tensor> unpack(const Json& places, std::span<const std::byte> memory) {
  std::vector<Tensor> tensors;
  for (const Json& place : places) {
    Tensor& tensor = tensors.emplace_back();
    if (place.is_null()) continue;
    const auto at = place.at("at").get<size_t>(), type = place.at("type").get<size_t>();
    if (type >= std::size(dtype_info)) fail(ExitCode::bad_input, "type {} of a tensor", type);
    tensor = Tensor::empty(shape_of(place.at("shape")), static_cast<DType>(type));
    if (at > memory.size() || tensor.bytes() > memory.size() - at) fail(ExitCode::bad_input, "a tensor at {}", at);
    if (tensor.bytes() > 0) std::memcpy(tensor.mutable_raw_data(), memory.data() + at, tensor.bytes());
  }
  return tensors;
}

Json to_json(const examples::RowRun& how) {
  const auto list = [](const auto&... field) { return Json::array({Json(field)...}); };
  return {{"held", how.held ? Json(*how.held) : Json()}, {"fields", std::apply(list, fields_of(how))}};
}

examples::RowRun row_run_of(const Json& json) {
  examples::RowRun how;
  if (!json.at("held").is_null()) how.held = json.at("held").get<float>();
  auto get = [at = json.at("fields").begin()](auto&... field) mutable { ((at++)->get_to(field), ...); };
  std::apply(get, fields_of(how));
  return how;
}

}  // namespace hs::bench::judge
