#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "bench/cli/forced_kernels.h"
#include "bench/judge/parts.h"

namespace hs::bench::judge {
namespace {

Snapshot::Bytes bytes_of(const Tensor& tensor) {
  if (tensor.bytes() == 0) return {};
  const Tensor host = tensor.to(Device::cpu);
  const auto* begin = static_cast<const unsigned char*>(host.raw_data());
  return {begin, begin + host.bytes()};
}

}  // namespace

Judged::Judged(const cli::Plugin::Registered& registered_, Json verdict_, std::function<void(const Json&)> tell_)
    : registered(registered_),
      slot(*cli::find_slot(registered.slot)),
      tell(std::move(tell_)),
      verdict(std::move(verdict_)) {
  for (const cli::Plugin& plugin : cli::loaded_plugins()) {
    for (const cli::Plugin::Registered& one : plugin.registered) {
      if (one.is_new_slot) continue;
      for (const VariantBase* v = cli::find_slot(one.slot)->variants(); v; v = v->next) {
        if (v->name == one.variant && v->device == one.device)
          plugins_.emplace_back(const_cast<VariantBase*>(v), one.device);
      }
    }
  }
  show(false);
}

bool Judged::is_plugins(const VariantBase* variant) const {
  return std::ranges::any_of(plugins_, [variant](const auto& one) { return one.first == variant; });
}

void Judged::passed(const std::string& check, int64_t runs) {
  if (runs == 0) return;
  verdict["checks"].push_back({{"name", check}, {"runs", runs}});
  tell(verdict);
}

void Judged::show(bool shown) const {
  for (const auto& [variant, device] : plugins_) variant->device = shown ? device : static_cast<Device>(2);
}

void Judged::run(const std::string& check, const std::string& what, const std::function<void()>& work) const {
  const auto refuse = [&](const std::string& by, const std::string& reason) {
    throw Refusal(by, fmt::format("{}: {}", what, reason));
  };
  tell({{"runs", what}});
  show(true);
  ::alarm(patience);
  try {
    const cli::ForcedKernels forced({registered.slot + "=" + registered.variant});
    work();
  } catch (const Refusal& refusal) {
    refuse(refusal.check, refusal.what());
  } catch (const Error& error) {
    ::alarm(own_patience);
    show(false);
    if (error.kind() == ErrorKind::forced_variant || error.code() == ExitCode::out_of_memory) throw;
    refuse(check, error.what());
  } catch (const std::bad_alloc& error) {
    show(false);
    throw Error(ExitCode::out_of_memory, error.what());
  } catch (const std::exception& error) {
    refuse(check, fmt::format("the kernel threw {}", error.what()));
  } catch (...) {
    refuse(check, "the kernel threw what is no std::exception");
  }
  ::alarm(own_patience);
  show(false);
}

Snapshot::Snapshot(CallTensors tensors) : tensors_(tensors) {
  for (const Tensor* tensor : tensors) before_.push_back({*tensor, tensor->version(), bytes_of(*tensor)});
}

std::vector<Snapshot::Bytes> Snapshot::written() const {
  const auto described = [](const Tensor& tensor) { return tensor.defined() ? tensor.to_string() : "nothing"; };
  std::vector<Bytes> all(before_.size());
  for (size_t i = 0; i < before_.size(); ++i) {
    const Tensor &now = *tensors_[i], &then = before_[i].tensor;
    if (described(now) != described(then) || (now.bytes() > 0 && now.raw_data() != then.raw_data())) {
      throw Refusal("tensors", fmt::format("it puts another tensor into the call, {} for tensor {}, {}", described(now),
                                           i, described(then)));
    }
    Bytes bytes = bytes_of(now);
    if (now.version() != before_[i].version) {
      all[i] = std::move(bytes);
    } else if (bytes != before_[i].bytes) {
      throw Refusal("inputs",
                    fmt::format("it changes tensor {} of the call, {}, which it only reads", i, described(now)));
    }
  }
  return all;
}

// Past the count of modifications: what the op has saved stays as it was.
void Snapshot::restore() const {
  for (const Before& one : before_) {
    if (one.bytes.empty()) continue;
    runtime(one.tensor.device())
        .copy(const_cast<void*>(one.tensor.raw_data()), one.bytes.data(), one.bytes.size(), CopyDirection::to_device);
  }
}

}  // namespace hs::bench::judge
