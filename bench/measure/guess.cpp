#include "bench/measure/guess.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <optional>

#include "bench/cli/console.h"
#include "engine/tensor.h"

namespace hs::bench::measure {
namespace {

constexpr size_t max_choices = 5;
constexpr double kib = 1024;

// The number of KiB, within 5 % or one of them; a word that is no number is wrong.
bool is_right(const std::string& answer, int64_t bytes) {
  char* end = nullptr;
  const double value = std::strtod(answer.c_str(), &end), exact = static_cast<double>(bytes) / kib;
  return end != answer.c_str() && std::abs(value - exact) <= std::max(1.0, 0.05 * std::abs(exact));
}

}  // namespace

void MemoryLog::work_begins(const DeviceWork& work) {
  if (work.tensors.empty() || now_) return;
  now_ = &work;
  calls_.push_back(std::exchange(next_, {}));
}

void MemoryLog::work_ends(const DeviceWork& work, bool) {
  if (now_ != &work) return;
  now_ = nullptr;
  const Tensor* last = work.tensors.front();
  for (const Tensor* tensor : work.tensors) {
    if (!tensor->defined()) continue;
    last = tensor;
    const auto found = live_.find(tensor->raw_data());
    if (found == live_.end() || !stored_[found->second].label.empty()) continue;
    stored_[found->second].label =
        fmt::format("{} {} of {}", name(tensor->dtype()), tensor->shape().to_string(), Op::current());
  }
  calls_.back().label =
      fmt::format("{}: {} {} -> {} {}", Op::current(), name(work.tensors.front()->dtype()),
                  work.tensors.front()->shape().to_string(), name(last->dtype()), last->shape().to_string());
}

// What is freed belongs to the call before it, and what is made outside of a call to the one after it.
void MemoryLog::storage(Device, const MemoryEvent& event, const MemoryStats&) {
  if (event.made) {
    Call& call = now_ ? calls_.back() : next_;
    live_[event.data] = stored_.size();
    call.made.push_back(stored_.size());
    call.bytes += static_cast<int64_t>(event.bytes);
    stored_.push_back({event.bytes, ""});
    return;
  }
  const auto found = live_.find(event.data);
  if (found == live_.end()) return;  // it was there before
  const size_t freed = found->second;
  live_.erase(found);
  for (Call* call : {&next_, calls_.empty() ? &next_ : &calls_.back()}) {
    if (std::erase(call->made, freed) == 0) continue;
    call->bytes -= static_cast<int64_t>(event.bytes);  // a workspace: nobody was to guess it
    return;
  }
  if (calls_.empty()) return;
  calls_.back().freed.push_back(freed);
  calls_.back().bytes -= static_cast<int64_t>(event.bytes);
}

std::string guess(const MemoryLog& log, size_t count, std::istream& answers) {
  int right = 0, asked = 0;
  const auto ask = [&](const std::string& question) -> std::optional<std::string> {
    cli::write_stdout(question);
    std::string answer;
    return std::getline(answers, answer) ? std::optional(answer) : std::nullopt;
  };
  const auto judge = [&](bool is_right, const std::string& truth) {
    ++asked;
    right += is_right;
    cli::write_stdout(fmt::format("  {}: {}\n", is_right ? "right" : "no", truth));
  };
  const auto named = [&](const std::string& before, size_t one) {
    const MemoryLog::Stored& stored = log.stored()[one];
    return fmt::format("\n    {} {:.1f} KiB, {}", before, static_cast<double>(stored.bytes) / kib, stored.label);
  };
  std::vector<size_t> live;
  for (size_t i = 0; i < std::min(count, log.calls().size()); ++i) {
    const MemoryLog::Call& call = log.calls()[i];
    const auto is_freed = [&](size_t one) { return std::ranges::find(call.freed, one) != call.freed.end(); };
    live.insert(live.end(), call.made.begin(), call.made.end());
    const auto kept = ask(fmt::format("{}\n  KiB more after it (less: -)? ", call.label));
    if (!kept) break;
    std::string made;
    for (const size_t one : call.made) made += named("+", one);
    const std::string truth = fmt::format("{:+.1f} KiB", static_cast<double>(call.bytes) / kib);
    if (!kept->empty()) judge(is_right(*kept, call.bytes), call.freed.empty() ? truth + made : truth);
    std::string question = "  which tensors go?", letters, gone;
    char letter = 'a';
    for (size_t c = 0; c < live.size(); ++c) {
      if (live.size() - c > max_choices && !is_freed(live[c])) continue;
      question += named(std::string(1, letter) + ":", live[c]);
      if (is_freed(live[c])) letters += letter, gone += named("-", live[c]);
      ++letter;
    }
    if (live.size() > 1) {
      auto answer = ask(question + "\n  letters, none: Enter ");
      if (!answer) break;
      std::erase_if(*answer, [](char one) { return one < 'a' || one > 'z'; });
      std::ranges::sort(*answer);
      judge(*answer == letters, letters.empty() ? "none" : letters + made + gone);
    }
    std::erase_if(live, is_freed);
  }
  return fmt::format("{} of {} answers right", right, asked);
}

}  // namespace hs::bench::measure
