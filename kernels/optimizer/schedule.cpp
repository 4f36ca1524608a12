#include "kernels/optimizer/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "engine/check.h"

namespace hs {
namespace {

constexpr std::pair<std::string_view, ScheduleKind> kinds[] = {
    {"constant", ScheduleKind::constant},   {"linear", ScheduleKind::linear},
    {"cosine", ScheduleKind::cosine},       {"step", ScheduleKind::step},
    {"one-cycle", ScheduleKind::one_cycle}, {"exponential", ScheduleKind::exponential}};

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds) names.emplace_back(name);
  return names;
}

ScheduleKind parse_schedule(std::string_view name) {
  for (const auto& [known, kind] : kinds) {
    if (known == name) return kind;
  }
  fail(ExitCode::usage, "schedule {}: expected one of {}", name, fmt::join(schedule_names(), ", "));
}

}  // namespace hs
