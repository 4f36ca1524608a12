#include "bench/judge/judge.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include "bench/cli/child.h"
#include "bench/cli/clock.h"
#include "bench/cli/console.h"
#include "bench/cli/forced_kernels.h"
#include "bench/judge/parts.h"
#include "engine/check.h"
#include "engine/memory_limit.h"
#include "engine/printable.h"

namespace hs::bench::judge {
namespace {

using Registered = cli::Plugin::Registered;

constexpr double max_seconds = 3600;

uint64_t max_memory() { return std::min(uint64_t{8} << 30, static_cast<uint64_t>(memory_limit()) / 2); }

void set_limit(__rlimit_resource_t resource, rlim_t value) {
  const rlimit limit{value, value};
  ::setrlimit(resource, &limit);
}

// In a process of its own, which tells the judge what it finds, in lines of JSON.
void judge_here(const JudgeOptions& options, const Registered& registered, const Json& verdict) {
  const int messages = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // what a kernel prints is none
  const auto tell = [messages](const Json& what) {
    cli::write_all(messages, what.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
  };
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  set_limit(RLIMIT_AS, pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + max_memory());
  set_limit(RLIMIT_FSIZE, JsonLimits::bytes);  // of what is printed, too
  ::alarm(own_patience);
  try {
    Judged judged(registered, verdict, tell);
    try {
      const std::vector<DType> types = check_rows(judged, options);
      if (!registered.is_new_slot) check_timed(judged, options, types);
    } catch (const Refusal& refusal) {
      judged.verdict["refused_by"] = refusal.check;
      judged.verdict["reason"] = refusal.what();
    } catch (const Error& error) {  // of a row that a plug-in brings along
      if (error.code() == ExitCode::out_of_memory) throw;
      judged.verdict["refused_by"] = "rows";
      judged.verdict["reason"] = error.what();
    }
    tell(judged.verdict);
    tell({{"end", true}});
  } catch (const std::exception& error) {  // there is no memory
    tell({{"error", error.what()}});
  }
}

// What the lines say, or how the process ended before it had said all.
Json judge_variant(const JudgeOptions& options, const Registered& registered) {
  Json verdict = {{"slot", registered.slot},
                  {"variant", registered.variant},
                  {"device", hs::name(registered.device)},
                  {"refused_by", nullptr},
                  {"reason", nullptr},
                  {"text", ""},
                  {"seconds", 0},
                  {"checks", Json::array()},
                  {"timed", Json::array()}};
  const auto start = Clock::now();
  const cli::ChildEnd end =
      cli::run_function([&] { judge_here(options, registered, verdict); }, max_seconds, "while judging");
  std::string runs, error;  // runs: what the kernel has done last
  bool is_whole = false;
  std::istringstream lines(end.out);
  for (std::string line; std::getline(lines, line);) {
    Json what = Json::parse(line, nullptr, false);
    if (what.is_discarded()) break;  // it ended within the line
    is_whole = what.contains("end");
    if (what.contains("runs")) runs = what["runs"].get<std::string>() + ": ";
    if (what.contains("checks")) verdict = std::move(what);
    if (what.contains("error")) {
      error = fmt::format("{}; it may take {} MiB", what["error"].get<std::string>(), max_memory() >> 20);
    }
  }
  constexpr std::string_view guard = "guard page: ";
  const bool is_guard = end.last_words.starts_with(guard);
  if (!is_whole) {
    const std::string how = !error.empty()          ? error
                            : end.signal == SIGALRM ? "it did not return in time"
                            : end.late              ? fmt::format("it took more than {} s", max_seconds)
                            : end.signal != 0       ? fmt::format("signal {}, {}", end.signal, ::strsignal(end.signal))
                                                    : fmt::format("it ended the process with exit code {}", end.code);
    verdict["refused_by"] = is_guard ? "guard" : "process";
    verdict["reason"] = is_guard ? end.last_words.substr(guard.size())
                                 : runs + how + (end.last_words.empty() ? "" : ": " + end.last_words);
  }
  if (!verdict["reason"].is_null()) verdict["reason"] = printable_text(verdict["reason"].get<std::string>());
  verdict["text"] = text_of(verdict);
  verdict["seconds"] = seconds_since(start);
  return verdict;
}

std::vector<Registered> variants_of(const KernelSlot& slot, const std::string& variant) {
  std::vector<Registered> all;
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (variant == v->name) all.push_back({slot.name(), v->name, v->device, false, v->error_growth});
  }
  return all;
}

// Those for the CPU of all that a plug-in brings, or of the one that is named.
std::vector<Registered> variants_of(const std::string& named) {
  std::vector<Registered> all;
  if (named.empty()) {
    all = cli::loaded_plugins().back().registered;
  } else {
    const size_t equals = named.find('=');
    const KernelSlot* slot = cli::find_slot(named.substr(0, equals));
    if (!slot || equals == std::string::npos) {
      fail(ExitCode::usage,
           "judge {}: expected a plug-in's file, or SLOT=VARIANT of this program; halfstep-bench info lists them",
           named);
    }
    all = variants_of(*slot, named.substr(equals + 1));
    if (all.empty()) fail(ExitCode::usage, "judge {}: {} has no variant of this name", named, slot->name());
  }
  std::erase_if(all, [](const Registered& one) { return one.device == Device::cuda; });
  if (all.empty()) {
    fail(ExitCode::device,
         "judge: found variants for CUDA alone, expected one for the CPU; bench ops --device cuda checks those by the "
         "same rows");
  }
  return all;
}

}  // namespace

std::string text_of(const Json& verdict) {
  if (!verdict["refused_by"].is_null()) {
    return fmt::format("refused by {}: {}", verdict["refused_by"].get<std::string>(),
                       verdict["reason"].get<std::string>());
  }
  const Json& timed = verdict["timed"];
  if (verdict.contains("untimed")) return "right; not timed: " + verdict["untimed"].get<std::string>();
  if (timed.empty()) return "right";
  const auto mean = [&](const char* key, double otherwise) {
    double logarithms = 0;
    for (const Json& one : timed) logarithms += std::log(one[key].is_null() ? otherwise : one[key].get<double>());
    return std::exp(logarithms / static_cast<double>(timed.size()));
  };
  const bool is_one =
      std::ranges::all_of(timed, [&](const Json& one) { return one["against"] == timed[0]["against"]; });
  return fmt::format("right and {:.2f} times as fast as {} ({:.2f} to {:.2f})", mean("ratio", 1),
                     is_one ? timed[0]["against"].get<std::string>() : "the variants that run now",
                     mean("ratio_low", 0), mean("ratio_high", INFINITY));
}

std::vector<Json> judge(const JudgeOptions& options) {
  std::vector<Json> verdicts;
  for (const Registered& registered : variants_of(options.variant)) {
    const KernelSlot& slot = *cli::find_slot(registered.slot);
    if (!options.against.empty() && variants_of(slot, options.against).empty()) {
      fail(ExitCode::usage, "--against {}: {} has no variant of this name; halfstep-bench info lists them",
           options.against, registered.slot);
    }
    verdicts.push_back(judge_variant(options, registered));
  }
  return verdicts;
}

}  // namespace hs::bench::judge
