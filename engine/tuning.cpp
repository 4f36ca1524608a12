#include "engine/tuning.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "engine/check.h"

namespace hs {
namespace {

constexpr const char* opening = "halfstep-tuning 1";
constexpr DType types[] = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::u8};

// Accepts loose input: the caller writes the result back and compares.
std::vector<int64_t> read_signature(const std::string& text) {
  std::vector<int64_t> signature;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t open = std::min(word.find('('), word.size());
    const auto type = std::ranges::find_if(types, [&](DType each) { return word.compare(0, open, name(each)) == 0; });
    if (type == std::end(types)) {
      signature.push_back(-1);
      continue;
    }
    std::ranges::replace_if(
        word, [](char c) { return c < '0' || c > '9'; }, ' ');
    std::istringstream numbers(word.substr(open));
    std::vector<int64_t> dims;
    for (int64_t dim = 0; numbers >> dim;) dims.push_back(dim);
    signature.insert(signature.end(), {static_cast<int64_t>(*type), static_cast<int64_t>(dims.size())});
    signature.insert(signature.end(), dims.begin(), dims.end());
  }
  return signature;
}

// The slot and the variant that a line names. Throws Error (bad_input) if this build lacks one of them.
TunedCall find_variant(const std::string& where, const std::string& slot_name, const std::string& device,
                       const std::string& variant) {
  for (KernelSlot* slot : kernel_slots()) {
    if (slot->name() != slot_name) continue;
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->name != variant || name(v->device) != device) continue;
      TunedCall call;
      call.slot = slot;
      call.variant = v;
      return call;
    }
  }
  fail(ExitCode::bad_input, "{}: this build has no kernel {}={} on {}; run `halfstep-bench tune kernels` again", where,
       slot_name, variant, device);
}

void read_opening(const std::string& line, const std::string& where, const std::string& machine, TuningTable& table) {
  const size_t first = line.find("; "), last = line.rfind("; ");
  if (!line.starts_with(opening) || first != std::strlen(opening) || first == last) {
    fail(ExitCode::bad_input,
         "{}: found '{:.60}', expected '{}; MACHINE; PROGRAM' as `halfstep-bench tune kernels` writes it", where, line,
         opening);
  }
  table.machine = line.substr(first + 2, last - first - 2);
  if (table.machine == machine || table.machine == "any") return;
  fail(ExitCode::bad_input,
       "{}: measured on {}, and this is {}: run `halfstep-bench tune kernels` here, or write any in place of that name "
       "to use "
       "the choices all the same",
       where, table.machine, machine);
}

}  // namespace

std::string to_text(std::string_view slot, std::string_view device, const std::vector<int64_t>& signature) {
  std::string text = fmt::format("{} {}", slot, device);
  for (auto at = signature.begin(); at != signature.end();) {
    if (*at < 0) {
      text += " -";
      ++at;
      continue;
    }
    const auto dims = at + 2, end = dims + at[1];
    text += fmt::format(" {}({})", name(static_cast<DType>(*at)), fmt::join(dims, end, ","));
    at = end;
  }
  return text;
}

std::string tuning_text(std::string_view machine, std::string_view made_by, std::string_view comment,
                        const std::vector<std::pair<std::string, std::string>>& choices) {
  std::string text = fmt::format("{}; {}; {}\n# {}\n", opening, machine, made_by, comment);
  for (const auto& [call, variant] : choices) text += fmt::format("{} = {}\n", call, variant);
  return text + "end\n";
}

TuningTable parse_tuning(const std::string& text, const std::string& source, const std::string& machine) {
  TuningTable table;
  std::istringstream lines(text);
  std::string line;
  int number = 0;
  while (std::getline(lines, line) && line != "end") {
    const std::string where = fmt::format("{}, line {}", source, ++number);
    if (number == 1) read_opening(line, where, machine, table);
    if (number == 1 || line.starts_with('#')) continue;
    const size_t equals = std::min(line.find(" = "), line.size());
    std::istringstream words(line.substr(0, equals));
    std::string slot, device, tensors;
    std::getline(words >> slot >> device, tensors);
    const std::vector<int64_t> signature = read_signature(tensors);
    const bool is_whole = !signature.empty() && line.size() > equals + 3;
    if (!is_whole || to_text(slot, device, signature) != line.substr(0, equals)) {
      fail(ExitCode::bad_input,
           "{}: found '{:.60}', expected SLOT DEVICE TENSORS = VARIANT; run `halfstep-bench tune kernels` again", where,
           line);
    }
    TunedCall call = find_variant(where, slot, device, line.substr(equals + 3));
    call.tensors = signature;
    if (std::ranges::any_of(table.calls, [&](const TunedCall& one) {
          return one.slot == call.slot && one.variant->device == call.variant->device && one.tensors == signature;
        })) {
      fail(ExitCode::bad_input, "{}: this call has a line before; expected one; delete one of them", where);
    }
    table.calls.push_back(call);
  }
  if (number == 0) read_opening("", source, machine, table);
  if (line != "end" || std::getline(lines, line)) {
    fail(ExitCode::bad_input, "{}: expected 'end' as its last line; run `halfstep-bench tune kernels` again", source);
  }
  return table;
}

TuningInUse::TuningInUse(TuningTable table) : table_(std::move(table)) {
  for (TunedCall& call : table_.calls) call.next = std::exchange(call.slot->tuned_, &call);
}

TuningInUse::~TuningInUse() {
  for (TunedCall& call : table_.calls) call.slot->tuned_ = nullptr;
}

uint64_t TuningInUse::calls() const {
  uint64_t sum = 0;
  for (const TunedCall& call : table_.calls) sum += call.calls;
  return sum;
}

}  // namespace hs
