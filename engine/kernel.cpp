#include "engine/kernel.h"

#include <algorithm>
#include <cstring>

#include "engine/check.h"
#include "engine/registration.h"

namespace hs {
namespace {

constinit KernelSlot* first_slot = nullptr;

std::vector<RefusedVariant>& refused() {
  static std::vector<RefusedVariant> all;  // exists before the first static object that registers
  return all;
}

std::string variant_names(const KernelSlot& slot) {
  std::string names;
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", v->name, name(v->device));
  }
  return names;
}

std::string described(CallTensors tensors) {
  std::string text;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", *tensor);
  }
  return text;
}

}  // namespace

const std::vector<RefusedVariant>& refused_variants() { return refused(); }

bool is_kernel_name(const char* name) {
  return name && *name && name[std::strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

// Static objects call it, where an exception would end the program.
void KernelSlot::add(VariantBase& variant) {
  bool is_refused = !is_kernel_name(variant.name);
  for (const VariantBase* v = variants_; v && !is_refused; v = v->next) {
    is_refused = v->device == variant.device && std::strcmp(v->name, variant.name) == 0;
  }
  if (is_refused) {
    refused().push_back({*this, variant});
    return;
  }
  if (!variants_) {
    next_slot_ = first_slot;
    first_slot = this;
  }
  const auto before = [](const VariantBase& a, const VariantBase& b) {
    return a.rank != b.rank ? a.rank > b.rank : std::strcmp(a.name, b.name) < 0;
  };
  VariantBase** place = &variants_;
  while (*place && before(**place, variant)) place = &(*place)->next;
  variant.next = *place;
  *place = &variant;
}

bool KernelSlot::is_candidate(const VariantBase& variant, Device device, const char* layout) const {
  return variant.device == device && (!forced_ || std::strcmp(forced_, variant.name) == 0) &&
         (!layout || (variant.layout && std::strcmp(layout, variant.layout) == 0));
}

const TunedCall* KernelSlot::tuned(CallTensors tensors) const {
  const Device device = device_of(tensors);
  const std::vector<int64_t> wanted = signature(tensors);
  for (const TunedCall* line = tuned_; line; line = line->next) {
    if (line->variant->device == device && line->tensors == wanted) return line;
  }
  return nullptr;
}

bool KernelSlot::exists_on(Device device) const {
  for (const VariantBase* v = variants_; v; v = v->next) {
    if (v->device == device) return true;
  }
  return false;
}

Device KernelSlot::device_of(CallTensors tensors) {
  const auto first = std::ranges::find_if(tensors, &Tensor::defined);
  return (first == tensors.end() ? tensors.front() : *first)->device();  // throws if all are undefined
}

void KernelSlot::fail_unsupported(Device device, CallTensors tensors, const char* layout) const {
  throw Error(
      ExitCode::usage,
      fmt::format("{}: no {} kernel{} takes ({}){}; this build has {}; use arguments that one of them takes, such as "
                  "f32 tensors",
                  name_, hs::name(device), forced_ ? fmt::format(" named {}", forced_) : std::string(),
                  described(tensors), layout ? fmt::format(" with what was kept in layout {}", layout) : std::string(),
                  variant_names(*this)),
      forced_ ? ErrorKind::forced_variant : ErrorKind::no_variant);
}

void KernelSlot::force(const char* variant) {
  if (!variant) {
    forced_ = nullptr;
    return;
  }
  for (const VariantBase* v = variants_; v; v = v->next) {
    if (std::strcmp(v->name, variant) == 0) {
      forced_ = v->name;
      return;
    }
  }
  fail(ExitCode::usage, "kernel {}={}: no such variant; there are {}", name_, variant, variant_names(*this));
}

void KernelSlot::fail_workspace(const VariantBase& variant, int64_t bytes) const {
  fail(ExitCode::usage, "{}={}: .workspace asks for {} bytes, expected 0 or more", name_, variant.name, bytes);
}

void KernelSlot::fail_on_device(const VariantBase& variant, CallTensors tensors, const Error& error) const {
  fail(ExitCode::device, "{}={} ({}): {}", name_, variant.name, described(tensors), error.what());
}

std::vector<int64_t> signature(CallTensors tensors) {
  std::vector<int64_t> numbers;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) {
      numbers.push_back(-1);
      continue;
    }
    const Shape& shape = tensor->shape();
    numbers.insert(numbers.end(), {static_cast<int64_t>(tensor->dtype()), shape.rank()});
    for (int axis = 0; axis < shape.rank(); ++axis) numbers.push_back(shape[axis]);
  }
  return numbers;
}

std::vector<KernelSlot*> kernel_slots() {
  std::vector<KernelSlot*> slots;
  for (KernelSlot* slot = first_slot; slot; slot = slot->next_slot()) slots.push_back(slot);
  std::ranges::sort(slots,
                    [](const KernelSlot* a, const KernelSlot* b) { return std::strcmp(a->name(), b->name()) < 0; });
  return slots;
}

void force_variant(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    fail(ExitCode::usage, "kernel {}: expected SLOT=VARIANT, for example conv2d_forward=im2col", assignment);
  }
  const std::string_view slot_name = assignment.substr(0, equals);
  std::string names;
  for (KernelSlot* slot : kernel_slots()) {
    if (slot->name() == slot_name) return slot->force(std::string(assignment.substr(equals + 1)).c_str());
    names += fmt::format("{}{}", names.empty() ? "" : ", ", slot->name());
  }
  fail(ExitCode::usage, "kernel {}: no slot {}; there are {}", assignment, slot_name, names);
}

}  // namespace hs
