#include "bench/cli/forced_kernels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "bench/cli/json_file.h"
#include "engine/check.h"

namespace hs::bench::cli {
namespace {

std::string slot_of(const std::string& assignment) { return assignment.substr(0, assignment.find('=')); }

}  // namespace

KernelSlot* find_slot(const std::string& name) {
  const auto slots = kernel_slots();
  const auto found = std::ranges::find(slots, name, &KernelSlot::name);
  return found == slots.end() ? nullptr : *found;
}

ForcedKernels::ForcedKernels(std::vector<std::string> assignments) : assignments_(std::move(assignments)) {
  std::set<std::string> slots;
  for (const std::string& assignment : assignments_) {
    force_variant(assignment);
    if (!slots.insert(slot_of(assignment)).second) {
      fail(ExitCode::usage, "--kernel {}: {} was given a variant before", assignment, slot_of(assignment));
    }
  }
}

ForcedKernels::~ForcedKernels() {
  for (const std::string& assignment : assignments_) find_slot(slot_of(assignment))->force(nullptr);
}

void ForcedKernels::check_used(const std::map<std::string, std::string>& used, std::string_view who) const {
  for (const std::string& assignment : assignments_) {
    if (used.contains(slot_of(assignment))) continue;
    fail(ExitCode::usage, "--kernel {}: {} never calls {}; it calls {}", assignment, who, slot_of(assignment),
         fmt::join(mapped(used, [](const auto& one) { return one.first; }), ", "));
  }
}

void with_each_variant(const KernelSlot& slot, Device device, const std::function<void(const VariantBase&)>& body) {
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (v->device != device) continue;
    const ForcedKernels forced({std::string(slot.name()) + "=" + v->name});
    try {
      body(*v);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::forced_variant && error.kind() != ErrorKind::no_variant) throw;
    }
  }
}

}  // namespace hs::bench::cli
