#include "bench/report/page.h"

#include <iterator>
#include <map>

#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "report_template.h"  // report.html as bytes, made by the build

namespace hs::bench::report {
namespace {

using Rules = std::span<const Rule>;

constexpr Rule time_rules[] = {
    {"rows[].name", &kind::text},          {"rows[].group", &kind::text},          {"rows[].seconds", &kind::number},
    {"rows[].seconds_low", &kind::number}, {"rows[].seconds_high", &kind::number}, {"rows[].speed_up", &kind::number},
    {"rows[].ratio", &kind::number},       {"rows[].verdict", &kind::text},        {"rows[].for_memory", &kind::flag},
};
constexpr Rule training_rules[] = {
    {"config.target_accuracy", &kind::number},
    {"config.price_per_hour", &kind::number},
    {"config.batch", &kind::number},
    {"config.accumulate", &kind::number},
    {"config.learning_rate", &kind::number},
    {"config.warmup", &kind::number},
    {"config.schedule", &kind::text},
    {"config.precision", &kind::text},
    {"config.warmed_up", &kind::flag},
    {"environment.commit", &kind::text},
    {"rows[].seconds_all", &kind::numbers},
    {"rows[].stall_share", &kind::number},
    {"rows[].test_accuracy", &kind::number},
    {"rows[].peak_bytes", &kind::number},
    {"rows[].error", &kind::text},
    {"rows[].experiment.precision", &kind::text},
    {"rows[].runs[].seed", &kind::number},
    {"rows[].runs[].steps", &kind::number},
    {"rows[].runs[].skipped_steps", &kind::number},
    {"rows[].runs[].loss_scale", &kind::number},
    {"rows[].runs[].epochs[].seconds", &kind::number},
    {"rows[].runs[].epochs[].test_accuracy", &kind::number},
    {"rows[].epochs[].seconds", &kind::number},
    {"rows[].epochs[].test_accuracy", &kind::number},
    {"rows[].parts.*", &kind::number},
    {"rows[].step.purposes[].name", &kind::text},
    {"rows[].step.purposes[].live_bytes", &kind::numbers},
    {"rows[].step.lanes[].name", &kind::text},
    {"rows[].step.lanes[].spans[].name", &kind::text},
    {"rows[].step.lanes[].spans[].start", &kind::number},
    {"rows[].step.lanes[].spans[].end", &kind::number},
    {"rows[].steps", &kind::number},
    {"rows[].scale.first", &kind::number},
    {"rows[].scale.changes[].after_step", &kind::number},
    {"rows[].scale.changes[].scale", &kind::number},
};
constexpr Rule kernel_rules[] = {
    {"kernels[].slot", &kind::text},
    {"kernels[].sizes", &kind::text},
    {"kernels[].type", &kind::text},
    {"kernels[].chosen", &kind::text},
    {"kernels[].variants[].variant", &kind::text},
    {"kernels[].variants[].warm_seconds", &kind::number},
    {"kernels[].variants[].warm_seconds_range", &kind::numbers},
    {"kernels[].variants[].share_of_peak_flops", &kind::number},
    {"kernels[].variants[].share_of_peak_bytes", &kind::number},
};
constexpr Rule memory_rules[] = {
    {"rows[].precision", &kind::text},     {"rows[].checkpoint", &kind::text},
    {"rows[].accumulate", &kind::number},  {"rows[].peak_bytes", &kind::number},
    {"rows[].step_ms", &kind::number},     {"rows[].timeline.points[].live.*", &kind::number},
    {"curve[].peak_bytes", &kind::number}, {"curve[].step_ms", &kind::number},
};

// [lane, batch, begin_ms, end_ms]
bool is_span(const Json& span) {
  return span.is_array() && span.size() == 4 && span[0].is_string() && span[1].is_number() && span[2].is_number() &&
         span[3].is_number();
}
constexpr Kind spans = {"lists of a lane, a batch, its begin and its end",
                        [](const Json& value) { return kind::is_list_of(value, is_span, false); }, false, false};

constexpr Rule loader_rules[] = {
    {"formats[].name", &kind::text},
    {"formats[].warm_samples_per_second", &kind::number},
    {"rows[].format", &kind::text},
    {"rows[].cache", &kind::text},
    {"rows[].workers", &kind::number},
    {"rows[].prefetch", &kind::number},
    {"rows[].samples_per_second", &kind::number},
    {"rows[].stall_share", &kind::number},
    {"timelines[].name", &kind::text},
    {"timelines[].spans", &spans},
};
constexpr Rule scaler_rules[] = {
    {"rows[].name", &kind::text},
    {"rows[].gradients[].name", &kind::text},
    {"rows[].gradients[].kind", &kind::text},
    {"rows[].gradients[].zero", &kind::number},
};
constexpr Rule explain_rules[] = {
    {"calls[].kernel", &kind::text},         {"calls[].phase", &kind::text},      {"calls[].shapes", &kind::texts},
    {"calls[].milliseconds", &kind::number}, {"calls[].begin_ms", &kind::number}, {"calls[].live_bytes", &kind::number},
};
constexpr Rule doctor_rules[] = {
    {"verdict.name", &kind::text}, {"verdict.reason", &kind::text},        {"verdict.advice", &kind::text},
    {"rows[].name", &kind::text},  {"rows[].milliseconds", &kind::number}, {"rows[].share", &kind::number},
};
constexpr Rule comparison_rules[] = {
    {"rows[].name", &kind::text},
    {"rows[].seconds_before", &kind::number},
    {"rows[].seconds_after", &kind::number},
    {"rows[].verdict", &kind::text},
};

// JSON between the tags of a script element: nothing in it may look like a tag.
std::string inside_script(const Json& value) {
  std::string safe;
  for (const char c : bench::to_text(value)) c == '<' ? safe += "\\u003c" : safe += c;
  return safe;
}

std::string filled(std::string page, const std::string& place, const std::string& content) {
  return page.replace(page.find(place), place.size(), content);
}

}  // namespace

std::string_view html_template() { return {reinterpret_cast<const char*>(report_template), sizeof report_template}; }

std::vector<Rule> drawn_members(const std::string& command) {
  static const std::map<std::string, std::vector<Rules>> rules = {
      {"train", {time_rules, training_rules}},
      {"techniques", {time_rules, training_rules}},
      {"peers", {time_rules}},
      {"gemm", {kernel_rules}},
      {"conv", {kernel_rules}},
      {"ops", {kernel_rules}},
      {"memory", {memory_rules}},
      {"loader", {loader_rules}},
      {"scaler", {scaler_rules}},
      {"explain", {explain_rules}},
      {"doctor", {doctor_rules}},
      {"compare", {comparison_rules}},
  };
  std::vector<Rule> all;
  if (const auto found = rules.find(command); found != rules.end()) {
    for (const Rules& group : found->second) all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

std::string html_report(const Json& record) {
  check_types(record, drawn_members(text(record, "command")));
  const Json plain = printable(record);
  const Json shown = {{"headline", opening(plain)},
                      {"machine", machine_line(plain)},
                      {"tables", to_json(tables_of(plain))},
                      {"remarks", remarks(plain)}};
  // The record last: its text may hold the other's place.
  return filled(filled({std::begin(report_template), std::end(report_template)}, "@shown@", inside_script(shown)),
                "@record@", inside_script(record));
}

}  // namespace hs::bench::report
