#include "bench/measure/forecast.h"

#include <fmt/format.h>

#include <utility>

#include "bench/cli/console.h"
#include "bench/cli/interrupt.h"
#include "bench/report/presentation.h"

namespace hs::bench::measure {
namespace {

std::string minutes_text(double seconds) {
  return fmt::format("{:.{}f} minutes", seconds / 60, seconds < 60 ? 2 : seconds < 600 ? 1 : 0);
}

}  // namespace

Forecast forecast(const Experiment& experiment, const SampleSource& train, const SampleSource& test) {
  warm_up(experiment, train, test, {});
  Experiment once = experiment;
  once.epochs = 1;
  const MemorySource some = load_samples(train, 4 * experiment.batch * experiment.accumulate * experiment.graph_steps);
  const MemorySource some_test = load_samples(test, experiment.batch);
  const RunRecord run = run_experiment(once, some, some_test, once.seed, {});
  const auto of_all = [](double seconds, const SampleSource& part, const SampleSource& whole) {
    return seconds / static_cast<double>(part.info().count) * static_cast<double>(whole.info().count);
  };
  const double epoch =
      of_all(run.result.seconds, some, train) + of_all(run.result.epochs[0].evaluation_seconds, some_test, test);
  return {epoch * static_cast<double>(experiment.epochs), run.peak_bytes};
}

DryRun::DryRun(std::vector<std::string> heads, size_t left)
    : table_{.heads = std::move(heads), .lines = {}, .title = "", .left = left} {}

void DryRun::add(std::vector<std::string> names, const Forecast& run, int64_t runs) {
  cli::check_signals("while planning");
  names.insert(names.end(), {fmt::format("{:.1f}", run.seconds), report::mebibytes(run.peak_bytes)});
  table_.lines.push_back(std::move(names));
  seconds_ += run.seconds * static_cast<double>(runs);
}

void DryRun::print(const std::string& headline, const std::string& data, const std::string& rows) const {
  cli::write_stdout(fmt::format("{}\n{}{}: {}: about {}\n", headline, report::to_terminal({table_}, data), data, rows,
                                minutes_text(seconds_)));
}

}  // namespace hs::bench::measure
