#include "models/files/training_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "engine/check.h"
#include "engine/parsed_number.h"

namespace hs {
namespace {

constexpr int64_t max_counted = int64_t{1} << 53;  // exact in a double, and far from overflowing

[[noreturn]] void refuse(const std::string& name, const char* what) {
  fail(ExitCode::checkpoint, "checkpoint: {} {}; it was not written by this program, or by another version", name,
       what);
}

Tensor copy_to_host(const Tensor& tensor) {
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
  copy.copy_from(tensor);
  return copy;
}

// Calls use(name, its part) for each parameter that `whole` has a part for: all of them if it is laid out as the arena,
// or the trained ones, which come last there.
template <class Use>
void for_each_part(const ParameterArena& arena, const std::string& prefix, const Tensor& whole, const Use& use) {
  const int64_t first = arena.values.size() - whole.size();
  for (const NamedParameter& parameter : arena.parameters()) {
    const int64_t begin = arena.offset(parameter) - first;
    if (begin >= 0) use(prefix + parameter.name, whole.slice(begin, parameter.value->shape()));
  }
}

// The state's tensors: parts of what get(a whole array) returns.
template <class Get>
std::map<std::string, Tensor> tensors_of(const ParameterArena& arena, const Optimizer& optimizer, GradScaler& scaler,
                                         const Get& get) {
  std::map<std::string, Tensor> tensors;
  const auto add = [&](const std::string& name, const Tensor& tensor) { tensors[name] = tensor; };
  for_each_part(arena, "", get(arena.values), add);
  for (const auto& [name, memory] : optimizer.memory()) {
    for_each_part(arena, "optimizer." + name + ".", get(memory), add);
  }
  add("optimizer.step", get(optimizer.step_counter()));
  if (optimizer.usual().defined()) add("optimizer.usual", get(optimizer.usual()));
  add("scaler", get(scaler.state()));
  return tensors;
}

bool is_progress(const std::string& name) { return name.starts_with("progress."); }

void put(std::string& out, const std::string& text) {
  const uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
}

struct Kind {
  DType dtype = DType::f32;
  Shape shape;
};

std::string take(const std::string& bytes, size_t& at) {
  uint64_t size = 0;
  std::memcpy(&size, bytes.data() + at, sizeof size);
  at += sizeof size + size;
  return bytes.substr(at - size, size);
}

}  // namespace

const std::string& TrainingState::text(const std::string& name) const {
  const auto found = values.find(name);
  if (found == values.end()) refuse(name, "is missing");
  return found->second;
}

int64_t TrainingState::number(const std::string& name) const {
  const std::optional<int64_t> number = parsed_number<int64_t>(text(name));
  if (!number || *number < 0 || *number > max_counted) refuse(name, "is not a count");
  return *number;
}

Rows TrainingState::rows(const std::string& name, size_t columns) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) refuse(name, "is missing");
  const Tensor& all = found->second;
  if (all.dtype() != DType::f64 || all.shape().rank() != 2 || all.shape()[1] != static_cast<int64_t>(columns)) {
    refuse(name, "has another type or shape");
  }
  const std::vector<double> numbers = all.to_vector<double>();
  if (std::ranges::any_of(numbers, [](double number) { return number < 0; })) refuse(name, "has a number below 0");
  Rows rows;
  for (auto at = numbers.begin(); at != numbers.end(); at += static_cast<std::ptrdiff_t>(columns)) {
    rows.emplace_back(at, at + static_cast<std::ptrdiff_t>(columns));
  }
  return rows;
}

void TrainingState::put_rows(const std::string& name, const Rows& rows, size_t columns) {
  std::vector<double> numbers;
  for (const std::vector<double>& row : rows) numbers.insert(numbers.end(), row.begin(), row.end());
  tensors[name] = Tensor::from(numbers, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)});
}

TrainingState copy_state(const ParameterArena& arena, const Optimizer& optimizer, GradScaler& scaler) {
  return {tensors_of(arena, optimizer, scaler, copy_to_host), {}};
}

void restore_state(const TrainingState& state, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler) {
  std::map<std::string, Tensor> live = tensors_of(arena, optimizer, scaler, std::identity());
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : live) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) {
      differences.push_back(name + " is missing");
    } else if (found->second.shape() != tensor.shape() || found->second.dtype() != tensor.dtype()) {
      differences.push_back(fmt::format("{} is {} {}, expected {} {}", name, hs::name(found->second.dtype()),
                                        found->second.shape(), hs::name(tensor.dtype()), tensor.shape()));
    }
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (!live.contains(name) && !is_progress(name)) differences.push_back(name + " is unknown here");
  }
  if (!differences.empty()) {
    constexpr size_t most = 3;
    const size_t shown = std::min(most, differences.size());
    fail(ExitCode::checkpoint, "checkpoint: made for another model or optimizer: {}{}",
         fmt::join(differences.begin(), differences.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
         shown < differences.size() ? fmt::format(", and {} more differences", differences.size() - shown) : "");
  }
  for (auto& [name, tensor] : live) tensor.copy_from(state.tensors.at(name));
}

int64_t TrainingState::count(const std::string& name, double number) {
  if (!(number <= static_cast<double>(max_counted))) refuse(name, "has a number that is not a count");
  return static_cast<int64_t>(number);
}

NextSample next_sample(const TrainingState& state, int64_t samples_per_epoch) {
  const int64_t epoch = state.number("epoch"), position = state.number("position");
  if (epoch < 1 || epoch > INT32_MAX || position > samples_per_epoch) refuse("position", "is not in the epoch");
  return position < samples_per_epoch ? NextSample{epoch - 1, position} : NextSample{epoch, 0};
}

std::string to_bytes(const TrainingState& state) {
  std::string out;
  for (const auto& [name, value] : state.values) {
    put(out, name);
    put(out, value);
  }
  put(out, "");  // no name is empty
  for (const auto& [name, tensor] : state.tensors) {
    const Kind kind = {tensor.dtype(), tensor.shape()};
    put(out, name);
    put(out, {reinterpret_cast<const char*>(&kind), sizeof kind});
    put(out, {static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(tensor.bytes())});
  }
  return out;
}

TrainingState state_from_bytes(const std::string& bytes) {
  TrainingState state;
  size_t at = 0;
  for (std::string name = take(bytes, at); !name.empty(); name = take(bytes, at)) state.values[name] = take(bytes, at);
  while (at < bytes.size()) {
    const std::string name = take(bytes, at), kind_bytes = take(bytes, at), data = take(bytes, at);
    Kind kind;
    std::memcpy(&kind, kind_bytes.data(), sizeof kind);
    Tensor tensor = Tensor::empty(kind.shape, kind.dtype);
    if (!data.empty()) std::memcpy(tensor.mutable_raw_data(), data.data(), data.size());
    state.tensors[name] = std::move(tensor);
  }
  return state;
}

}  // namespace hs
