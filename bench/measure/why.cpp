// Why one training took longer than another: what two records of `train` say of the phases, kernels and counts of a
// run.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/measure/comparison.h"
#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::measure {
namespace {

// What people call the parts of a run, where that is not their name; "kernel SLOT" is one too.
const std::map<std::string, const char*> names = {{"amount", "the amount of training"},
                                                  {"wait", "waiting for data"},
                                                  {"upload", "the upload of batches"},
                                                  {"update", "the update"},
                                                  {"exchange", "the sum over ranks"},
                                                  {"save", "saving"},
                                                  {"replay", "the replay of graphs"},
                                                  {"gaps", "the time between kernels"},
                                                  {"step", "the step"},
                                                  {"rest", "what no phase counts"}};

// Places in a record that change parts too, as flags do: see cli::Facts::moves(). "kernels" are what a step computes.
const std::vector<std::pair<const char*, std::vector<std::string>>> facts = {
    {"/environment/commit", {"kernels", "backward", "update"}},
    {"/environment/cpu", {"step"}},
    {"/environment/isa_cap", {"step"}},
    {"/rows/0/peak_bytes", {"backward"}},
    {"/rows/0/ranks/count", {"exchange"}},
    {"/rows/0/ranks/bytes_sent", {"exchange"}}};

bool is_outside_steps(const std::string& part) {
  return part == "wait" || part == "upload" || part == "exchange" || part == "save" || part == "evaluation";
}

struct Side {
  const Json& record;
  const Json& row;
  double samples = 0, steps = 0, epochs = 0;   // of a run, means
  std::map<std::string, double> seconds = {};  // of a run, by part or as "kernel SLOT"; they add up to all of it
};

Side read_side(const Json& record, const std::string& name) {
  const Json &rows = report::objects(record, "rows"), &config = report::part(record, "config");
  if (report::text(record, "command") != "train" || rows.empty() || report::objects(rows[0], "runs").empty() ||
      report::part(rows[0], "parts").is_null()) {
    fail(ExitCode::usage, "--why: {} does not say where time went; expected records of train", name);
  }
  Side side{record, rows[0]};
  std::vector<double> steps, epochs, evaluation;
  for (const Json& run : report::objects(side.row, "runs")) {
    steps.push_back(report::number(run, "steps") + report::number(run, "skipped_steps"));
    epochs.push_back(static_cast<double>(report::objects(run, "epochs").size()));
    evaluation.push_back(report::number(run, "evaluation_seconds"));
    for (const Json& each : report::objects(run, "validations")) evaluation.back() += report::number(each, "seconds");
  }
  side.steps = mean(steps), side.epochs = mean(epochs);
  // The last step of an epoch may be smaller than the others, and the last epoch may have been cut short.
  side.samples = std::min(side.steps * report::number(config, "batch") * report::number(config, "accumulate"),
                          side.epochs * report::number(report::part(record, "data"), "train"));
  // The parts are means of the runs, and the seconds that are compared are medians.
  const double all = report::number(side.row, "seconds"), usual = all / mean(report::numbers(side.row, "seconds_all"));
  side.seconds = {{"evaluation", mean(evaluation)}, {"rest", all}};
  for (const char* part : {"wait", "upload", "forward", "backward", "update", "exchange", "replay", "save"}) {
    const double seconds = report::number(report::part(side.row, "parts"), part);
    side.seconds[part] = std::isfinite(seconds) ? seconds * usual : 0;
    side.seconds["rest"] -= side.seconds[part];
  }
  if (!(side.samples > 0)) fail(ExitCode::usage, "--why: {} does not say how many samples it trained on", name);
  return side;
}

void join_steps(Side& side) {
  double sum = 0;
  for (const auto& [part, seconds] : side.seconds) sum += is_outside_steps(part) ? 0 : seconds;
  std::erase_if(side.seconds, [](const auto& part) { return !is_outside_steps(part.first); });
  side.seconds["step"] = sum;
}

// Splits a phase into kernels, as the profiled step did. "step" is all phases: those of a GPU are only launches, and
// its kernels run later.
void split_into_kernels(Side& side, const std::string& phase) {
  const Json& step = report::part(side.row, "step");
  const auto lengths = [&](const char* lane_name, const auto& visit) {
    for (const Json& lane : report::objects(step, "lanes")) {
      if (report::text(lane, "name") != lane_name) continue;
      for (const Json& span : report::objects(lane, "spans")) {
        visit(report::text(span, "name"), report::number(span, "start"), report::number(span, "end"));
      }
    }
  };
  std::vector<std::pair<double, double>> spans;
  double profiled = phase == "step" ? report::number(step, "seconds") : 0;
  lengths("training", [&](const std::string& name, double begin, double end) {
    if (name == phase) spans.emplace_back(begin, end), profiled += end - begin;
    if (phase == "step" && is_outside_steps(name)) profiled -= end - begin;
  });
  if (!(profiled > 0)) return;
  const double all = side.seconds[phase];
  side.seconds["gaps"] += all;
  side.seconds.erase(phase);
  lengths("compute", [&](const std::string& name, double begin, double end) {
    const auto holds = [begin](const auto& span) { return span.first <= begin && begin < span.second; };
    if (phase != "step" && std::ranges::none_of(spans, holds)) return;
    const double seconds = (end - begin) / profiled * all;
    side.seconds["kernel " + name.substr(0, name.find(' '))] += seconds;
    side.seconds["gaps"] -= seconds;
  });
}

std::string shown(const Json& value) {
  if (value.is_array() && !value.empty()) return fmt::format("{}", fmt::join(mapped(value, shown), ","));
  if (value.is_object()) return report::text(value, "file");
  if (value.is_null() || value.is_array()) return "none";
  if (!value.is_string()) return value.dump();
  const auto word = value.get<std::string>();
  return word.empty() ? "none" : word;
}

// What a record says of a flag: of threads and device the machine, since the flags may have said 0 and auto.
const Json& setting_of(const Side& side, const cli::Flags::Flag& flag) {
  if (flag.name == "--data") return report::member(report::part(side.record, "data"), "name");
  for (const char* part : {"environment", "data"}) {
    const Json& value = report::member(report::part(side.record, part), flag.member.c_str());
    if (!value.is_null()) return value;
  }
  return report::member(report::part(side.record, "config"), flag.member.c_str());
}

// "; --batch 64 -> 8, --accumulate 1 -> 8"
std::string differing(const cli::Flags& train, const Side& a, const Side& b, std::string part) {
  if (part.starts_with("kernel ") || part == "forward" || part == "replay" || part == "gaps") part = "kernels";
  std::string all;
  const auto add = [&](const std::string& name, const Json& from, const Json& to) {
    if (from != to) all += fmt::format("{} {} {} -> {}", all.empty() ? ";" : ",", name, shown(from), shown(to));
  };
  for (const cli::Flags::Flag& flag : train.all()) {
    if (std::ranges::count(flag.facts.parts, part) > 0) add(flag.name, setting_of(a, flag), setting_of(b, flag));
  }
  for (const auto& [place, moved] : facts) {
    if (std::ranges::count(moved, part) == 0) continue;
    const Json::json_pointer pointer(place);
    std::string name = pointer.back();
    std::ranges::replace(name, '_', '-');
    add(name, a.record.value(pointer, Json()), b.record.value(pointer, Json()));
  }
  return all;
}

std::string describe(const cli::Flags& train, const Side& a, const Side& b, const std::string& part, double share) {
  const double seconds_a = a.seconds.at(part), seconds_b = b.seconds.at(part);
  const auto times_as_many = [](double n, double m, const char* what) {
    return fmt::format("{:.3g} times as many {}: {:.6g} and {:.6g}", std::max(n, m) / std::min(n, m), what, n, m);
  };
  std::string figures =
      fmt::format("{:.3g} and {:.3g} ms a step", seconds_a / a.steps * 1e3, seconds_b / b.steps * 1e3);
  if (is_outside_steps(part)) figures = fmt::format("{:.3f} and {:.3f} s a run", seconds_a, seconds_b);
  if (part == "amount") figures = times_as_many(a.samples, b.samples, "samples");
  if (part == "step" && a.steps != b.steps) figures = times_as_many(a.steps, b.steps, "steps") + ", " + figures;
  std::string what = names.contains(part) ? names.at(part) : part;
  if (part.starts_with("kernel ")) {
    const std::string slot = part.substr(part.find(' ') + 1);
    const auto variant = [&](const Side& side) {
      return shown(report::member(report::part(side.record, "kernels"), slot.c_str()));
    };
    what += variant(a) == variant(b) ? fmt::format(" ({})", variant(a))
                                     : fmt::format(" ({} -> {})", variant(a), variant(b));
  }
  return fmt::format("{} takes {:.0f} % of the difference: {}{}", what, share * 100, figures,
                     differing(train, a, b, part));
}

// Leaves in both what can be compared one by one.
void choose_parts(const cli::Flags& train, Side& a, Side& b) {
  const auto checkpoint = [](const Side& side) {
    return report::member(report::part(side.record, "config"), "checkpoint");
  };
  // Of what changes all that a step computes, a kernel alone says little.
  const bool same_steps = differing(train, a, b, "step").empty(), same_backward = checkpoint(a) == checkpoint(b),
             is_cpu = report::text(report::part(a.record, "environment"), "device") == "cpu",
             profiled = report::part(a.row, "step").is_object() && report::part(b.row, "step").is_object();
  for (Side* side : {&a, &b}) {
    if (!same_steps || !is_cpu) join_steps(*side);
    if (!same_steps || !profiled) continue;
    if (!is_cpu) {
      split_into_kernels(*side, "step");
    } else {
      split_into_kernels(*side, "forward");
      if (same_backward) split_into_kernels(*side, "backward");  // else one of them has kernels of forward
    }
  }
  for (const auto& part : a.seconds) b.seconds.try_emplace(part.first, 0);
  for (const auto& part : b.seconds) a.seconds.try_emplace(part.first, 0);
}

}  // namespace

std::string why(const cli::Flags& train, const Json& before, const Json& after, const std::string& before_name,
                const std::string& after_name) {
  Side a = read_side(before, before_name), b = read_side(after, after_name);
  choose_parts(train, a, b);
  // A product of an amount and of what one of it takes changes with each at the mean of the other.
  std::map<std::string, double> changes;
  double difference = 0;
  for (const auto& [part, seconds] : a.seconds) {
    const bool is_test = part == "evaluation";
    const double n = is_test ? a.epochs : a.samples, m = is_test ? b.epochs : b.samples;
    changes[part] = (b.seconds.at(part) / m - seconds / n) * (n + m) / 2;
    changes["amount"] += (m - n) * (seconds / n + b.seconds.at(part) / m) / 2;
    difference += b.seconds.at(part) - seconds;
  }
  const auto largest = std::ranges::max_element(
      changes, {}, [difference](const auto& change) { return change.second * (difference > 0 ? 1 : -1); });
  if (!(std::abs(difference) > 0)) return "there is no difference";
  a.seconds["amount"] = b.seconds["amount"] = 0;
  return describe(train, a, b, largest->first, largest->second / difference);
}

}  // namespace hs::bench::measure
