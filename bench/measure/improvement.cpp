#include "bench/measure/improvement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/cli/command_line.h"
#include "bench/cli/statistics.h"
#include "bench/measure/experiment.h"

namespace hs::bench::measure {
namespace {

struct OutOfTime {};

Json words(const std::string& word) { return Json::array({word}); }

double number_of(const Json& settings, const char* flag, double otherwise) {
  return settings.contains(flag) ? std::stod(settings[flag][0].get<std::string>()) : otherwise;
}

std::string word_of(const Json& settings, const char* flag, const char* otherwise) {
  return settings.contains(flag) ? settings[flag][0].get<std::string>() : otherwise;
}

const Experiment usual;  // has the defaults of `train`

Json with_rate(const Json& settings, double factor) {
  return words(fmt::format("{:.3g}", factor * number_of(settings, "--lr", usual.optimizer.learning_rate)));
}

std::vector<Change> loader_candidates(const Json& settings) {
  const Json none;
  std::vector<Change> all = {
      {"loader", {{"--cache", words("ram")}, {"--prefetch", none}, {"--workers", none}}},
      {"loader", {{"--cache", words("ram")}, {"--prefetch", words("4")}, {"--workers", words("2")}}},
      {"loader", {{"--cache", words("ram")}, {"--prefetch", words("0")}, {"--workers", none}}}};
  if (!settings.contains("--cache") && !settings.contains("--prefetch") && !settings.contains("--workers")) {
    all.erase(all.begin());
  }
  return all;
}

// By the linear rule (see --scale-lr), from the batch and the rate that were given, and at the same rate.
std::vector<Change> batch_candidates(const Json& settings) {
  const auto batch = static_cast<int64_t>(number_of(settings, "--batch", static_cast<double>(usual.batch)));
  std::vector<Change> all;
  for (const int64_t other : {2 * batch, 4 * batch, 8 * batch, batch / 2}) {
    if (other < 1 || other > 1024) continue;
    const Change same_rate{"batch", {{"--batch", words(std::to_string(other))}}};
    Change linear = same_rate;
    if (!settings.contains("--scale-lr")) linear.set["--scale-lr"] = words(std::to_string(batch));
    all.push_back(linear);
    if (linear.set != same_rate.set) all.push_back(same_rate);
  }
  return all;
}

std::vector<Change> schedule_candidates(const Json& settings) {
  const double epochs = number_of(settings, "--epochs", static_cast<double>(usual.epochs));
  std::vector<Change> all;
  for (const double factor : {1, 3, 10}) {
    for (const double share : {1.0, 0.5}) {
      Change change{"schedule",
                    {{"--schedule", words("one-cycle")}, {"--lr", with_rate(settings, factor)}, {"--warmup", {}}}};
      if (share < 1) change.set["--epochs"] = words(fmt::format("{:.0f}", std::max(1.0, std::floor(epochs * share))));
      all.push_back(change);
    }
  }
  all.push_back({"schedule", {{"--schedule", words("cosine")}}});
  return all;
}

class Search {
 public:
  Search(const Json& settings, const Trainer& train, const SearchRules& rules)
      : settings_(settings), train_(train), rules_(rules), found_{settings, {}} {}

  Found run() {
    try {
      kept_ = {run_once(settings_, rules_.first_limit)};
      try_kinds();
    } catch (const OutOfTime&) {
      found_.out_of_time = true;
    }
    return found_;
  }

 private:
  static constexpr size_t enough = 3;  // trials of what is judged

  // Kind after kind, and again, until none of the others finds more: a batch that was kept may want another precision.
  void try_kinds() {
    const std::vector<std::string> all = kinds();
    size_t in_vain = 0;
    for (size_t i = 0; in_vain < all.size(); i = (i + 1) % all.size()) in_vain = try_kind(all[i]) ? 1 : in_vain + 1;
  }

  Trial run_once(const Json& settings, double limit, uint64_t turn = 0) {
    if (!rules_.may_go_on()) throw OutOfTime();
    ++found_.runs;
    return train_(settings, rules_.seed + turn, limit);
  }

  // Then nothing that the loader does can be the reason.
  bool never_waits(const std::string& kind) const { return kind == "loader" && kept_[0].waiting < 0.02; }

  // No candidate needs longer than this to show that it is worse, even with the less lucky seed.
  double limit() const {
    const double best = median_of(kept_);
    return std::isfinite(best) ? 1.2 * best : rules_.first_limit;
  }

  static double median_of(const std::vector<Trial>& trials) { return median(seconds_of(trials)); }

  struct Candidate {
    Change change;
    std::vector<Trial> trials = {};
  };

  // One run of each, then another of the better half, until one is left: the best first. Without those that do not
  // reach the target in time.
  std::vector<Candidate> halved(const std::string& kind) {
    std::vector<Candidate> all;
    for (const Change& change : candidates(kind, found_.settings)) all.push_back({change});
    size_t left = all.size();
    for (uint64_t turn = 0; left > 0 && (turn == 0 || left > 1); ++turn) {
      for (size_t i = 0; i < left; ++i) {
        all[i].trials.push_back(run_once(changed(found_.settings, all[i].change), limit(), turn));
        rules_.say(fmt::format("{}: {} {}", kind, all[i].change.text(), seconds_text(all[i].trials.back().seconds)));
      }
      const auto end = all.begin() + static_cast<std::ptrdiff_t>(left);
      std::stable_sort(all.begin(), end, [](const Candidate& a, const Candidate& b) {
        return median_of(a.trials) < median_of(b.trials);
      });
      left = (left + 1) / 2;
    }
    std::erase_if(all, [](const Candidate& one) { return !std::isfinite(median_of(one.trials)); });
    return all;
  }

  static std::string seconds_text(double seconds) {
    return std::isfinite(seconds) ? fmt::format("reaches the target after {:.2f} s", seconds) : "is not as fast";
  }

  // Keeps the first of the best of its kind that is better than what is kept so far on three seeds of both, if any is.
  bool try_kind(const std::string& kind) {
    constexpr size_t most = 3;
    if (never_waits(kind)) {
      rules_.say(fmt::format("loader: training waits for it {:.1f} % of the time", kept_[0].waiting * 100));
      return false;
    }
    std::vector<Candidate> best = halved(kind);
    for (size_t i = 0; i < std::min(most, best.size()); ++i) {
      if (is_better(best[i])) {
        keep(best[i]);
        return true;
      }
    }
    return false;
  }

  // A kind that is kept again stays one change, the last, with what all its flags are now.
  void keep(const Candidate& one) {
    found_.settings = changed(found_.settings, one.change);
    kept_ = one.trials;
    Change whole = one.change;
    std::erase_if(found_.changes, [&](const Change& before) {
      if (before.kind == whole.kind) whole.set.update(before.set);
      return before.kind == whole.kind;
    });
    for (auto& [flag, value] : whole.set.get_ref<Json::object_t&>()) value = found_.settings.value(flag, Json());
    found_.changes.push_back(whole);
  }

  bool is_better(Candidate& one) {
    const double patience = 2 * limit();
    for (size_t turn = 0; turn < enough; ++turn) {
      if (kept_.size() <= turn) kept_.push_back(run_once(found_.settings, patience, turn));
      if (one.trials.size() <= turn) {
        one.trials.push_back(run_once(changed(found_.settings, one.change), patience, turn));
      }
    }
    if (found_.changes.empty()) accuracy_ = accuracy_of(kept_);
    const double accuracy = accuracy_of(one.trials);
    const double before = median_of(kept_), after = median_of(one.trials);
    const bool is_faster = std::isfinite(after) && before >= rules_.gain * after;
    const bool is_kept = is_faster && accuracy >= accuracy_ - rules_.lose;
    rules_.say(fmt::format("{}: {} is {}: {:.2f} times as fast{}", one.change.kind, one.change.text(),
                           is_kept ? "kept" : "left out", before / after,
                           is_faster && !is_kept ? fmt::format(", accuracy {:+.4f}", accuracy - accuracy_) : ""));
    return is_kept;
  }

  const Json& settings_;  // that were given
  const Trainer& train_;
  const SearchRules& rules_;
  Found found_;
  std::vector<Trial> kept_;  // of found_.settings, by seed
  double accuracy_ = 0;      // of the settings that were given
};

}  // namespace

std::vector<double> seconds_of(const std::vector<Trial>& trials) { return mapped(trials, &Trial::seconds); }

double accuracy_of(const std::vector<Trial>& trials) { return mean(mapped(trials, &Trial::accuracy)); }

std::string Change::text() const {
  std::vector<std::string> flags, left;
  for (const auto& [flag, value] : set.items()) {
    value.is_null() ? left.push_back("no " + flag)
                    : flags.push_back(fmt::format("{} {}", flag, value[0].get<std::string>()));
  }
  return fmt::format("{}", fmt::join(flags.empty() ? left : flags, " "));
}

Json changed(Json settings, const Change& change) {
  for (const auto& [flag, value] : change.set.items()) {
    if (value.is_null()) {
      settings.erase(flag);
    } else {
      settings[flag] = value;
    }
  }
  return settings;
}

std::vector<std::string> kinds() { return {"loader", "kernels", "precision", "batch", "learning rate", "schedule"}; }

std::vector<Change> candidates(const std::string& kind, const Json& settings) {
  if (kind == "loader") return loader_candidates(settings);
  if (kind == "batch") return batch_candidates(settings);
  if (kind == "schedule") return schedule_candidates(settings);
  std::vector<Change> all;
  if (kind == "kernels") {
    if (word_of(settings, "--fuse", "on") == "off" || settings.contains("--kernel")) {
      all.push_back({kind, {{"--fuse", words("on")}, {"--kernel", {}}}});
    }
  } else if (kind == "precision") {
    for (const char* precision : {"bf16", "f16", "f32"}) {
      if (word_of(settings, "--precision", "f32") != precision)
        all.push_back({kind, {{"--precision", words(precision)}}});
    }
  } else {
    for (const double factor : {3.0, 10.0, 0.3}) all.push_back({kind, {{"--lr", with_rate(settings, factor)}}});
  }
  return all;
}

Found improve(const Json& settings, const Trainer& train, const SearchRules& rules) {
  return Search(settings, train, rules).run();
}

}  // namespace hs::bench::measure
