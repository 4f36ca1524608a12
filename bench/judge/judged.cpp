#include <fmt/format.h>
#include <unistd.h>

#include "bench/cli/forced_kernels.h"
#include "bench/judge/parts.h"

namespace hs::bench::judge {

Judged::Judged(const cli::Plugin::Registered& registered_, Json verdict_, std::function<void(const Json&)> tell_)
    : registered(registered_),
      slot(*cli::find_slot(registered.slot)),
      tell(std::move(tell_)),
      verdict(std::move(verdict_)),
      hidden_(std::in_place) {}

void Judged::passed(const std::string& check, int64_t runs) {
  if (runs == 0) return;
  verdict["checks"].push_back({{"name", check}, {"runs", runs}});
  tell(verdict);
}

void Judged::run(const std::string& check, const std::string& what, const std::function<void()>& work,
                 unsigned seconds) {
  struct Turn {
    Judged& judged;
    const cli::ForcedKernels forced{{judged.registered.slot + "=" + judged.registered.variant}};
    ~Turn() {
      ::alarm(own_patience);
      judged.hidden_.emplace();
    }
  };
  const auto refuse = [&](const std::string& by, const std::string& reason) {
    throw Refusal(by, fmt::format("{}: {}", what, reason));
  };
  tell({{"runs", what}});
  hidden_.reset();
  ::alarm(seconds);
  try {
    const Turn turn{*this};
    work();
  } catch (const Refusal& refusal) {
    refuse(refusal.check, refusal.what());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::forced_variant || error.code() == ExitCode::out_of_memory) throw;
    refuse(check, error.what());
  } catch (const std::bad_alloc& error) {
    throw Error(ExitCode::out_of_memory, error.what());
  } catch (const std::exception& error) {
    refuse(check, fmt::format("the kernel threw {}", error.what()));
  }
}

}  // namespace hs::bench::judge
