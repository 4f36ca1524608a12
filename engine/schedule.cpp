#include "engine/schedule.h"

#include "engine/check.h"

namespace hs {

ScheduleKind parse_schedule(std::string_view name) {
  if (name == "constant") return ScheduleKind::constant;
  if (name == "linear") return ScheduleKind::linear;
  if (name == "cosine") return ScheduleKind::cosine;
  fail(ExitCode::usage, "schedule {}: expected constant, linear or cosine", name);
}

}  // namespace hs
